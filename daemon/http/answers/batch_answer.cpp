// Bodies about files and batches, in the format of OpenAI's API.

#include <fmt/core.h>

#include <utility>

#include "daemon/http/answers/page.h"
#include "daemon/http/batch.h"
#include "ipc/wire/json.h"

namespace hearth::http {
namespace {

using ipc::Json;

constexpr size_t kMaxListed = 10'000;

Json id_or_null(std::string_view id) { return id.empty() ? Json() : Json(id); }
Json time_or_null(int64_t at_s) { return at_s == 0 ? Json() : Json(at_s); }

/// When a batch came into `status`, if it is there.
Json ended(const Batch& batch, std::string_view status) {
  return time_or_null(batch.status == status ? batch.ended_s : 0);
}

}  // namespace

size_t bytes_of(const BatchQuery& query) {
  if (const auto* upload = std::get_if<UploadFile>(&query)) return upload->body.size();
  if (const auto* create = std::get_if<CreateBatch>(&query)) return create->metadata.size();
  return 0;
}

Result<ItemPage> parse_list_page(std::string_view query, std::string* purpose) {
  return parse_page(query, kMaxListed, [purpose](std::string_view name, std::string_view value) {
    if (name == "purpose" && purpose != nullptr) {
      *purpose = value;
      return true;
    }
    return name == "api-version";
  });
}

std::string file_body(const StoredFile& file) {
  return ipc::dump_json({{"id", file.id},
                         {"object", "file"},
                         {"bytes", file.bytes},
                         {"created_at", file.created_s},
                         {"filename", file.name},
                         {"purpose", file.purpose},
                         {"status", "processed"}});
}

std::string removed_file_body(std::string_view id) {
  return ipc::dump_json({{"id", id}, {"object", "file"}, {"deleted", true}});
}

std::string batch_body(const Batch& batch) {
  Json errors;
  if (!batch.problem.empty()) {
    errors = {{"object", "list"},
              {"data", Json::array({{{"code", "invalid_input_file"},
                                     {"message", batch.problem},
                                     {"param", nullptr},
                                     {"line", nullptr}}})}};
  }
  Json body = {{"id", batch.id},
               {"object", "batch"},
               {"endpoint", batch.endpoint},
               {"errors", errors},
               {"input_file_id", batch.input_file_id},
               {"completion_window", "24h"},
               {"status", batch.status},
               {"output_file_id", id_or_null(batch.output_file_id)},
               {"error_file_id", id_or_null(batch.error_file_id)},
               {"created_at", batch.created_s},
               {"in_progress_at", time_or_null(batch.started_s)},
               {"expires_at", batch.expires_s},
               {"finalizing_at", ended(batch, "completed")},
               {"completed_at", ended(batch, "completed")},
               {"failed_at", ended(batch, "failed")},
               {"expired_at", ended(batch, "expired")},
               {"cancelling_at", time_or_null(batch.cancelling_s)},
               {"cancelled_at", ended(batch, "cancelled")}};
  body["request_counts"] = {
      {"total", batch.total}, {"completed", batch.completed}, {"failed", batch.failed}};
  std::string out = ipc::dump_json(body);
  out.back() = ',';
  return out + "\"metadata\":" + batch.metadata + "}";
}

std::string list_body(const std::vector<std::string>& bodies, std::string_view first_id,
                      std::string_view last_id, bool has_more) {
  std::string out = R"({"object":"list","data":[)";
  for (const std::string& body : bodies) {
    if (out.back() != '[') out += ',';
    out += body;
  }
  Json ends = {
      {"first_id", id_or_null(first_id)}, {"last_id", id_or_null(last_id)}, {"has_more", has_more}};
  return out + "]," + ipc::dump_json(ends).substr(1);
}

std::string result_line(const LineResult& result) {
  Json line = {{"id", result.id}, {"custom_id", id_or_null(result.custom_id)}};
  std::string out = ipc::dump_json(line);
  out.pop_back();
  if (result.status == 0) {
    Json error = {{"code", result.error_code}, {"message", result.error}};
    return out + R"(,"response":null,"error":)" + ipc::dump_json(error) + "}\n";
  }
  out += fmt::format(R"(,"response":{{"status_code":{},"request_id":)", result.status);
  ipc::append_text(result.request_id, &out);
  return out + ",\"body\":" + result.body + "},\"error\":null}\n";
}

}  // namespace hearth::http
