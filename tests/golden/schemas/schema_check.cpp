#include "tests/golden/schemas/schema_check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cmath>

namespace hearth::golden {
namespace {

using nlohmann::json;

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

/// Whether `pattern` occurs anywhere in the text.
bool matches(const std::string& text, const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &where, nullptr);
  if (code == nullptr) return false;
  pcre2_match_data* const data = pcre2_match_data_create_from_pattern(code, nullptr);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                                data, nullptr);
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  return found >= 0;
}

bool is_of(const json& v, const std::string& type) {
  if (type == "object") return v.is_object();
  if (type == "array") return v.is_array();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_boolean();
  if (type == "null") return v.is_null();
  if (type == "number") return v.is_number();
  return v.is_number_integer() || (v.is_number() && std::trunc(v.get<double>()) == v.get<double>());
}

bool has_format(const std::string& text, const std::string& format) {
  if (format == "date" || format == "date-time") {
    if (!matches(text, "^\\d{4}-\\d\\d-\\d\\d")) return false;
    const int year = std::stoi(text.substr(0, 4)), month = std::stoi(text.substr(5, 2));
    const int day = std::stoi(text.substr(8, 2));
    if (year < 1 || month < 1 || month > 12 || day < 1) return false;
    static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > kDays[month - 1] + (month == 2 && leap ? 1 : 0)) return false;
    if (format == "date") return text.size() == 10;
    return text.size() > 11 && text[10] == 'T' && has_format(text.substr(11), "time");
  }
  if (format == "time") {
    return matches(text,
                   "^([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?"
                   "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)$");
  }
  if (format == "uuid")
    return matches(text, "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$");
  if (format == "email") return text.find('@') != std::string::npos;
  const std::string octet = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return matches(text, "^(" + octet + "\\.){3}" + octet + "$");
}

class Judge {
 public:
  explicit Judge(const json& root) : root_(root) {}

  bool valid(const json& s, const json& v) const {
    if (s.is_boolean()) return s.get<bool>();
    if (s.contains("$ref")) {
      const std::string ref = s["$ref"];
      if (!valid(root_.at(json::json_pointer(ref.substr(1))), v)) return false;
    }
    if (s.value("nullable", false) && v.is_null()) return true;
    if (s.contains("type")) {
      const json types = s["type"].is_array() ? s["type"] : json::array({s["type"]});
      if (std::none_of(types.begin(), types.end(), [&](const json& t) { return is_of(v, t); })) {
        return false;
      }
    }
    if (s.contains("const") && s["const"] != v) return false;
    if (s.contains("enum")) {
      const json& all = s["enum"];
      if (std::find(all.begin(), all.end(), v) == all.end()) return false;
    }
    const auto count = [&](const char* word) {
      size_t n = 0;
      for (const json& part : s[word]) n += valid(part, v) ? 1 : 0;
      return n;
    };
    if (s.contains("allOf") && count("allOf") != s["allOf"].size()) return false;
    if (s.contains("anyOf") && count("anyOf") == 0) return false;
    if (s.contains("oneOf") && count("oneOf") != 1) return false;
    if (v.is_number()) return number(s, v.get<double>());
    if (v.is_string()) return string(s, v.get<std::string>());
    if (v.is_array()) return array(s, v);
    if (v.is_object()) return object(s, v);
    return true;
  }

 private:
  static bool number(const json& s, double x) {
    if (s.contains("minimum") && x < s["minimum"].get<double>()) return false;
    if (s.contains("maximum") && x > s["maximum"].get<double>()) return false;
    if (s.contains("exclusiveMinimum") && x <= s["exclusiveMinimum"].get<double>()) return false;
    return !s.contains("exclusiveMaximum") || x < s["exclusiveMaximum"].get<double>();
  }
  static bool string(const json& s, const std::string& text) {
    if (characters(text) < s.value("minLength", size_t{0})) return false;
    if (characters(text) > s.value("maxLength", SIZE_MAX)) return false;
    if (s.contains("format") && !has_format(text, s["format"])) return false;
    return !s.contains("pattern") || matches(text, s["pattern"]);
  }
  bool array(const json& s, const json& v) const {
    if (v.size() < s.value("minItems", size_t{0})) return false;
    if (v.size() > s.value("maxItems", SIZE_MAX)) return false;
    const json prefix = s.value("prefixItems", json::array());
    for (size_t i = 0; i < v.size(); ++i) {
      if (i < prefix.size() ? !valid(prefix[i], v[i])
                            : s.contains("items") && !valid(s["items"], v[i])) {
        return false;
      }
    }
    return true;
  }
  bool object(const json& s, const json& v) const {
    for (const json& name : s.value("required", json::array())) {
      if (!v.contains(name.get<std::string>())) return false;
    }
    if (v.size() < s.value("minProperties", size_t{0})) return false;
    if (v.size() > s.value("maxProperties", SIZE_MAX)) return false;
    const json named = s.value("properties", json::object());
    for (const auto& [key, value] : v.items()) {
      if (named.contains(key)
              ? !valid(named[key], value)
              : s.contains("additionalProperties") && !valid(s["additionalProperties"], value)) {
        return false;
      }
    }
    return true;
  }

  const json& root_;
};

}  // namespace

bool is_valid_against(const json& schema, const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  return !value.is_discarded() && Judge(schema).valid(schema, value);
}

}  // namespace hearth::golden
