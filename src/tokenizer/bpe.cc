#include "tokenizer/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/hash.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/unicode.h"

namespace medley {
namespace {

constexpr std::string_view metaspace = "\xe2\x96\x81";  // U+2581

using Views = std::pair<std::string_view, std::string_view>;

Views merge_pair(const nlohmann::json& merge, size_t index, const std::string& where) {
  const auto view = [](const nlohmann::json& text) { return std::string_view(text.get_ref<const std::string&>()); };
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {view(merge[0]), view(merge[1])};
  if (merge.is_string()) {
    const std::string_view text = view(merge);
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  fail("{}: merge {} is {}, neither \"left right\" nor [left, right]", where, index, merge.dump());
}

}  // namespace

BpeModel::BpeModel(JsonFields& fields, bool allow_byte_words) {
  const std::string& where = fields.where();
  if (fields.has("dropout") && fields.any("dropout") != 0.0)
    fields.refuse("dropout", "asks for merges left out at random, which is for training only; set it to null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!fields.text(key, "").empty()) fields.refuse(key, "is not supported unless empty");
  fields.ignore({"dropout"});
  ignore_merges_ = fields.flag("ignore_merges", false);
  fuse_unk_ = fields.flag("fuse_unk", false);
  read_vocabulary(fields.object("vocab"), where);
  read_merges(fields.list("merges"), where);

  const std::string unk = fields.text("unk_token", "");
  if (!unk.empty()) {
    unk_ = vocabulary_.find(unk);
    if (!unk_) fields.refuse("unk_token", fmt::format("is \"{}\", which is not in the vocabulary", unk));
  }
  byte_fallback_ = fields.flag("byte_fallback", false);
  prepare(allow_byte_words);
}

BpeModel::BpeModel(BpeTables tables, bool allow_byte_words)
    : merges_(std::move(tables.merges)),
      ignore_merges_(tables.ignore_merges),
      fuse_unk_(tables.fuse_unk),
      unk_(tables.unk),
      byte_fallback_(tables.byte_fallback) {
  vocabulary_ = std::move(tables.vocabulary);
  prepare(allow_byte_words);
}

void BpeModel::prepare(bool allow_byte_words) {
  for (size_t byte = 0; byte < 256; ++byte)
    fallback_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  if (allow_byte_words) take_bytes();
  if (byte_words_) return;
  find_characters();
  find_safe_cuts();
}

void BpeModel::find_characters() {
  character_ids_.assign(0x10000, -1);
  for (int32_t id = 0; id < vocabulary_.end_id(); ++id) {
    const std::string_view token = vocabulary_.token(id).value_or("");
    if (token.empty()) continue;
    const unicode::Char c = unicode::next(token);
    if (c.valid && c.bytes == token.size() && c.code < character_ids_.size()) character_ids_[c.code] = id;
  }
}

int32_t BpeModel::id_of_character(std::string_view c) const {
  const auto byte = [&](size_t i) { return uint32_t(static_cast<unsigned char>(c[i])); };
  switch (c.size()) {
    case 1: return character_ids_[byte(0)];
    case 2: return character_ids_[(byte(0) & 0x1f) << 6 | (byte(1) & 0x3f)];
    case 3: return character_ids_[(byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f)];
    default: return vocabulary_.find(c).value_or(-1);
  }
}

void BpeModel::read_vocabulary(const nlohmann::json& vocab, const std::string& where) {
  vocabulary_.reserve(vocab.size());
  const std::string member = where + ".vocab";
  for (const auto& [token, id] : vocab.get_ref<const nlohmann::json::object_t&>()) {
    if (!id.is_number_integer()) fail("{}: the id of \"{}\" is {}, not an integer", where, token, id.dump());
    vocabulary_.add(token, id.get<int64_t>(), member);
  }
}

void BpeModel::read_merges(const nlohmann::json& merges, const std::string& where) {
  merges_ = MergeTable(merges.size());
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = merge_pair(merges[i], i, where);
    const auto id = [&](std::string_view token) {
      const auto found = vocabulary_.find(token);
      if (!found)
        fail("{}: merge {} (\"{}\" + \"{}\") needs \"{}\", which is not in the vocabulary", where, i, left, right,
             token);
      return *found;
    };
    (joined = left) += right;
    merges_.set(id(left), id(right), {uint32_t(i), id(joined)});
  }
}

// Keys the model by raw bytes, which saves spelling each word in the byte alphabet. Only when every byte has a token.
void BpeModel::take_bytes() {
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = char(byte);
    const auto id = vocabulary_.find(byte_level::encoded({&c, 1}));
    if (!id) return;
    byte_ids_[byte] = *id;
  }
  byte_words_ = true;
  if (!ignore_merges_) return;
  byte_tokens_.reserve(vocabulary_.size());
  for (int32_t id = 0; id < vocabulary_.end_id(); ++id)
    if (const auto token = vocabulary_.token(id))
      if (const auto bytes = byte_level::decoded(*token)) byte_tokens_.add(*bytes, id, "vocab");
}

void BpeModel::find_safe_cuts() {
  // A character without a token must be something by itself: not dropped, so that its neighbours meet, nor one unknown
  // stretch with the next.
  const auto missing = [](int32_t id) { return id < 0; };
  const bool some_unknown = !byte_fallback_ || std::any_of(fallback_.begin(), fallback_.end(), missing);
  if (ignore_merges_ || (some_unknown && (fuse_unk_ || !unk_))) return;
  const auto stands_for_other_text = [&](std::string_view token) {
    const auto has = [&](std::string_view part) { return token != part && token.find(part) != std::string_view::npos; };
    if (unk_ && has(vocabulary_.token(*unk_).value_or(""))) return true;
    return token.find("<0x") != std::string_view::npos &&
           std::any_of(fallback_.begin(), fallback_.end(),
                       [&](int32_t id) { return id >= 0 && has(*vocabulary_.token(id)); });
  };
  std::vector<bool> joined(character_classes * character_classes);
  for (int32_t id = 0; id < vocabulary_.end_id(); ++id) {
    std::string_view token = vocabulary_.token(id).value_or("");
    if (stands_for_other_text(token)) return;
    for (size_t before = character_classes; !token.empty();) {
      const std::string_view c = token.substr(0, std::min<size_t>(unicode::length_of(token[0]), token.size()));
      token.remove_prefix(c.size());
      const size_t here = class_of(c);
      if (before < character_classes) joined[before * character_classes + here] = true;
      before = here;
    }
  }
  joined_ = std::move(joined);
}

size_t BpeModel::class_of(std::string_view c) {
  constexpr size_t ascii = 128, of_metaspace = ascii, others = ascii + 1;
  if (c.size() == 1) return static_cast<unsigned char>(c[0]) & 0x7f;
  if (c == metaspace) return of_metaspace;
  size_t code = 0;
  for (const char byte : c) code = code << 6 | (static_cast<unsigned char>(byte) & 0x3f);
  return others + code % (character_classes - others);
}

std::optional<int32_t> BpeModel::whole_word(std::string_view word) const {
  return byte_words_ ? byte_tokens_.find(word) : vocabulary_.find(word);
}

void BpeModel::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (joined_.empty() || word.empty()) return encode_part(word, scratch, out);
  size_t begin = 0, before = class_of(word.substr(0, unicode::length_of(word[0])));
  for (size_t at = unicode::length_of(word[0]), size = 0; at < word.size(); at += size) {
    size = unicode::length_of(word[at]);
    const size_t here = class_of(word.substr(at, size));
    if (!joined_[before * character_classes + here]) {
      encode_part(word.substr(begin, at - begin), scratch, out);
      begin = at;
    }
    before = here;
  }
  encode_part(word.substr(begin), scratch, out);
}

void BpeModel::encode_part(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (byte_words_ && word.size() == 1) return out.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
  const bool cached = word.size() <= WordCache::longest_word;
  const uint64_t hash = cached ? hash_bytes(word) : 0;
  if (cached) {
    const auto known = scratch.words.find(word, hash);
    if (!known.empty()) return void(out.insert(out.end(), known.begin(), known.end()));
  }
  auto& ids = scratch.ids;
  ids.clear();
  const auto whole = ignore_merges_ ? whole_word(word) : std::nullopt;
  if (whole) {
    ids.push_back(*whole);
  } else {
    symbols_of(word, ids);
    // A scan of all pairs for each merge wins against queues up to about this many symbols.
    ids.size() <= 48 ? merge_short(ids) : scratch.long_merge.run(merges_, ids);
  }
  if (cached) scratch.words.insert(word, hash, ids);
  out.insert(out.end(), ids.begin(), ids.end());
}

void BpeModel::symbols_of(std::string_view word, std::vector<int32_t>& out) const {
  if (byte_words_) out.reserve(word.size());
  if (byte_words_) {
    for (const char c : word) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  bool after_unk = false;
  while (!word.empty()) {
    const std::string_view c = word.substr(0, unicode::length_of(word[0]));
    word.remove_prefix(c.size());
    if (const int32_t id = id_of_character(c); id >= 0) {
      out.push_back(id);
      after_unk = false;
      continue;
    }
    const auto has_token = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)] >= 0; };
    if (byte_fallback_ && std::all_of(c.begin(), c.end(), has_token)) {
      for (const char byte : c) out.push_back(fallback_[static_cast<unsigned char>(byte)]);
      after_unk = false;
    } else if (unk_) {
      if (!(fuse_unk_ && after_unk)) out.push_back(*unk_);
      after_unk = true;
    }  // without an unk_token the character is dropped, as the tokenizers package does
  }
}

void BpeModel::merge_short(std::vector<int32_t>& ids) const {
  std::array<MergeTable::Merge, 48> pairs;  // pairs[i] merges ids[i] and ids[i + 1]
  size_t n = ids.size();
  MEDLEY_CHECK(n <= pairs.size());
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = merges_.find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == MergeTable::no_rank) break;
    ids[best] = pairs[best].merged;
    std::copy(ids.begin() + ptrdiff_t(best) + 2, ids.begin() + ptrdiff_t(n), ids.begin() + ptrdiff_t(best) + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + n - 1, pairs.begin() + best);
    --n;
    if (best > 0) pairs[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = merges_.find(ids[best], ids[best + 1]);
  }
  ids.resize(n);
}

}  // namespace medley
