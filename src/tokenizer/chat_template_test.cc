#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer.h"

namespace medley {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::ThrowsMessage;

const ordered_json& recorded() {  // by tools/make_template_cases.py, from jinja2
  static const ordered_json all = ordered_json::parse(read_text(MEDLEY_SOURCE_DIR "/tests/tokenizer/templates.json"));
  return all;
}

void write_tokenizer(const TestFolder& folder, json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}) {
  for (const auto& entry : read_json(MEDLEY_SOURCE_DIR "/tests/tokenizer/tokenizers.json"))
    if (entry["name"] == "llama3_like") folder.write("tokenizer.json", entry["tokenizer"].dump());
  folder.write("tokenizer_config.json", config.dump());
}

const Tokenizer& tokenizer() {
  static const Tokenizer made = [] {
    const TestFolder folder;
    write_tokenizer(folder);
    return Tokenizer::load(folder.path());
  }();
  return made;
}

ChatTemplate::Result render(const std::string& source, ordered_json variables) {
  try {
    ChatTemplate chat(source, "T", tokenizer());
    chat.set_clock([] { return int64_t(1764538200); });
    return chat.apply(variables["messages"], variables["add_generation_prompt"], variables);
  } catch (const Error& error) {
    return {false, "", error.what()};
  }
}

TEST(Template, LanguageCasesAreAsRecorded) {
  for (const auto& [source, expected] :
       recorded()["language"].get<std::vector<std::pair<std::string, ordered_json>>>()) {
    const auto result = render(source, recorded()["variables"]);
    EXPECT_EQ(result.ok, expected.is_string()) << source << "\n" << result.error;
    if (expected.is_string()) {
      EXPECT_EQ(result.text, expected.get<std::string>()) << source;
    } else {
      EXPECT_THAT(result.error, testing::ContainsRegex("^T line [0-9]+: ")) << source;
    }
  }
}

TEST(Template, ChatsAreAsRecorded) {
  for (const auto& chat : recorded()["chats"]) {
    ordered_json variables = recorded()["extras"][chat[2].get<size_t>()];
    variables["messages"] = recorded()["conversations"][chat[1].get<size_t>()];
    variables["add_generation_prompt"] = chat[3];
    const auto result = render(recorded()["templates"][chat[0].get<std::string>()], variables);
    EXPECT_EQ(result.ok, chat[4].is_string()) << chat.dump().substr(0, 60) << "\n" << result.error;
    if (chat[4].is_string()) {
      EXPECT_EQ(result.text, chat[4].get<std::string>()) << chat.dump().substr(0, 60);
    }
  }
}

TEST(Template, ErrorsNameTheLine) {
  const auto error_of = [](const std::string& source) { return render(source, recorded()["variables"]).error; };
  EXPECT_EQ(error_of("a\n{{ raise_exception('roles must alternate') }}"), "T line 2: roles must alternate");
  EXPECT_EQ(error_of("\n\n{{ nothing.x }}"), "T line 3: 'nothing' is undefined");
  EXPECT_EQ(error_of("{{ messages[0].nothing.x }}"), "T line 1: 'dict object' has no attribute 'nothing'");
  EXPECT_THAT(error_of("{% if t %}\n{% include 'x' %}{% endif %}"), HasSubstr("T line 2: the statement \"include\""));
  EXPECT_THAT(error_of("\n{% for x in l %}"), HasSubstr("line 2: the template ends where \"else\" was expected"));
  EXPECT_THAT(error_of("{{ l.append(1) }}"), HasSubstr("access to attribute 'append' of 'list' object is unsafe"));
}

// Each would run out of time, memory or stack if it could.
TEST(Template, HostileOnesAreStopped) {
  const std::string deep_brackets = "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}";
  std::string deep_blocks, long_chain = "{{ l", left_deep = "{{ 1";
  for (int i = 0; i < 5000; ++i) {
    deep_blocks += "{% if t %}";
    long_chain += ".a";
    left_deep += " + 1";
  }
  for (int i = 0; i < 5000; ++i) deep_blocks += "{% endif %}";
  const std::string loops = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  const std::string sources[] = {
      deep_brackets,
      deep_blocks,
      long_chain + " }}",
      left_deep + " }}",
      "{{ " + std::string(100000, '-') + "1 }}",
      "{{ " + std::string(100000, '[') + " }}",
      loops,
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(90) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(90000) %}{% set ns.s = [ns.s] %}{% endfor %}",
      "{% set ns = namespace(s={}) %}{% for i in range(90000) %}{% set ns.s = {'a': ns.s} %}{% endfor %}",
      "{% set ns = namespace(l=1) %}{% for i in range(90000) %}{% for x in [ns.l] %}{% set ns.l = loop %}{% endfor "
      "%}{% endfor %}",
      "{% set ns = namespace(l='a'.strip) %}{% for i in range(90000) %}{% set ns.l = {'x': ns.l}.get %}{% endfor %}",
      "{{ 'x' * 100000000000 }}",
      "{{ [0] * 100000000000 }}",
      "{{ 'x'.center(100000000000) }}",
      "{{ 'a'.zfill(9223372036854775807) }}",
      "{{ 'x'|indent(100000000000) }}",
      "{{ '%9999999999d' % 1 }}",
      "{{ range(100000)|batch(1, 0)|list|tojson(indent=9223372036854775807)|length }}{{ 1 / 0 }}",
      "{{ [1]|batch(9223372036854775807, 0)|list }}",
      "{{ [1]|slice(9223372036854775807)|list }}",
      "{% set s = 'a' * 10000000 %}{{ s|replace('a', s) }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ 2 ** 64 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ l[::9223372036854775807] }}{{ l[::-9223372036854775807] }}{{ 1 // 0 }}",
      "{% for i in range(100000) %}{% for j in range(200) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}{% "
      "endfor %}",
      "{{ strftime_now('%c' * 2000) }}",
  };
  for (const std::string& source : sources)
    EXPECT_FALSE(render(source, recorded()["variables"]).ok) << source.substr(0, 100);
}

// Values that hold each other are freed all the same (the leak checker of the asan build looks).
TEST(Template, CyclesAreFreed) {
  for (const char* source : {"{% set ns = namespace() %}{% set ns.me = ns %}{{ 1 }}",
                             "{% macro m() %}{% endmacro %}{% set x = [m] %}{{ 1 }}",
                             "{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}{% endmacro %}{% set ns.m = m "
                             "%}{% set ns.l = loop %}"
                             "{% set ns.f = loop.changed %}{% endfor %}{{ 1 }}",
                             "{% set ns = namespace() %}{% for i in [[1]] recursive %}{% set ns.l = loop %}{% set ns.r "
                             "= [loop] %}{% endfor %}{{ 1 }}"})
    EXPECT_EQ(render(source, recorded()["variables"]).text, "1") << source;
  EXPECT_THAT(
      render("{% set ns = namespace() %}{% for i in [1] %}{% set ns.f = loop.changed %}{% endfor %}{{ ns.f(1) }}",
             recorded()["variables"])
          .error,
      HasSubstr("used after its loop"));
}

TEST(ChatTemplate, FoundWhereItIsKept) {
  const json base = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const std::vector<ChatMessage> hi{{"user", "hi"}};
  const auto text_of = [&](const TestFolder& folder) {
    const auto found = ChatTemplate::load(folder.path(), Tokenizer::load(folder.path()));
    return found ? found->apply(hi, true).text : "none";
  };
  {
    const TestFolder folder;
    write_tokenizer(folder, base);
    EXPECT_EQ(text_of(folder), "none");
  }
  json config = base;
  config["chat_template"] = "{{ bos_token }}{{ messages[0].content }}{{ add_generation_prompt }}";
  {
    const TestFolder folder;
    write_tokenizer(folder, config);
    EXPECT_EQ(text_of(folder), "<s>hiTrue");
    folder.write("chat_template.jinja", "file {{ messages[0].role }}\n");  // goes before the config
    EXPECT_EQ(text_of(folder), "file user");
    folder.write("additional_chat_templates/tool_use.jinja", "tools");
    const auto found = ChatTemplate::load(folder.path(), Tokenizer::load(folder.path()));
    EXPECT_EQ(found->apply(ordered_json::array(), true, {{"tools", {1}}}).text, "tools");
    EXPECT_EQ(found->names(), (std::vector<std::string>{"default", "tool_use"}));
  }
  config["chat_template"] = {{{"name", "tool_use"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}};
  {
    const TestFolder folder;
    write_tokenizer(folder, config);
    const auto found = ChatTemplate::load(folder.path(), Tokenizer::load(folder.path()));
    EXPECT_EQ(found->apply(hi, true).text, "D");
    EXPECT_EQ(found->apply(ordered_json::array(), true, {{"tools", {1}}}).text, "T");
    EXPECT_EQ(found->source("default"), "D");
    EXPECT_THROW(found->source("other"), Error);
  }
  config["chat_template"] = "{% if %}";
  {
    const TestFolder folder;
    write_tokenizer(folder, config);
    EXPECT_THAT([&] { text_of(folder); },
                ThrowsMessage<Error>(HasSubstr("tokenizer_config.json: chat_template line 1")));
  }
  config["chat_template"] = 5;
  {
    const TestFolder folder;
    write_tokenizer(folder, config);
    EXPECT_THAT([&] { text_of(folder); }, ThrowsMessage<Error>(HasSubstr("expected a string or a list")));
  }
}

TEST(ChatTemplate, BosIsWrittenOnce) {
  const ChatTemplate chat("{{ bos_token }}{{ messages[0].content }}", "T", tokenizer());
  const auto rendered = chat.apply(std::vector<ChatMessage>{{"user", "the people"}}, false);
  const auto ids = tokenizer().encode(rendered.text, false);
  EXPECT_EQ(ids[0], tokenizer().bos_id());
  EXPECT_NE(ids[1], tokenizer().bos_id());
  EXPECT_EQ(ids, tokenizer().encode("the people", true));
}

TEST(ChatTemplate, KeysKeepTheirOrderAndTextIsRepaired) {
  const auto messages = ordered_json::parse(R"([{"z": 1, "a": {"y": [], "b": null}}])");
  EXPECT_EQ(ChatTemplate("{{ messages[0]|tojson }}", "T", tokenizer()).apply(messages, false, nullptr).text,
            R"({"z": 1, "a": {"y": [], "b": null}})");
  const ChatTemplate chat("{{ messages[0].content }}", "T", tokenizer());
  EXPECT_EQ(chat.apply(std::vector<ChatMessage>{{"user", "a\xff"}}, false).text, "a\xef\xbf\xbd");
}

}  // namespace
}  // namespace medley
