#pragma once
// Files and batches of OpenAI's API, as they pass between the HTTP front door and whatever keeps
// and runs them. Plain data. A batch has an input file of one request per line, and brings its
// answers in an output file and an error file.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/http/item_page.h"
#include "kernels/base/result.h"

namespace hearth::http {

struct StoredFile {
  std::string id;
  std::string name;
  std::string purpose;  ///< batch, batch_output
  int64_t created_s = 0;
  int64_t bytes = 0;
};

struct Batch {
  std::string id{};
  std::string endpoint{};  ///< of all its requests
  std::string input_file_id{};
  std::string output_file_id{};  ///< "": none yet
  std::string error_file_id{};
  std::string metadata = "null";  ///< JSON
  /// validating, in_progress, completed, failed, expired, cancelling or cancelled.
  std::string status{};
  std::string problem{};  ///< why it failed; "": it did not
  int64_t created_s = 0;
  int64_t started_s = 0;  ///< 0: not yet, as below
  int64_t cancelling_s = 0;
  int64_t ended_s = 0;
  int64_t expires_s = 0;
  int64_t total = 0;  ///< requests
  int64_t completed = 0;
  int64_t failed = 0;
};

// ---- What a user asks for
// ------------------------------------------------------------------------

/// A body of multipart/form-data with a file.
struct UploadFile {
  std::string body;
  std::string boundary;
};
struct ListFiles {
  ItemPage page;
  std::string purpose{};  ///< "": any
};
struct ShowFile {
  std::string id;
};
/// A piece of a file's content: FilePiece.
struct ReadFile {
  std::string id;
  int64_t at = 0;
};
struct RemoveFile {
  std::string id;
};
struct CreateBatch {
  std::string input_file_id;
  std::string endpoint;
  std::string metadata = "null";  ///< JSON
};
struct ListBatches {
  ItemPage page;
};
struct ShowBatch {
  std::string id;
};
struct CancelBatch {
  std::string id;
};
using BatchQuery = std::variant<UploadFile, ListFiles, ShowFile, ReadFile, RemoveFile, CreateBatch,
                                ListBatches, ShowBatch, CancelBatch>;
/// Memory that a query holds.
size_t bytes_of(const BatchQuery& query);

/// ReadFile: a piece of the content; any other: a JSON body.
struct BatchReply {
  std::string text;
  int64_t file_bytes = 0;  ///< ReadFile: of the whole content
};

/// Numbers for /metrics.
struct BatchStats {
  bool enabled = false;
  int64_t files = 0;
  int64_t bytes = 0;
  int64_t live = 0;        ///< batches that have not ended
  uint64_t lines = 0;      ///< requests of batches that were answered, since the daemon began
  size_t in_progress = 0;  ///< of them, now
};

// ---- Bodies
// --------------------------------------------------------------------------------------

/// One body of a form with a file in it.
struct Upload {
  std::string name;
  std::string purpose;
  std::string_view content;  ///< in the form's body
};
/// kProtocol if the body is not such a form; kInvalidArgument and kUnsupported name the part.
Result<Upload> parse_upload(std::string_view body, std::string_view boundary);
/// Of a header's value multipart/form-data; "": it is another type, or has no boundary.
std::string form_boundary(std::string_view content_type);

Result<CreateBatch> parse_create_batch(std::string body);
/// From the query of an address; an error names the parameter. `purpose`: null: it has none.
Result<ItemPage> parse_list_page(std::string_view query, std::string* purpose);

std::string file_body(const StoredFile& file);
std::string removed_file_body(std::string_view id);
std::string batch_body(const Batch& batch);
/// OpenAI's list of bodies.
std::string list_body(const std::vector<std::string>& bodies, std::string_view first_id,
                      std::string_view last_id, bool has_more);

/// A request of a batch.
struct BatchLine {
  std::string custom_id;
  std::string body;  ///< JSON object, without a stream
};
/// One line of an input file. An error gives the reason; `custom_id`, if it is not null, is then
/// set if the line has one.
Result<BatchLine> parse_batch_line(std::string_view line, std::string_view endpoint,
                                   std::string* custom_id = nullptr);

/// What has become of a line.
struct LineResult {
  std::string id{};         ///< of the result
  std::string custom_id{};  ///< "": the line has none
  int status = 0;           ///< 0: the request was not made, because of:
  std::string error_code{};
  std::string error{};
  std::string request_id{};
  std::string body{};  ///< JSON: the answer
};
/// A line of an output or error file, with its line end.
std::string result_line(const LineResult& result);

}  // namespace hearth::http
