#include "tokenizer/decoder.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/decode_stages.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_pattern.h"
#include "tokenizer/unicode.h"

namespace medley {
namespace {

using MakeStage = std::function<std::unique_ptr<DecodeStage>()>;

struct Plan {
  std::vector<MakeStage> stages;
  bool fused = false;  // the stages so far make one token of all
};

template <class Stage, class... Args>
MakeStage maker(Args... args) {
  return [=] { return std::make_unique<Stage>(args...); };
}

void add_replace(JsonFields& fields, Plan& plan) {
  const auto& pattern = fields.any("pattern");
  const std::string content = fields.text("content");
  const Regex regex = text_pattern(pattern, fields.where() + ".Replace");
  if (!plan.fused) {
    plan.stages.push_back(maker<decode::ReplaceEach>(regex, content));
  } else if (pattern.contains("String") && !pattern["String"].get_ref<const std::string&>().empty()) {
    plan.stages.push_back(maker<decode::ReplaceText>(pattern["String"].get<std::string>(), content));
  } else {
    plan.stages.push_back(maker<decode::ReplaceAtEnd>(regex, content));
  }
}

void add_strip(JsonFields& fields, Plan& plan) {
  const std::string content = fields.text("content");
  if (unicode::count(content) != 1) fields.refuse("content", "must be one character");
  const int64_t start = fields.integer("start", 0), stop = fields.integer("stop", 0);
  if (start < 0 || stop < 0) fields.refuse("start", "and stop must not be negative");
  if (plan.fused)
    plan.stages.push_back(maker<decode::StripText>(content, size_t(start), size_t(stop)));
  else
    plan.stages.push_back(maker<decode::StripEach>(content, size_t(start), size_t(stop)));
}

void add_metaspace(JsonFields& fields, Plan& plan) {
  const std::string replacement = fields.text("replacement");
  const std::string scheme = fields.text("prepend_scheme", fields.flag("add_prefix_space", true) ? "always" : "never");
  fields.ignore({"split", "str_rep"});
  if (plan.fused) fields.refuse("type", "Metaspace is not supported after ByteLevel or Fuse");
  plan.stages.push_back(maker<decode::Metaspace>(replacement, scheme != "never"));
}

void add(const nlohmann::json& json, const std::string& where, Plan& plan) {
  JsonFields fields(json, where);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    for (const auto& item : fields.list("decoders")) add(item, where, plan);
  } else if (type == "ByteLevel") {
    if (plan.fused) fields.refuse("type", "ByteLevel is not supported after ByteLevel or Fuse");
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});  // of the pre-tokenizer of the same name
    plan.stages.push_back(maker<decode::ByteLevel>());
    plan.fused = true;
  } else if (type == "ByteFallback") {
    if (plan.fused) fields.refuse("type", "ByteFallback is not supported after ByteLevel or Fuse");
    plan.stages.push_back(maker<decode::ByteFallback>());
  } else if (type == "Fuse") {
    plan.fused = true;  // what follows sees parts of one token; nothing is to be done to them
  } else if (type == "Replace") {
    add_replace(fields, plan);
  } else if (type == "Strip") {
    add_strip(fields, plan);
  } else if (type == "Metaspace") {
    add_metaspace(fields, plan);
  } else {
    fail(
        "{}: the decoder \"{}\" is not supported; supported are ByteLevel, ByteFallback, Fuse, Replace, Strip, "
        "Metaspace, Sequence",
        where, type);
  }
  fields.done();
}

}  // namespace

Decoder Decoder::make(const nlohmann::json& json, const std::string& where) {
  Plan plan;
  if (json.is_null())
    plan.stages.push_back(maker<decode::JoinWithSpaces>());
  else
    add(json, where, plan);
  Decoder made;
  made.stages_ = std::move(plan.stages);
  return made;
}

Decoder Decoder::sentencepiece(size_t leading_spaces) {
  const std::string metaspace = "\xe2\x96\x81";
  Decoder made;
  made.stages_.push_back(maker<decode::Metaspace>(metaspace, false));
  made.stages_.push_back(maker<decode::BytePieces>());
  if (leading_spaces > 0) made.stages_.push_back(maker<decode::StripText>(std::string(" "), leading_spaces, size_t(0)));
  return made;
}

DecodeRun Decoder::start() const {
  std::vector<std::unique_ptr<DecodeStage>> stages;
  for (const auto& make_stage : stages_) stages.push_back(make_stage());
  return DecodeRun(std::move(stages));
}

void DecodeRun::push_from(size_t stage, std::string_view text, std::string& out) {
  if (stage == stages_.size()) {
    out += text;
    return;
  }
  stages_[stage]->push(text, [&](std::string_view part) { push_from(stage + 1, part, out); });
}

void DecodeRun::finish(std::string& out) {
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    stages_[stage]->finish([&](std::string_view part) { push_from(stage + 1, part, out); });
}

}  // namespace medley
