// medley tokenize: text to token ids and back.
#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "models/model_source.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace medley::cli {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::ordered_json;  // templates show objects in the order of their keys

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;
  bool show = false;
  bool no_special = false;
  bool lines = false;
};

Json decode(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder stream(tokenizer, true);
  auto pieces = Json::array();
  for (const int32_t id : ids) pieces.push_back(stream.push(id));
  pieces.push_back(stream.finish());
  return {{"text", tokenizer.decode(ids, true)}, {"pieces", pieces}};
}

// A conversation as the chat template writes it, the model's own or the line's.
Json render(const ModelSource& model, const Tokenizer& tokenizer, const Json& line) {
  std::optional<ChatTemplate> chat;
  try {
    if (line.contains("template"))
      chat.emplace(line["template"].get<std::string>(), "template", tokenizer);
    else
      chat = model.chat_template(tokenizer);
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
  if (!chat) return {{"error", "the model has no chat template"}};
  if (line.contains("now")) chat->set_clock([now = line["now"].get<int64_t>()] { return now; });
  const ChatTemplate::Result result =
      chat->apply(line["messages"], line.value("add_generation_prompt", true), line.value("variables", Json()));
  if (!result.ok) return {{"error", result.error}};
  return {{"text", result.text}};
}

// What a line of --lines asks for; throws nlohmann's exceptions for what it is not.
Json answer(const TokenizeOptions& options, const ModelSource& model, const Tokenizer& tokenizer, const Json& line) {
  const bool add_special = !options.no_special;
  if (line.is_string()) return tokenizer.encode(line.get_ref<const std::string&>(), add_special);
  if (line.contains("messages")) return render(model, tokenizer, line);
  if (line.is_object()) {
    std::string bytes;
    for (const auto& byte : line.at("bytes")) {
      const auto value = byte.get<int64_t>();
      if (value < 0 || value > 255) fail("a byte is {}, must be 0 to 255", value);
      bytes += char(value);
    }
    return tokenizer.encode(bytes, add_special);
  }
  return decode(tokenizer, line.get<Ids>());
}

int tokenize_lines(const TokenizeOptions& options, const ModelSource& model, const Tokenizer& tokenizer) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    try {
      std::cout << answer(options, model, tokenizer, Json::parse(line)).dump() << '\n';
    } catch (const std::exception& error) {
      fail("stdin, line {}: want a JSON string, {{\"bytes\": [...]}}, {{\"messages\": [...]}} or a list of ids: {}",
           number, error.what());
    }
  }
  return done;
}

int tokenize(const TokenizeOptions& options) {
  if (options.lines == options.text.has_value()) throw UsageError("give either TEXT or --lines");
  if (options.lines && options.show) throw UsageError("--show does not go with --lines");
  const std::unique_ptr<ModelSource> model = open_model(options.model);
  const std::optional<Tokenizer> found = model->tokenizer();
  if (!found) fail("{} has no {}; it is needed to turn text into tokens", model->name(), model->tokenizer_place());
  const Tokenizer& tokenizer = *found;
  if (options.lines) return tokenize_lines(options, *model, tokenizer);
  const std::string text =
      *options.text == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : *options.text;
  const Ids ids = tokenizer.encode(text, !options.no_special);
  if (options.show) {
    for (const int32_t id : ids) std::cout << fmt::format("{}\t{}\n", id, tokenizer.token(id).value_or("(no token)"));
    return done;
  }
  std::cout << fmt::format("{}\n", fmt::join(ids, ","));
  return done;
}

constexpr const char* examples =
    R"text(With --lines, each line of stdin is JSON and gets a line of JSON: a string its ids; {"bytes": [...]}, which need not be
UTF-8, likewise; a list of ids their text and the pieces in which it would stream, special tokens left out; {"messages": [...]} what the
chat template makes of them (with "add_generation_prompt", and in "variables" tools, documents and the like; "template"
takes another template than the model's, "now" another time).

Examples:
  medley tokenize models/demo-jamba "Once upon a time"
  medley tokenize models/demo-jamba "Once upon a time" --show
  medley tokenize models/demo-jamba - < README.md
  echo '"Once upon a time"' | medley tokenize models/demo-jamba --lines
  medley run MODEL --ids $(medley tokenize MODEL "Once upon a time"))text";

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text, comma separated");
  auto options = std::make_shared<TokenizeOptions>();
  add_model_option(*command, options->model);
  command->add_option("TEXT", options->text, "The text; \"-\": stdin, every byte of it")->type_name("");
  command->add_flag("--lines", options->lines, "Many texts, or ids to decode: JSON lines from stdin, to stdout");
  command->add_flag("--show", options->show, "One line for each token: id, tab, the token as the vocabulary spells it");
  command->add_flag("--no-special", options->no_special,
                    "Without the special tokens that the tokenizer adds (BOS, EOS)");
  command->footer(examples);
  command->callback([options, &action] { action = [options] { return tokenize(*options); }; });
}

}  // namespace medley::cli
