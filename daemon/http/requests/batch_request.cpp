// Requests for batches, and the lines of their input files.

#include <array>

#include "daemon/http/batch.h"
#include "daemon/http/requests/request_members.h"

namespace hearth::http {
namespace {

/// What a batch may ask for: each answers with one JSON body.
constexpr std::array<std::string_view, 6> kEndpoints = {"/v1/chat/completions", "/v1/completions",
                                                        "/v1/embeddings",       "/v1/messages",
                                                        "/v1/rerank",           "/v1/responses"};
constexpr size_t kMaxCustomIdBytes = 512;
constexpr size_t kMaxMetadataBytes = 16 << 10;

void take_metadata(Members& in, CreateBatch* batch) {
  const Json* metadata = in.take("metadata");
  if (metadata == nullptr) return;
  if (!metadata->is_object()) return in.wrong("metadata", *metadata, "an object");
  batch->metadata = ipc::dump_json(*metadata);
  if (batch->metadata.size() > kMaxMetadataBytes) {
    in.too_large("metadata", fmt::format("has more than {} bytes", kMaxMetadataBytes));
  }
}

}  // namespace

Result<CreateBatch> parse_create_batch(std::string body) {
  HEARTH_ASSIGN_OR_RETURN(ipc::LargeJson object, parse_body_text(std::move(body)));
  Members in(object);
  CreateBatch batch;
  batch.input_file_id = in.text("input_file_id").value_or("");
  if (batch.input_file_id.empty()) in.invalid("input_file_id", "absent, want a file's id");
  batch.endpoint = in.text("endpoint").value_or("");
  if (std::ranges::find(kEndpoints, batch.endpoint) == kEndpoints.end()) {
    in.unsupported("endpoint", fmt::format("want one of {}", fmt::join(kEndpoints, ", ")));
  }
  if (in.text("completion_window").value_or("24h") != "24h") {
    in.unsupported("completion_window", "want 24h");
  }
  take_metadata(in, &batch);
  HEARTH_TRY(in.finish());
  return batch;
}

Result<BatchLine> parse_batch_line(std::string_view line, std::string_view endpoint,
                                   std::string* custom_id) {
  auto parsed = ipc::parse_json_object(line, kBodyLimits);
  if (!parsed) return parsed.take_error();
  ipc::LargeJson object(std::move(parsed).value());
  Members in(object);
  BatchLine out;
  out.custom_id = in.text("custom_id").value_or("");
  if (out.custom_id.empty()) in.invalid("custom_id", "absent, want a text that names the request");
  if (out.custom_id.size() > kMaxCustomIdBytes) {
    in.too_large("custom_id", fmt::format("has more than {} bytes", kMaxCustomIdBytes));
  }
  if (custom_id != nullptr && !in.failed()) *custom_id = out.custom_id;
  if (in.text("method").value_or("POST") != "POST") in.unsupported("method", "want POST");
  if (const auto url = in.text("url"); url != endpoint) {
    in.invalid("url", fmt::format("want {}, as in the batch's endpoint", endpoint));
  }
  Json* const body = in.take("body");
  if (body == nullptr || !body->is_object()) {
    in.invalid("body", "want an object");
  } else if (const auto stream = body->find("stream"); stream != body->end() && *stream == true) {
    in.unsupported("body.stream", "is not supported in a batch: an answer is one line");
  }
  HEARTH_TRY(in.finish());
  out.body = ipc::dump_json(*body);
  return out;
}

}  // namespace hearth::http
