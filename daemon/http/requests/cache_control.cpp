// Parses the parameters by which these APIs ask to keep a prompt, or its beginning, in the cache.

#include <charconv>

#include "daemon/http/requests/request_members.h"

namespace hearth::http {
namespace {

/// Seconds of "5m" or "1h".
std::optional<int64_t> seconds_of(std::string_view text) {
  constexpr int64_t kMost = 30 * 24 * 3600;
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end + 1 != text.data() + text.size() || count < 1 || count > kMost) {
    return std::nullopt;
  }
  int64_t unit = 0;
  switch (*end) {
    case 's': unit = 1; break;
    case 'm': unit = 60; break;
    case 'h': unit = 3600; break;
    case 'd': unit = 86'400; break;
    default: return std::nullopt;
  }
  return count * unit <= kMost ? std::optional(count * unit) : std::nullopt;
}

}  // namespace

int64_t take_cache_control(Members& in) {
  Json* control = in.take("cache_control");
  if (control == nullptr) return 0;
  if (!control->is_object()) {
    in.wrong("cache_control", *control, "an object");
    return 0;
  }
  Members inner(*control, in.path_of("cache_control") + ".");
  if (inner.text("type").value_or("") != "ephemeral") {
    inner.invalid("type", "want ephemeral");
  }
  const std::optional<int64_t> seconds = seconds_of(inner.text("ttl").value_or("5m"));
  if (!seconds) inner.invalid("ttl", "want a time such as 5m or 1h");
  if (inner.text("scope")) inner.ignore("cache_control.scope");
  inner.check_unknown();
  in.join(inner);
  return seconds.value_or(0);
}

void take_kept_prompt(Members& in, Json& request) {
  if (const int64_t keep_s = take_cache_control(in); keep_s > 0) request["cache_keep_s"] = keep_s;
}

void take_retention(Members& in, Json& request) {
  const auto retention = in.text("prompt_cache_retention");
  if (!retention || *retention == "in_memory" || *retention == "in-memory") return;
  if (*retention != "24h") {
    return in.invalid("prompt_cache_retention", "want in_memory or 24h");
  }
  constexpr int64_t kDay = 24 * 3600;
  request["cache_keep_s"] = std::max(kDay, request.value("cache_keep_s", int64_t{0}));
}

void Kept::add(int64_t for_seconds, size_t up_to) {
  if (for_seconds == 0) return;
  seconds = std::max(seconds, for_seconds);
  bytes = up_to;
}

void Kept::write_to(Json& message) const {
  if (seconds == 0) return;
  message["cache_keep_s"] = seconds;
  const auto content = message.find("content");
  if (content == message.end() || !content->is_string()) return;
  if (bytes > 0 && bytes < content->get_ref<const std::string&>().size()) {
    message["cache_keep_bytes"] = bytes;
  }
}

}  // namespace hearth::http
