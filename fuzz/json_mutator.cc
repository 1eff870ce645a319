// Mutations that keep JSON whole: flipping bytes seldom changes the one number that a parser does not expect. Linked to
// the fuzzers whose inputs are JSON; what follows a zero byte stays as it is.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using nlohmann::json;
using Random = std::minstd_rand;

void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (value.is_structured())
    for (json& item : value) collect(item, all);
}

json unexpected(Random& random) {
  static const json values[] = {0,
                                1,
                                -1,
                                2,
                                3,
                                7,
                                64,
                                1 << 20,
                                int64_t(1) << 30,
                                INT64_MAX,
                                0.5,
                                1e300,
                                -1e-9,
                                1e-40,
                                false,
                                true,
                                nullptr,
                                "",
                                "a",
                                "\xf0\x9f\x98\x80",
                                json::array(),
                                json::object(),
                                json::array({1, 2}),
                                json::array({"a", "b"})};
  return values[random() % std::size(values)];
}

void mutate(json& root, Random& random) {
  std::vector<json*> all;
  collect(root, all);
  json& chosen = *all[random() % all.size()];
  switch (random() % 6) {
    case 0: chosen = unexpected(random); break;
    case 1: chosen = json(*all[random() % all.size()]); break;  // a part of the document in another place
    case 2:
      if (chosen.is_number_integer()) {
        chosen = chosen.get<int64_t>() / 2 + int64_t(random() % 5) - 2;
      } else if (chosen.is_boolean()) {
        chosen = !chosen.get<bool>();
      } else {
        chosen = unexpected(random);
      }
      break;
    case 3:
      if (chosen.is_structured() && !chosen.empty())
        chosen.erase(std::next(chosen.begin(), long(random() % chosen.size())));
      break;
    case 4:
      if (chosen.is_array() && !chosen.empty()) {
        chosen.push_back(json(chosen[random() % chosen.size()]));
      } else if (chosen.is_string()) {
        uint8_t bytes[64];
        std::string& text = chosen.get_ref<std::string&>();
        const size_t length = std::min(text.size(), sizeof bytes / 2);
        std::memcpy(bytes, text.data(), length);
        text.assign(reinterpret_cast<char*>(bytes), LLVMFuzzerMutate(bytes, length, sizeof bytes));
      }
      break;
    default:
      if (chosen.is_number_integer()) {
        constexpr int64_t sizes[] = {0, 1, 2, 3, 5, 8, 17, 128, 4096, 262144};
        chosen = sizes[random() % std::size(sizes)];
      } else if (chosen.is_object() && !chosen.empty()) {
        json* const other = all[random() % all.size()];
        if (other->is_object() && !other->empty() && other != &chosen) {
          const auto from = std::next(other->begin(), long(random() % other->size()));
          chosen[from.key()] = json(from.value());
        }
      }
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  Random random(seed);
  const std::string_view input(reinterpret_cast<char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  json root = json::parse(input.substr(0, end), nullptr, false);
  if (root.is_discarded() || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (unsigned i = random() % 3 + 1; i > 0; --i) mutate(root, random);
  std::string made = root.dump(-1, ' ', false, json::error_handler_t::replace);
  made += input.substr(end);
  if (made.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
