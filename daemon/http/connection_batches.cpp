// Files and batches of OpenAI's API.

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/http/batch.h"
#include "daemon/http/connection.h"
#include "kernels/base/numbers.h"

namespace hearth::http {
namespace {

Error not_here() { return Error::unsupported("files and batches are not kept here"); }

}  // namespace

Result<BatchQuery> Connection::batch_query(HttpRequest& request) const {
  switch (route_.action) {
    case Action::kUploadFile:
      return BatchQuery(UploadFile{.body = std::move(request.body),
                                   .boundary = form_boundary(request.content_types.front())});
    case Action::kFiles: {
      ListFiles list;
      HEARTH_ASSIGN_OR_RETURN(list.page, parse_list_page(route_.query, &list.purpose));
      return BatchQuery(std::move(list));
    }
    case Action::kFile: return BatchQuery(ShowFile{route_.name});
    case Action::kRemoveFile: return BatchQuery(RemoveFile{route_.name});
    case Action::kCreateBatch: {
      if (request.body.size() > host_.config().inline_bytes) {
        return Error::too_large("the body is longer than any request for a batch");
      }
      HEARTH_ASSIGN_OR_RETURN(CreateBatch batch, parse_create_batch(std::move(request.body)));
      return BatchQuery(std::move(batch));
    }
    case Action::kBatches: {
      ListBatches list;
      HEARTH_ASSIGN_OR_RETURN(list.page, parse_list_page(route_.query, nullptr));
      return BatchQuery(std::move(list));
    }
    case Action::kBatch: return BatchQuery(ShowBatch{route_.name});
    case Action::kCancelBatch: return BatchQuery(CancelBatch{route_.name});
    default: return Error::internal("an action without files and batches");
  }
}

void Connection::ask_batches(HttpRequest request) {
  if (!host_.backend().keeps_batches(uid_)) return respond_error(route_.api, not_here());
  const size_t bytes = request.body.size();
  if (bytes > host_.config().inline_bytes) {
    if (const Result<void> room = host_.backend().admit(uid_, bytes); !room) {
      return respond_error(route_.api, room.error(), kRetryMs);
    }
  }
  Result<BatchQuery> query = batch_query(request);
  if (!query) return respond_error(route_.api, query.error());
  parsing_bytes_ = std::max<size_t>(bytes, 1);
  host_.backend().ask_batches(uid_, std::move(query).value(),
                              [self = shared_from_this()](Result<BatchReply> reply) {
                                if (self->closed_) return;
                                if (!reply) return self->end_ask(reply.error());
                                self->end_ask(std::move(reply->text));
                              });
}

// ---- A file's content, piece by piece ----------------------------------------------------------

void Connection::ask_piece() {
  if (!host_.backend().keeps_batches(uid_)) return send_piece(not_here());
  download_->asking = true;
  host_.backend().ask_batches(uid_, ReadFile{.id = download_->id, .at = download_->at},
                              [self = shared_from_this()](Result<BatchReply> piece) {
                                if (!self->closed_) self->send_piece(std::move(piece));
                              });
}

void Connection::send_piece(Result<BatchReply> piece) {
  Download& download = *download_;
  download.asking = false;
  if (!piece) {
    if (download.begun) return close();  // the client sees that the content is not whole
    download_.reset();
    respond_error(route_.api, piece.error());
    return go_on();
  }
  // The file has the length that was announced: nothing is added to one that can be read.
  if (!download.begun) download.bytes = piece->file_bytes;
  const int64_t left = download.bytes - download.at;
  std::string text = std::move(piece->text);
  text.resize(std::min(text.size(), narrow<size_t>(left)));
  if (text.empty() && left > 0) return close();
  const int64_t size = narrow<int64_t>(text.size());
  download.at += size;
  const bool whole = download.at == download.bytes || head_only_;
  const bool begun = std::exchange(download.begun, true);
  if (whole) download_.reset();
  if (!begun) {
    respond({.body = std::move(text),
             .type = "application/octet-stream",
             .bytes_to_come = narrow<size_t>(left - size)});
  } else {
    write(text);
  }
  if (closed_) return;
  if (whole) return go_on();
  if (download_ && !download_->asking && unsent() == 0) ask_piece();
}

}  // namespace hearth::http
