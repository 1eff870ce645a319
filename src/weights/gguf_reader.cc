#include "weights/gguf_reader.h"

#include <limits>

#include "base/error.h"

namespace medley {
namespace {

// Bytes of a scalar; 0 for strings and arrays, whose bytes vary.
uint64_t size_of_scalar(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: return 0;
  }
  return 0;
}

bool is_float(GgufType type) {
  return type == GgufType::f32 || type == GgufType::f64;
}
bool is_integer(GgufType type) {
  return size_of_scalar(type) != 0 && !is_float(type) && type != GgufType::boolean;
}

template <class T>
T at(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// A scalar of any type but the floats. A u64 beyond int64 becomes negative: the caller knows.
int64_t load_integer(GgufType type, const std::byte* data) {
  switch (type) {
    case GgufType::u8:
    case GgufType::boolean: return at<uint8_t>(data);
    case GgufType::i8: return at<int8_t>(data);
    case GgufType::u16: return at<uint16_t>(data);
    case GgufType::i16: return at<int16_t>(data);
    case GgufType::u32: return at<uint32_t>(data);
    case GgufType::i32: return at<int32_t>(data);
    default: return at<int64_t>(data);
  }
}

double load_number(GgufType type, const std::byte* data) {
  if (type == GgufType::f32) return double(at<float>(data));
  if (type == GgufType::f64) return at<double>(data);
  if (type == GgufType::u64) return double(at<uint64_t>(data));
  return double(load_integer(type, data));
}

}  // namespace

std::string_view name_of(GgufType type) {
  constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
  return size_t(type) < std::size(names) ? names[size_t(type)] : "?";
}

std::string printable(std::string_view name) {
  constexpr size_t longest = 100;
  std::string text(name.substr(0, longest));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return name.size() > longest ? text + "..." : text;
}

std::span<const std::byte> GgufReader::take(uint64_t size, std::string_view what) {
  if (size > bytes_.size() - at_) {
    const std::string_view file = what.starts_with(where_) ? "" : std::string_view(where_);
    fail("{}{}{}: {} bytes at byte {} pass the end of the file of {} bytes", file, file.empty() ? "" : ": ", what, size,
         at_, bytes_.size());
  }
  const auto part = bytes_.subspan(size_t(at_), size_t(size));
  at_ += size;
  return part;
}

std::string_view GgufReader::string(std::string_view what) {
  const auto length = scalar<uint64_t>(what);
  const auto bytes = take(length, what);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t GgufReader::count(std::string_view things, uint64_t least) {
  const auto number = scalar<uint64_t>(things);
  if (number > (bytes_.size() - at_) / least)
    fail("{}: says it has {} {}, more than its {} bytes can hold", where_, number, things, bytes_.size());
  return number;
}

GgufType GgufReader::type(const std::string& key) {
  const auto number = scalar<uint32_t>(key);
  if (number > uint32_t(GgufType::f64)) fail("{}: is of the unknown type {}", key, number);
  return GgufType(number);
}

GgufValue GgufReader::value(const std::string& key) {
  return value_of(type(key), key, 0);
}

GgufValue GgufReader::value_of(GgufType type_in, const std::string& key, int nesting) {
  GgufValue value;
  value.where_ = key;
  value.type_ = type_in;
  if (const uint64_t size = size_of_scalar(type_in); size != 0) {
    value.bytes_ = take(size, key);
    return value;
  }
  if (type_in == GgufType::string) {
    const std::string_view text = string(key);
    value.bytes_ = std::as_bytes(std::span(text));
    return value;
  }
  if (nesting >= max_nesting) fail("{}: arrays lie in arrays more than {} deep", key, max_nesting);
  value.element_type_ = type(key);
  value.count_ = scalar<uint64_t>(key);
  const uint64_t size = size_of_scalar(value.element_type_);
  const uint64_t least = size != 0 ? size : value.element_type_ == GgufType::string ? 8 : 12;
  if (value.count_ > (bytes_.size() - at_) / least)
    fail("{}: says it has {} elements, more than the file of {} bytes can hold", key, value.count_, bytes_.size());
  const uint64_t begin = at_;
  if (size != 0) {
    take(value.count_ * size, key);
  } else {
    for (uint64_t i = 0; i < value.count_; ++i) {
      if (value.element_type_ == GgufType::string) {
        string(key);
      } else {
        value_of(GgufType::array, key, nesting + 1);
      }
    }
  }
  value.bytes_ = bytes_.subspan(size_t(begin), size_t(at_ - begin));
  return value;
}

void GgufValue::refuse(std::string_view wanted) const {
  if (type_ == GgufType::array) fail("{}: is an array of {}, want {}", where_, name_of(element_type_), wanted);
  fail("{}: is of type {}, want {}", where_, name_of(type_), wanted);
}

int64_t GgufValue::integer() const {
  if (!is_integer(type_)) refuse("an integer");
  const int64_t value = load_integer(type_, bytes_.data());
  if (type_ == GgufType::u64 && value < 0) fail("{}: is {}, larger than any count", where_, uint64_t(value));
  return value;
}

double GgufValue::number() const {
  if (!is_integer(type_) && !is_float(type_)) refuse("a number");
  return load_number(type_, bytes_.data());
}

bool GgufValue::boolean() const {
  if (type_ != GgufType::boolean) refuse("a boolean");
  return load_integer(type_, bytes_.data()) != 0;
}

std::string_view GgufValue::string() const {
  if (type_ != GgufType::string) refuse("a string");
  return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
}

std::vector<int64_t> GgufValue::integers() const {
  const bool fits = is_integer(element_type_) || element_type_ == GgufType::boolean;
  if (type_ != GgufType::array || !fits) refuse("an array of integers");
  const uint64_t size = size_of_scalar(element_type_);
  std::vector<int64_t> values(static_cast<size_t>(count_));
  for (uint64_t i = 0; i < count_; ++i) {
    values[size_t(i)] = load_integer(element_type_, bytes_.data() + i * size);
    if (element_type_ == GgufType::u64 && values[size_t(i)] < 0) fail("{}: element {} is too large", where_, i);
  }
  return values;
}

std::vector<double> GgufValue::numbers() const {
  if (type_ != GgufType::array || (!is_integer(element_type_) && !is_float(element_type_)))
    refuse("an array of numbers");
  const uint64_t size = size_of_scalar(element_type_);
  std::vector<double> values(static_cast<size_t>(count_));
  for (uint64_t i = 0; i < count_; ++i) values[size_t(i)] = load_number(element_type_, bytes_.data() + i * size);
  return values;
}

std::vector<std::string_view> GgufValue::strings() const {
  if (type_ != GgufType::array || element_type_ != GgufType::string) refuse("an array of strings");
  GgufReader reader(bytes_, where_);
  std::vector<std::string_view> values(static_cast<size_t>(count_));
  for (std::string_view& value : values) value = reader.string(where_);
  return values;
}

std::vector<GgufValue> GgufValue::arrays() const {
  if (type_ != GgufType::array || element_type_ != GgufType::array) refuse("an array of arrays");
  GgufReader reader(bytes_, where_);
  std::vector<GgufValue> values;
  for (uint64_t i = 0; i < count_; ++i) values.push_back(reader.value_of(GgufType::array, where_, 0));
  return values;
}

}  // namespace medley
