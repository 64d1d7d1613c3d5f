#include "ipc/cli/answer/run_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ipc/schema/field_table.h"
#include "ipc/wire/codec.h"

namespace hearth::cli {
namespace {

using ipc::Field;
using ipc::FieldType;

/// Whether `text` is a number as JSON writes it; the rest of the checking is the codec's.
bool is_json_number(std::string_view text) {
  const auto digits = [&text] {
    const size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(n);
    return n;
  };
  const auto take = [&text](std::string_view any_of) {
    if (text.empty() || any_of.find(text[0]) == std::string_view::npos) return false;
    text.remove_prefix(1);
    return true;
  };
  take("-");
  const bool zero = text.starts_with('0');
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (take(".") && digits() == 0) return false;
  if (take("eE")) {
    take("+-");
    if (digits() == 0) return false;
  }
  return text.empty();
}

/// Numbers stay numbers; any other text becomes a string, which the codec refuses with the field's
/// name.
std::string number_or_text(const std::string& value) {
  return is_json_number(value) ? value : ipc::json_quote(value);
}

std::string value_of(const Field& field, const std::string& text) {
  switch (field.type) {
    case FieldType::kBool: return text;
    case FieldType::kInteger:
    case FieldType::kSeed:
    case FieldType::kNumber:
    case FieldType::kIdList: return number_or_text(text);
    case FieldType::kText:
    case FieldType::kName:
    case FieldType::kChoice:
    case FieldType::kTextList:
    case FieldType::kIdLists:  // no flag sets these
    case FieldType::kObjects:
    case FieldType::kObject: return ipc::json_quote(text);
    case FieldType::kLogitBias: {
      const size_t equals = std::min(text.find('='), text.size());
      const std::string number = equals < text.size() ? text.substr(equals + 1) : "";
      return fmt::format("[{},{}]", number_or_text(text.substr(0, equals)), number_or_text(number));
    }
  }
  return "null";
}

bool is_list(FieldType type) {
  return type == FieldType::kTextList || type == FieldType::kIdList ||
         type == FieldType::kLogitBias;
}

}  // namespace

Result<ipc::GenerateRequest> request_from_flags(
    const std::string& model, const std::string& prompt,
    const std::vector<std::pair<std::string, std::string>>& fields) {
  std::map<std::string, std::vector<std::string>> values;
  for (const auto& [name, text] : fields) {
    const Field* field = ipc::find_field(ipc::Verb::kGenerate, name);
    if (field == nullptr) {
      return Error::unknown_field(fmt::format("{}: no such field", name), name);
    }
    auto& list = values[name];
    // If a plain field is given twice, its last value counts, as with any command.
    if (!is_list(field->type)) list.clear();
    list.push_back(value_of(*field, text));
  }
  std::string json = fmt::format(R"({{"verb":"generate","model":{})", ipc::json_quote(model));
  if (!prompt.empty() || !values.contains("prompt_ids")) {
    json += fmt::format(R"(,"prompt":{})", ipc::json_quote(prompt));
  }
  for (const auto& [name, list] : values) {
    const std::string joined = fmt::format("{}", fmt::join(list, ","));
    const bool as_list = is_list(ipc::find_field(ipc::Verb::kGenerate, name)->type);
    json += fmt::format(R"(,"{}":{})", name, as_list ? "[" + joined + "]" : joined);
  }
  json += "}";
  HEARTH_ASSIGN_OR_RETURN(ipc::ClientRequest request, ipc::decode_request(json));
  return std::get<ipc::GenerateRequest>(std::move(request));
}

}  // namespace hearth::cli
