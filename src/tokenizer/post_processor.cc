#include "tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/json_fields.h"

namespace medley {
namespace {

std::vector<int32_t> ids_of_special(const nlohmann::json& special_tokens, const std::string& name,
                                    const std::string& where) {
  const auto it = special_tokens.find(name);
  if (it == special_tokens.end()) fail("{}: the template uses \"{}\", which special_tokens does not list", where, name);
  JsonFields fields(*it, where + ".special_tokens[" + name + "]");
  fields.ignore({"id", "tokens"});
  std::vector<int32_t> ids;
  for (const auto& id : fields.list("ids")) {
    if (!id.is_number_integer() || id < 0 || id >= 1 << 24) fields.refuse("ids", "holds " + id.dump());
    ids.push_back(id.get<int32_t>());
  }
  fields.done();
  return ids;
}

PostProcessor from_template(JsonFields& fields) {
  PostProcessor made;
  const auto& special_tokens = fields.object("special_tokens");
  bool past_text = false;
  for (const auto& item : fields.list("single")) {
    if (!item.is_object() || item.size() != 1) fields.refuse("single", "holds " + item.dump());
    const std::string kind = item.begin().key();
    JsonFields part(*item.begin(), fields.where() + ".single");
    part.ignore({"type_id"});  // segments of sentence pairs; a language model has none
    const std::string id = part.text("id");
    part.done();
    if (kind == "Sequence") {
      if (past_text || id != "A") fields.refuse("single", "must use the text \"A\" exactly once");
      past_text = true;
    } else if (kind == "SpecialToken") {
      auto& side = past_text ? made.suffix : made.prefix;
      for (const int32_t token : ids_of_special(special_tokens, id, fields.where())) side.push_back(token);
    } else {
      fields.refuse("single", "holds a \"" + kind + "\", neither Sequence nor SpecialToken");
    }
  }
  if (!past_text) fields.refuse("single", "never uses the text \"A\"");
  return made;
}

// ["<s>", 1]
int32_t pair_id(JsonFields& fields, const char* key) {
  const auto& pair = fields.list(key);
  if (pair.size() != 2 || !pair[1].is_number_integer() || pair[1] < 0 || pair[1] >= 1 << 24)
    fields.refuse(key, "is " + pair.dump() + ", not [token, id]");
  return pair[1].get<int32_t>();
}

}  // namespace

PostProcessor PostProcessor::make(const nlohmann::json& json, const std::string& where) {
  PostProcessor made;
  if (json.is_null()) return made;
  JsonFields fields(json, where);
  const std::string type = fields.text("type");
  fields.ignore({"trim_offsets", "add_prefix_space", "use_regex"});  // change offsets into the text only
  if (type == "TemplateProcessing") {
    fields.ignore({"pair"});
    made = from_template(fields);
  } else if (type == "Sequence") {
    for (const auto& item : fields.list("processors")) {  // each wraps what the ones before it made
      const PostProcessor outer = make(item, where);
      made.prefix.insert(made.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
      made.suffix.insert(made.suffix.end(), outer.suffix.begin(), outer.suffix.end());
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    made.prefix = {pair_id(fields, "cls")};
    made.suffix = {pair_id(fields, "sep")};
  } else if (type != "ByteLevel") {
    fail(
        "{}: the post-processor \"{}\" is not supported; supported are TemplateProcessing, ByteLevel, BertProcessing, "
        "RobertaProcessing, Sequence",
        where, type);
  }
  fields.done();
  return made;
}

}  // namespace medley
