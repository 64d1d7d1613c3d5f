#include "daemon/broker/http_front.h"

#include <sys/socket.h>

#include <string_view>
#include <system_error>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "kernels/base/random.h"
#include "kernels/base/secret_file.h"
#include "kernels/base/wall_clock.h"

namespace hearth::broker {
namespace {

PeerId peer_of(const http::Exchanger& from) {
  return {.door = Door::kHttp, .uid = from.uid, .number = from.number};
}

// Without a folder that keeps it, a key for this run: what it sealed cannot be read by the next.
Result<http::ReasoningSeal::Key> reasoning_key(const std::filesystem::path& state_dir) {
  http::ReasoningSeal::Key key;
  if (!state_dir.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(state_dir, ignored);
    const Result<void> found = read_or_make_secret(state_dir / "reasoning.key", key);
    if (found.ok()) return key;
    log_error("reasoning_key", "error=\"{}\"", found.error().message);
  }
  if (!fill_random(key)) return Error::io("the system provides no random bytes");
  return key;
}

}  // namespace

Result<void> HttpFront::open(boost::asio::io_context& io, const Config& config,
                             const std::filesystem::path& runtime_dir,
                             const std::string& instance) {
  if (!config.http.enabled) return {};
  keep_responses(config);
  http::ServerConfig server;
  server.socket = runtime_dir / "http.sock";
  server.listen = config.http.listen;
  server.keys_file = config.http.keys_file;
  server.tls_certificate_file = config.http.tls_certificate_file;
  server.tls_key_file = config.http.tls_key_file;
  server.trusted_proxy = config.http.trusted_proxy;
  server.allowed_hosts = config.http.allowed_hosts;
  server.allowed_origins = config.http.allowed_origins;
  if (config.http.leave_out_volatile_lines) {
    server.volatile_lines = config.http.volatile_lines;
  }
  server.max_connections = config.http.max_connections;
  server.max_body_bytes = config.limits.max_message_bytes;
  server.inline_bytes = kInlineBytes;
  server.idle_timeout_ms = config.http.idle_timeout_ms;
  server.header_timeout_ms = config.http.header_timeout_ms;
  server.body_timeout_ms = config.http.body_timeout_ms;
  server.write_timeout_ms = config.http.write_timeout_ms;
  server.instance = instance.substr(0, 8);
  HEARTH_ASSIGN_OR_RETURN(server.reasoning_key, reasoning_key(config.server.state_dir));
  HEARTH_ASSIGN_OR_RETURN(server_, http::HttpServer::open(io, server, *this));
  dispatcher_.owners().set_keys(server_->key_owners());
  keep_batches(config);
  return {};
}

Result<void> HttpFront::reload() {
  if (!server_) return {};
  HEARTH_TRY(server_->reload());
  dispatcher_.owners().set_keys(server_->key_owners());
  return {};
}

void HttpFront::keep_responses(const Config& config) {
  cache_ = config.cache;
  if (config.server.state_dir.empty()) return;
  std::filesystem::path file = config.server.state_dir / "responses.db";
  if (config.http.responses_keep_s == 0) return responses_.discard(std::move(file));
  responses_.start({.file = std::move(file),
                    .keep_s = config.http.responses_keep_s,
                    .bytes = config.http.responses_bytes,
                    .owner_bytes = config.http.responses_bytes_per_owner,
                    .now_s = seconds_since_1970},
                   {.owner_bytes = narrow<size_t>(config.limits.max_queued_bytes_per_owner),
                    .bytes = narrow<size_t>(config.limits.max_queued_bytes)});
}

void HttpFront::keep_batches(const Config& config) {
  if (config.server.state_dir.empty()) return;
  std::filesystem::path file = config.server.state_dir / "batches.db";
  if (config.http.batches_keep_s == 0) return batches_.discard(std::move(file));
  batches_.start({.store = {.file = std::move(file),
                            .keep_s = config.http.batches_keep_s,
                            .bytes = config.http.batches_bytes,
                            .owner_bytes = config.http.batches_bytes_per_owner,
                            .now_s = seconds_since_1970},
                  .requests = narrow<size_t>(config.http.batch_requests),
                  .answer_bytes = narrow<size_t>(config.limits.max_message_bytes)},
                 [this](uint32_t uid) { return connect_own(uid); });
}

// Both ends are of this process.
int HttpFront::connect_own(uint32_t uid) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  server_->serve_own(ends[0], uid);
  return ends[1];
}

bool HttpFront::keeps_batches(uint32_t uid) const {
  return batches_.enabled() && cache_.allowed(dispatcher_.owners().name(uid), "disk") == "disk";
}

// An owner whose prompts the configuration keeps off the disk has no answers there either.
bool HttpFront::keeps_responses(uint32_t uid) const {
  return responses_.enabled() && cache_.allowed(dispatcher_.owners().name(uid), "disk") == "disk";
}

ipc::SendOutcome HttpFront::send(uint64_t exchange, const OutgoingView& outgoing) {
  if (!server_) return ipc::SendOutcome::kUnreachable;
  ipc::Answer answer;
  answer.is_delta = outgoing.is_delta;
  if (outgoing.is_delta) {
    answer.payload = outgoing.payload;
    answer.ids = outgoing.ids;
    answer.logprobs = outgoing.logprobs;
  } else {
    answer.json = outgoing.payload;
  }
  return server_->deliver(exchange, answer);
}

uint64_t HttpFront::accept_from(int listener, http::NameUser name_user,
                                http::OnConnection on_connection) {
  AcceptHandlers handlers;
  handlers.on_connection = std::move(on_connection);
  handlers.on_refused = [](uint64_t count, std::string_view why) {
    log_warn("http_refused", "count={} why=\"{}\"", count, why);
  };
  return acceptor_.add(listener, name_user, std::move(handlers));
}

Result<void> HttpFront::admit(uint32_t uid, size_t bytes) const {
  return dispatcher_.admit({.peer = {}, .uid = uid, .is_admin = false}, bytes, 0);
}

Result<void> HttpFront::ready(uint32_t uid) const {
  HEARTH_TRY(admit(uid, 1));
  return reports_.servable();
}

void HttpFront::submit(const http::Exchanger& from, const std::string& id,
                       ipc::ComputeRequest request, size_t bytes) {
  // HTTP offers no request that needs an administrator.
  const Caller caller{.peer = peer_of(from), .uid = from.uid, .is_admin = false};
  dispatcher_.submit(caller, id, std::move(request), bytes);
}

Result<void> HttpFront::end_reasoning(uint32_t uid, const std::string& id) {
  return dispatcher_.end_reasoning({.peer = {}, .uid = uid, .is_admin = false}, id);
}

bool HttpFront::keep_alive(uint32_t uid, const std::string& model, int64_t ms) {
  return dispatcher_.keep_alive({.peer = {}, .uid = uid, .is_admin = false}, model, ms);
}

Result<void> HttpFront::release(uint32_t uid, const std::string& model) {
  return dispatcher_.release({.peer = {}, .uid = uid, .is_admin = false}, model);
}

void HttpFront::gone(const http::Exchanger& from) {
  const PeerId peer = peer_of(from);
  output_.drop(peer);
  dispatcher_.connection_gone(peer);
}

void HttpFront::writable(const http::Exchanger& from) {
  const PeerId peer = peer_of(from);
  if (!output_.retry(peer)) dispatcher_.connection_gone(peer);
}

size_t HttpFront::backlog_bytes(const http::Exchanger& from) const {
  return output_.backlog_bytes(peer_of(from));
}

}  // namespace hearth::broker
