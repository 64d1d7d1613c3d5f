// Lists of what a kept answer of OpenAI's responses API was asked.

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/http/answers/answer_parts.h"
#include "daemon/http/answers/page.h"

namespace hearth::http {
namespace {

constexpr size_t kMaxLimit = 100;
/// What the front door reads of a request has passed narrower bounds.
constexpr ipc::JsonLimits kKeptLimits{
    .max_bytes = SIZE_MAX, .max_depth = 64, .max_object_keys = SIZE_MAX, .last_key_applies = true};

std::string_view id_prefix(std::string_view type) {
  if (type == "function_call") return "fc";
  if (type == "function_call_output") return "fco";
  return type == "reasoning" ? "rs" : "msg";
}

std::string id_of_item(const Json& item) {
  const auto id = item.find("id");
  return id != item.end() && id->is_string() ? id->get<std::string>() : "";
}

/// Adds what this API's lists have and requests may leave out.
void complete(std::string_view response_id, size_t index, Json& item) {
  if (!item.is_object()) return;
  std::string type = "message";
  if (const auto found = item.find("type"); found != item.end() && found->is_string()) {
    type = found->get<std::string>();
  }
  item["type"] = type;
  if (id_of_item(item).empty()) {
    const size_t tail = std::min(response_id.size(), response_id.find('_') + 1);
    item["id"] = fmt::format("{}_{}_{}", id_prefix(type), response_id.substr(tail), index);
  }
  if (type != "message") return;
  if (!item.contains("status")) item["status"] = "completed";
  Json& content = item["content"];
  if (!content.is_string()) return;
  const bool answered = item.contains("role") && item["role"] == "assistant";
  Json part = {{"type", answered ? "output_text" : "input_text"}};
  part["text"] = std::move(content);
  if (answered) part["annotations"] = Json::array();
  content = Json::array();
  content.push_back(std::move(part));
}

}  // namespace

Result<ItemPage> parse_item_page(std::string_view query, bool lists) {
  if (lists) {
    // Items contain all there is; a list of what to include changes nothing.
    return parse_page(query, kMaxLimit, [](std::string_view name, std::string_view) {
      return name.starts_with("include");
    });
  }
  return parse_page(query, 0, [](std::string_view name, std::string_view value) {
    return name.starts_with("include") || (name == "stream" && value == "false");
  });
}

Result<std::string> input_items_body(std::string kept, std::string_view response_id,
                                     const ItemPage& page) {
  auto parsed = ipc::parse_json_object(kept, kKeptLimits);
  std::string().swap(kept);
  if (!parsed) return parsed.take_error();
  ipc::LargeJson object(std::move(parsed).value());
  Json& items = object["items"];
  for (size_t i = 0; i < items.size(); ++i) complete(response_id, i, items[i]);
  if (!page.ascending) std::reverse(items.begin(), items.end());
  size_t first = 0;
  if (!page.after.empty()) {
    while (first < items.size() && id_of_item(items[first]) != page.after) ++first;
    if (first++ == items.size()) {
      return Error::invalid("after: no item has this id", "after");
    }
  }
  const size_t end = std::min(items.size(), first + page.limit);
  Json data = Json::array();
  for (size_t i = first; i < end; ++i) data.push_back(std::move(items[i]));
  const auto id_at = [&data](bool last) -> Json {
    if (data.empty()) return nullptr;
    return id_of_item(last ? data.back() : data.front());
  };
  Json out = {{"object", "list"},
              {"first_id", id_at(false)},
              {"last_id", id_at(true)},
              {"has_more", end < items.size()}};
  out["data"] = std::move(data);
  return ipc::dump_json(out);
}

std::string removed_response_body(std::string_view response_id) {
  return ipc::dump_json({{"id", response_id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace hearth::http
