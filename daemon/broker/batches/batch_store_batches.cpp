// Batches: made and queried by users, and run line by line.

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "daemon/broker/batches/batch_rows.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

constexpr int64_t kMaxLines = 50'000;
/// Of one owner that have not ended.
constexpr int64_t kMaxLiveBatches = 64;

Error no_batch(std::string_view id) {
  return Error::not_found(fmt::format("No batch found with id '{}'.", id), "batch_id");
}

/// A result does not fit into the bounds.
bool is_full(const Error& error) {
  return error.code == ErrorCode::kTooLarge && error.field == "file";
}

/// The first line of `text`, without its end; nothing: the text has no whole line and goes on.
std::optional<std::string_view> first_line(std::string_view text, bool whole) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos && !whole) return std::nullopt;
  return text.substr(0, end);
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

// ---- Batches of a user -------------------------------------------------------------------------

Result<BatchStore::BatchRow> BatchStore::find_batch(uint32_t owner, const std::string& id) {
  Statement& find = statements_->find_batch;
  HEARTH_ASSIGN_OR_RETURN(const bool row,
                          find.bind(0, int64_t{owner}).bind(1, std::string_view(id)).step());
  if (!row) return no_batch(id);
  BatchRow out = batch_of(find);
  find.reset();
  return out;
}

Result<BatchStore::BatchRow> BatchStore::batch_at(int64_t seq) {
  Statement& at = statements_->batch_at;
  HEARTH_ASSIGN_OR_RETURN(const bool row, at.bind(0, seq).step());
  if (!row) return no_batch(std::to_string(seq));
  BatchRow out = batch_of(at);
  at.reset();
  return out;
}

// Its files are named once it has ended, unless they were removed since.
Result<std::string> BatchStore::body_of(const BatchRow& row) {
  http::Batch batch = row.batch;
  const auto name = [&](int64_t seq, std::string* id) -> Result<void> {
    if (seq == 0 || batch.ended_s == 0) return {};
    const Result<FileRow> file = file_at(seq);
    if (file.ok()) *id = file->file.id;
    if (!file.ok() && file.error().code != ErrorCode::kNotFound) return file.error();
    return {};
  };
  HEARTH_TRY(name(row.output, &batch.output_file_id));
  HEARTH_TRY(name(row.errors, &batch.error_file_id));
  return http::batch_body(batch);
}

Result<std::string> BatchStore::create(uint32_t owner, const http::CreateBatch& query) {
  const Result<FileRow> input = find_file(owner, query.input_file_id);
  if (!input) {
    if (input.error().code != ErrorCode::kNotFound) return input.error();
    return Error::invalid("input_file_id: no such file", "input_file_id");
  }
  Statement& count = statements_->num_live;
  HEARTH_ASSIGN_OR_RETURN(const bool counted, count.bind(0, int64_t{owner}).step());
  const int64_t live = counted ? count.integer(0) : 0;
  count.reset();
  if (live >= kMaxLiveBatches) {
    return Error::busy(fmt::format("{} of your batches have not ended; wait for one", live),
                       "batch_id");
  }
  const std::string id = new_id("batch_");
  HEARTH_TRY(statements_->add_batch.bind(0, int64_t{owner})
                 .bind(1, std::string_view(id))
                 .bind(2, std::string_view(query.endpoint))
                 .bind(3, std::string_view(query.metadata))
                 .bind(4, config_.now_s())
                 .bind(5, input->seq)
                 .bind(6, std::string_view(query.input_file_id))
                 .run());
  HEARTH_ASSIGN_OR_RETURN(const BatchRow row, find_batch(owner, id));
  return body_of(row);
}

Result<std::string> BatchStore::list_batches(uint32_t owner, const http::ListBatches& query) {
  const int64_t direction = query.page.ascending ? 1 : -1;
  int64_t after = INT64_MIN;
  if (!query.page.after.empty()) {
    const Result<BatchRow> from = find_batch(owner, query.page.after);
    if (!from) return no_after();
    after = from->seq * direction;
  }
  Statement& list = statements_->list_batches;
  list.bind(0, int64_t{owner}).bind(1, direction).bind(2, after);
  list.bind(3, narrow<int64_t>(query.page.limit) + 1);
  std::vector<BatchRow> rows;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, list.step());
    if (!row) break;
    rows.push_back(batch_of(list));
  }
  const bool more = rows.size() > query.page.limit;
  if (more) rows.pop_back();
  std::vector<std::string> bodies;
  for (const BatchRow& row : rows) {
    HEARTH_ASSIGN_OR_RETURN(std::string body, body_of(row));
    bodies.push_back(std::move(body));
  }
  if (rows.empty()) return http::list_body(bodies, "", "", false);
  return http::list_body(bodies, rows.front().batch.id, rows.back().batch.id, more);
}

Result<std::string> BatchStore::cancel(uint32_t owner, const std::string& id) {
  HEARTH_ASSIGN_OR_RETURN(BatchRow row, find_batch(owner, id));
  if (row.batch.ended_s != 0) {
    return Error::invalid(fmt::format("Cannot cancel a batch with status '{}'.", row.batch.status),
                          "batch_id");
  }
  if (row.batch.status != "cancelling") {
    row.batch.status = "cancelling";
    row.batch.cancelling_s = config_.now_s();
    HEARTH_TRY(set_status(row));
  }
  return body_of(row);
}

Result<void> BatchStore::set_status(const BatchRow& row) {
  return statements_->set_status.bind(0, std::string_view(row.batch.status))
      .bind(1, std::string_view(row.batch.problem))
      .bind(2, row.batch.started_s)
      .bind(3, row.batch.cancelling_s)
      .bind(4, row.batch.ended_s)
      .bind(5, row.seq)
      .run();
}

// ---- Running -----------------------------------------------------------------------------------

Result<std::vector<LiveBatch>> BatchStore::live() {
  return file_.use<std::vector<LiveBatch>>([this](Database&) -> Result<std::vector<LiveBatch>> {
    std::vector<LiveBatch> out;
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool more, statements_->live.step());
      if (!more) return out;
      const BatchRow row = batch_of(statements_->live);
      out.push_back({.seq = row.seq,
                     .owner = narrow<uint32_t>(row.owner),
                     .id = row.batch.id,
                     .endpoint = row.batch.endpoint,
                     .status = row.batch.status,
                     .expires_s = row.batch.expires_s});
    }
  });
}

Result<std::string> BatchStore::begin(int64_t seq) {
  return file_.use<std::string>([&](Database& db) -> Result<std::string> {
    HEARTH_ASSIGN_OR_RETURN(BatchRow row, batch_at(seq));
    if (row.batch.status != "validating") return row.batch.status;
    return begin(db, std::move(row));
  });
}

// In one transaction: after a crash in the middle of it the batch begins anew.
Result<std::string> BatchStore::begin(Database& db, BatchRow row) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, content(row.input, 0, SIZE_MAX));
  const auto work = [&]() -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(const std::string problem, check_lines(db, &row, text));
    row.batch.started_s = config_.now_s();
    if (!problem.empty()) return finish(&row, "failed", problem);
    row.batch.status = "in_progress";
    return set_status(row);
  };
  HEARTH_TRY(change(db, work));
  return row.batch.status;
}

/// Why the input as a whole cannot be used; "": it can. Lines that are wrong for themselves fail.
Result<std::string> BatchStore::check_lines(Database& db, BatchRow* row, std::string_view text) {
  std::unordered_set<std::string> seen;
  std::vector<std::pair<int64_t, http::LineResult>> faulty;
  int64_t number = 0, total = 0;
  for (; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (is_blank(line)) continue;
    if (++total > kMaxLines) {
      return fmt::format("the input file has more than {} requests", kMaxLines);
    }
    http::LineResult result{.error_code = "invalid_request"};
    const Result<http::BatchLine> request =
        http::parse_batch_line(line, row->batch.endpoint, &result.custom_id);
    if (!request) {
      result.error = fmt::format("line {}: {}", number + 1, request.error().message);
    } else if (!seen.insert(request->custom_id).second) {
      result.error = fmt::format("line {}: custom_id: an earlier line has it", number + 1);
    } else {
      continue;
    }
    faulty.emplace_back(number, std::move(result));
  }
  if (total == 0) return std::string("the input file has no requests");
  row->batch.total = total;
  HEARTH_TRY(statements_->set_counts.bind(0, total)
                 .bind(1, int64_t{0})
                 .bind(2, int64_t{0})
                 .bind(3, row->seq)
                 .run());
  for (const auto& [line, result] : faulty) {
    const Result<void> written = write_result(db, row, line, result);
    if (!written.ok() && is_full(written.error())) return written.error().message;
    HEARTH_TRY(written);
  }
  return std::string();
}

Result<InputPart> BatchStore::read(int64_t seq, InputPlace from, size_t max_bytes) {
  return file_.use<InputPart>([&](Database&) -> Result<InputPart> {
    HEARTH_ASSIGN_OR_RETURN(const BatchRow row, batch_at(seq));
    return read(row, from, max_bytes);
  });
}

Result<InputPart> BatchStore::read(const BatchRow& row, InputPlace from, size_t max_bytes) {
  InputPart out{.next = from};
  size_t want = max_bytes;
  while (out.lines.empty() && !out.ended) {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, content(row.input, out.next.at, want));
    const bool whole = text.size() < want;
    std::string_view rest = text;
    while (auto line = first_line(rest, whole)) {
      if (rest.empty()) break;
      const int64_t number = out.next.line++;
      const size_t taken = std::min(line->size() + 1, rest.size());
      rest.remove_prefix(taken);
      out.next.at += narrow<int64_t>(taken);
      if (is_blank(*line)) continue;
      Statement& done = statements_->is_done;
      HEARTH_ASSIGN_OR_RETURN(const bool written, done.bind(0, row.seq).bind(1, number).step());
      done.reset();
      if (written) continue;
      HEARTH_ASSIGN_OR_RETURN(http::BatchLine request,
                              http::parse_batch_line(*line, row.batch.endpoint));
      out.lines.push_back({.number = number, .request = std::move(request)});
    }
    out.ended = whole && rest.empty();
    want *= 2;  // for a longer line
  }
  return out;
}

Result<void> BatchStore::append(int64_t seq, int64_t line, const http::LineResult& result) {
  return file_.use<void>([&](Database& db) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(BatchRow row, batch_at(seq));
    return change(db, [&] { return write_result(db, &row, line, result); });
  });
}

Result<void> BatchStore::write_result(Database& db, BatchRow* row, int64_t line,
                                      const http::LineResult& result) {
  const bool failed = result.status < 200 || result.status >= 300;
  int64_t& file = failed ? row->errors : row->output;
  http::LineResult named = result;
  named.id =
      fmt::format("batch_req_{}_{}", row->batch.id.substr(row->batch.id.find('_') + 1), line);
  const std::string text = http::result_line(named);
  HEARTH_TRY(check_room(row->owner, narrow<int64_t>(text.size()) + (file == 0 ? kFileBytes : 0)));
  int64_t at = 0;
  if (file == 0) {
    const http::StoredFile made{
        .id = new_id("file-"),
        .name = fmt::format("{}_{}.jsonl", row->batch.id, failed ? "error" : "output"),
        .purpose = "batch_output",
        .created_s = config_.now_s()};
    HEARTH_ASSIGN_OR_RETURN(file, add_file(db, row->owner, made, false));
    HEARTH_TRY(
        statements_->set_files.bind(0, row->output).bind(1, row->errors).bind(2, row->seq).run());
  } else {
    HEARTH_ASSIGN_OR_RETURN(const FileRow met, file_at(file));
    at = met.file.bytes;
  }
  HEARTH_TRY(add_piece(row->owner, file, at, text));
  HEARTH_TRY(statements_->add_done.bind(0, row->seq).bind(1, line).run());
  ++(failed ? row->batch.failed : row->batch.completed);
  return statements_->set_counts.bind(0, row->batch.total)
      .bind(1, row->batch.completed)
      .bind(2, row->batch.failed)
      .bind(3, row->seq)
      .run();
}

// As far as they fit into the bounds.
Result<void> BatchStore::fail_rest(Database& db, BatchRow* row) {
  InputPart part;
  while (!part.ended) {
    HEARTH_ASSIGN_OR_RETURN(part, read(*row, part.next, kPieceBytes));
    for (const InputLine& line : part.lines) {
      const Result<void> written =
          write_result(db, row, line.number,
                       {.custom_id = line.request.custom_id,
                        .error_code = "batch_expired",
                        .error = "the request could not be answered within 24 hours"});
      if (!written.ok() && is_full(written.error())) return {};
      HEARTH_TRY(written);
    }
  }
  return {};
}

Result<void> BatchStore::end(int64_t seq, const std::string& status, const std::string& problem) {
  return file_.use<void>([&](Database& db) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(BatchRow row, batch_at(seq));
    if (row.batch.ended_s != 0) return {};
    return change(db, [&]() -> Result<void> {
      if (status == "expired" && row.batch.started_s != 0) HEARTH_TRY(fail_rest(db, &row));
      return finish(&row, status, problem);
    });
  });
}

Result<void> BatchStore::finish(BatchRow* row, std::string_view status, std::string_view problem) {
  for (const int64_t file : {row->output, row->errors}) {
    if (file != 0) HEARTH_TRY(statements_->show_file.bind(0, file).run());
  }
  row->batch.status = status;
  row->batch.problem = problem;
  row->batch.ended_s = config_.now_s();
  HEARTH_TRY(set_status(*row));
  return statements_->remove_done.bind(0, row->seq).run();
}

}  // namespace hearth::broker
