// Answers of the responses API that are kept: written, continued, shown and removed.

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/http/connection.h"
#include "daemon/http/parsed_body.h"

namespace hearth::http {

// Before the client has the answer, so that it is found when the client continues it.
void Connection::keep_answer() {
  if (!exchange_->stores) return;
  KeptResponse kept = exchange_->writer->take_kept();
  kept.input = std::move(exchange_->kept_input);
  host_.backend().keep_response(uid_, std::move(kept));
}

// ---- The conversation that a request continues -------------------------------------------------

void Connection::read_conversation(ParsedBody body) {
  const size_t most = limits().body_bytes;
  KeptQuery query{.kind = KeptQuery::Kind::kConversation,
                  .id = std::get<Call>(*body.asked).previous_response_id,
                  .max_bytes = most - std::min(most, body.bytes)};
  parsing_bytes_ = std::max<size_t>(body.bytes, 1);
  auto waiting = std::make_shared<ParsedBody>(std::move(body));
  host_.backend().ask_kept(uid_, std::move(query),
                           [self = shared_from_this(), waiting](Result<std::string> items) {
                             if (self->closed_) return;
                             self->on_conversation(std::move(*waiting), std::move(items));
                             if (!self->closed_ && self->parsing_bytes_ == 0) self->go_on();
                           });
}

void Connection::on_conversation(ParsedBody body, Result<std::string> items) {
  const Api api = body.route.api;
  if (!items) {
    parsing_bytes_ = 0;
    const Error& error = items.error();
    // The path is there; what it is asked to continue is not.
    const int status = error.code == ErrorCode::kNotFound ? 400 : status_of(api, error.code);
    return respond({.status = status, .body = error_body(api, status, error, request_id())});
  }
  body.bytes += items->size();
  parsing_bytes_ = body.bytes;
  Result<void> room;
  if (body.bytes > host_.config().inline_bytes) room = host_.backend().admit(uid_, body.bytes);
  if (room.ok() && !charge()) room = Error::busy("your requests hold too many bytes");
  if (!room.ok()) {
    parsing_bytes_ = 0;
    return respond_error(api, room.error(), kRetryMs);
  }
  struct Work {
    ParsedBody body;
    std::string items;
    PromptRules rules;
    void parse() {
      Result<Call> call =
          continue_call(std::get<Call>(std::move(*body.asked)), std::move(items), rules);
      if (call.ok()) {
        body.asked = ParsedBody::Asked(std::move(call).value());
      } else {
        body.asked = call.take_error();
      }
    }
  };
  auto work =
      std::make_shared<Work>(Work{std::move(body), std::move(items).value(), prompt_rules()});
  if (work->body.bytes <= host_.config().inline_bytes) {
    work->parse();
    parsing_bytes_ = 0;
    return begin(std::move(work->body));
  }
  host_.backend().run_aside(
      uid_, work->body.bytes, [work] { work->parse(); },
      [self = shared_from_this(), work] { self->on_parsed(std::move(work->body)); });
}

// ---- One kept answer ---------------------------------------------------------------------------

void Connection::ask_kept() {
  const bool lists = route_.action == Action::kResponseInput;
  const Result<ItemPage> page = parse_item_page(route_.query, lists);
  if (!page) return respond_error(route_.api, page.error());
  KeptQuery query{.id = route_.name, .max_bytes = limits().body_bytes};
  if (lists) query.kind = KeptQuery::Kind::kInputItems;
  if (route_.action == Action::kRemoveResponse) query.kind = KeptQuery::Kind::kRemove;
  parsing_bytes_ = 1;
  host_.backend().ask_kept(uid_, std::move(query),
                           [self = shared_from_this(), page = *page](Result<std::string> text) {
                             Connection& connection = *self;
                             if (connection.closed_) return;
                             const Action action = connection.route_.action;
                             if (text.ok() && action == Action::kResponseInput) {
                               return connection.list_items(std::move(text).value(), page);
                             }
                             if (text.ok() && action == Action::kRemoveResponse) {
                               text = removed_response_body(connection.route_.name);
                             }
                             connection.end_ask(text);
                           });
}

void Connection::list_items(std::string kept, ItemPage page) {
  if (kept.size() <= host_.config().inline_bytes) {
    return end_ask(input_items_body(std::move(kept), route_.name, page));
  }
  parsing_bytes_ = kept.size();
  if (!charge()) return end_ask(Error::busy("your requests hold too many bytes"));
  struct Work {
    std::string kept;
    std::string id;
    ItemPage page;
    Result<std::string> body = std::string();
  };
  auto work = std::make_shared<Work>(Work{std::move(kept), route_.name, std::move(page)});
  host_.backend().run_aside(
      uid_, work->kept.size(),
      [work] { work->body = input_items_body(std::move(work->kept), work->id, work->page); },
      [self = shared_from_this(), work] {
        if (!self->closed_) self->end_ask(work->body);
      });
}

void Connection::end_ask(const Result<std::string>& body) {
  parsing_bytes_ = 0;
  if (body.ok()) {
    respond({.body = *body});
  } else {
    respond_error(route_.api, body.error(), body.error().code == ErrorCode::kBusy ? kRetryMs : 0);
  }
  if (!closed_) go_on();
}

}  // namespace hearth::http
