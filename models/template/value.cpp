#include "models/template/value.h"

#include <charconv>
#include <cmath>

#include "kernels/base/sizes.h"

namespace hearth::models::jinja {
namespace {

/// Dictionaries with at least this many entries use a hash table.
constexpr size_t kIndexed = 12;

}  // namespace

Dict::Key Dict::key_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kString: return {Kind::kString, 0, value.text()};
    case Kind::kBool:
    case Kind::kInt: return {Kind::kInt, value.as_int(), {}};
    case Kind::kFloat: {
      const double number = value.as_float();
      // 1.0 and 1 are the same key.
      if (std::trunc(number) == number && std::abs(number) < 9e15) {
        return {Kind::kInt, static_cast<int64_t>(number), {}};
      }
      int64_t bits = 0;
      static_assert(sizeof bits == sizeof number);
      __builtin_memcpy(&bits, &number, sizeof bits);
      return {Kind::kFloat, bits, {}};
    }
    default: return {value.kind(), 0, {}};
  }
}

size_t Dict::locate(const Value& key) const {
  const Key wanted = key_of(key);
  if (index_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (key_of(entries_[i].first) == wanted) return i;
    }
    return entries_.size();
  }
  const auto found = index_.find(wanted);
  return found == index_.end() ? entries_.size() : found->second;
}

const Value* Dict::find(const Value& key) const {
  const size_t at = locate(key);
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

void Dict::set(const Value& key, const Value& value) {
  if (const size_t at = locate(key); at < entries_.size()) {
    entries_[at].second = value;
    return;
  }
  entries_.emplace_back(key, value);
  if (!index_.empty()) {
    index_.emplace(key_of(key), entries_.size() - 1);
  } else {
    make_index();
  }
}

void Dict::make_index() {
  index_.clear();
  if (entries_.size() < kIndexed) return;
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(key_of(entries_[i].first), i);
}

bool Dict::erase(const Value& key) {
  const size_t at = locate(key);
  if (at == entries_.size()) return false;
  entries_.erase(entries_.begin() + at);
  make_index();
  return true;
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "undefined";
    case Kind::kNone: return "none";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "namespace";
    case Kind::kCallable: return "function";
  }
  return "value";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_float() != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple: return !value.list().items.empty();
    case Kind::kDict: return value.dict().size() != 0;
    case Kind::kNamespace:
    case Kind::kCallable: return true;
  }
  return true;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that parse to the same value, as d.ddde+XX. Python omits the exponent from
  // 1e-4 to 1e16.
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view all(buffer, end.ptr - buffer);
  const bool negative = all.front() == '-';
  const size_t e = all.find('e');
  std::string digits;
  for (const char c : all.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  int exponent = 0;
  std::string_view power = all.substr(e + 1);
  if (power.front() == '+') power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string out = negative ? "-" : "";
  const int count = size32(digits);
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const int size = std::abs(exponent);
    if (size < 10) out += "0";
    return out + std::to_string(size);
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (exponent + 1 >= count) {
    return out + digits + std::string(exponent + 1 - count, '0') + ".0";
  }
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

}  // namespace hearth::models::jinja
