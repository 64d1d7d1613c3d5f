// hearth-broker-bench: what the broker costs, with the real hearthd and workers of this build.
//
//   health   round trip of a verb that the broker answers itself; and that of a process that
//            sends back what a ROUTER of its own receives, which is what the socket library takes
//   tokens   CPU time per streamed token: hearthd, and the worker's front door (its main thread)
//   sse      CPU time per token of hearthd, streamed as server-sent events over HTTP; of the tiny
//            model several tokens go in one event, of the large one each in its own
//   stall    what a reader over HTTP that stops reading costs the broker in memory, and the speed
//            of other readers; and the same of one that reads on
//   flood    10 000 requests in a second over a bound of 256: how soon the surplus is refused, and
//            whether what was accepted ends
//   swap     first token of a role right after it was swapped to a resident model, and of the same
//            prompt without a swap
//   load     first token of a model that is not in memory, its file in the page cache; next to
//            that, the times to read the file, to copy it once, and of a step
//
//   hearth-broker-bench [--shape NAME | --smoke | --tokens | --sse | --stall | --flood]
// `load` loads the named shape (0.1B); the others use a tiny model. --smoke: small counts, for
// ctest; --tokens: `tokens` and `sse` alone, five rounds in turn; --stall and --flood: that alone,
// five rounds.
// Prints medians; never judges.

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ipc/client/client.h"
#include "ipc/files/paths.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/socket.h"
#include "kernels/base/check.h"
#include "models/random_model.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/tiny_shape.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;

/// CPU time in nanoseconds of the process's threads for which `counts(name, is_main)`.
template <class Counts>
int64_t cpu_ns(pid_t pid, Counts counts) {
  int64_t total = 0;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (!counts(name, task.path().filename() == std::to_string(pid))) continue;
    int64_t ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    total += ns;
  }
  return total;
}

ipc::GenerateRequest request_for(const std::string& model, int32_t max_tokens, int32_t salt) {
  ipc::GenerateRequest request;
  request.model = model;
  for (int32_t i = 0; i < 16; ++i) request.prompt_ids.push_back(300 + (salt * 31 + i * 7) % 200);
  request.max_tokens = max_tokens;
  request.temperature = 0;
  request.ignore_eos = true;
  request.speculate = false;
  request.cache = "off";
  return request;
}

/// From sending to the first delta, ms; reads the request to its end.
double first_token_ms(ipc::Client& client, const ipc::GenerateRequest& request) {
  const int64_t begin_us = now_us();
  int64_t first_us = 0;
  ipc::GenerateCallbacks callbacks;
  callbacks.on_delta = [&](const ipc::Delta&) {
    if (first_us == 0) first_us = now_us();
  };
  const Result<ipc::DoneEvent> done = client.generate(request, callbacks);
  HEARTH_CHECK(done.ok(), "{}", done.error().message);
  return static_cast<double>(first_us - begin_us) / 1000.0;
}

// ---- What is measured --------------------------------------------------------------------------

/// Round trips of `json` in microseconds.
std::vector<double> round_trips(const std::string& endpoint, const std::string& json, int rounds) {
  const Result<ipc::Context> context = ipc::Context::create();
  Result<ipc::Socket> socket = ipc::Socket::open(*context, ipc::SocketType::kDealer);
  HEARTH_CHECK(socket->connect(endpoint).ok());
  std::vector<double> us;
  for (int i = 0; i < rounds; ++i) {
    ipc::Message message;
    ipc::append(message, ipc::kProtocol, std::string_view("h"), json);
    const int64_t begin_us = now_us();
    HEARTH_CHECK(socket->send(message) == ipc::SendOutcome::kSent);
    ipc::PollItem item{.socket = &*socket};
    while (socket->receive(message) != ipc::ReceiveOutcome::kReceived) ipc::poll({&item, 1}, 1000);
    us.push_back(static_cast<double>(now_us() - begin_us));
  }
  return us;
}

/// A process that echoes everything until it is killed.
pid_t start_echo(const std::string& endpoint) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const Result<ipc::Context> context = ipc::Context::create();
  Result<ipc::Socket> socket = ipc::Socket::open(*context, ipc::SocketType::kRouter);
  if (!socket.ok() || !socket->bind(endpoint).ok()) ::_exit(1);
  while (true) {
    ipc::PollItem item{.socket = &*socket};
    ipc::poll({&item, 1}, 1000);
    ipc::Message message;
    while (socket->receive(message) == ipc::ReceiveOutcome::kReceived) socket->send(message);
  }
}

void measure_health(const Daemon& daemon, const fs::path& dir, int rounds) {
  const std::string json = ipc::encode_request(ipc::HealthRequest{});
  const std::string echo = *ipc::ipc_endpoint(dir / "echo.sock");
  const pid_t pid = start_echo(echo);
  while (!fs::exists(dir / "echo.sock")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string api = *ipc::ipc_endpoint(ipc::api_socket(daemon.runtime()));
  std::vector<double> ours, bare;
  for (int part = 0; part < 4; ++part) {  // in turn: the machine's speed changes meanwhile
    for (const double us : round_trips(api, json, rounds / 4)) ours.push_back(us);
    for (const double us : round_trips(echo, json, rounds / 4)) bare.push_back(us);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  fmt::print(
      "health   round trip: p50 {:.0f} us, p99 {:.0f} us; a bare echo: p50 {:.0f} us, p99 {:.0f} "
      "us "
      "({} rounds)\n",
      quantile(ours, 0.5), quantile(ours, 0.99), quantile(bare, 0.5), quantile(bare, 0.99), rounds);
}

void measure_tokens(const Daemon& daemon, int streams, int32_t tokens) {
  ipc::Client client = daemon.connect();
  (void)first_token_ms(client, request_for("one", 1, 0));
  pid_t worker = 0;
  const Result<ipc::StatsReply> stats = client.stats();
  for (const ipc::WorkerStats& each : stats->workers) {
    if (each.model == "one") worker = each.pid;
  }
  const auto all = [](const std::string&, bool) { return true; };
  const auto front_door = [](const std::string&, bool is_main) { return is_main; };
  const int64_t broker_ns = cpu_ns(daemon.pid(), all), worker_ns = cpu_ns(worker, front_door);
  const int64_t begin_us = now_us();
  for (int i = 0; i < streams; ++i) HEARTH_CHECK(client.start(request_for("one", tokens, i)).ok());
  int64_t deltas = 0, count = 0;
  for (int live = streams; live > 0;) {
    const Result<std::optional<ipc::Arrival>> arrival = client.next(1000);
    HEARTH_CHECK(arrival.ok());
    if (!*arrival) continue;
    if (const auto* delta = std::get_if<ipc::Delta>(&(**arrival).what)) {
      ++deltas;
      count += static_cast<int64_t>(delta->ids.size());
    } else if (std::holds_alternative<ipc::DoneEvent>(std::get<ipc::Event>((**arrival).what))) {
      --live;
    }
  }
  const double seconds = static_cast<double>(now_us() - begin_us) / 1e6;
  const auto per_token_us = [&](int64_t ns) {
    return static_cast<double>(ns) / 1000.0 / static_cast<double>(count);
  };
  const double broker = per_token_us(cpu_ns(daemon.pid(), all) - broker_ns);
  const double door = per_token_us(cpu_ns(worker, front_door) - worker_ns);
  fmt::print(
      "tokens   CPU per token: broker {:.2f} us, front door {:.2f} us, together {:.2f} us "
      "({} tokens in {} deltas, {:.0f}/s, {} streams)\n",
      broker, door, broker + door, count, deltas, static_cast<double>(count) / seconds, streams);
}

/// A connection that has requested a stream; `more`: members of the request.
int ask_for_stream(const Daemon& daemon, const std::string& model, int32_t tokens, int32_t salt,
                   std::string_view more = "") {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (daemon.runtime() / "http.sock").string();
  HEARTH_CHECK(fd >= 0 && path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  HEARTH_CHECK(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const std::string body = fmt::format(
      R"({{"model":"{}","prompt":[{}],"max_tokens":{},"temperature":0,"ignore_eos":true,)"
      R"("speculate":false,"cache":"off","stream":true{}}})",
      model, fmt::join(request_for(model, tokens, salt).prompt_ids, ","), tokens, more);
  const std::string request = fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
  HEARTH_CHECK(::send(fd, request.data(), request.size(), 0) ==
               static_cast<ssize_t>(request.size()));
  return fd;
}

void measure_sse(const Daemon& daemon, const std::string& model, int streams, int32_t tokens) {
  ipc::Client client = daemon.connect();
  (void)first_token_ms(client, request_for(model, 1, 0));
  std::vector<pollfd> sockets;
  const int64_t broker_ns = cpu_ns(daemon.pid(), [](const std::string&, bool) { return true; });
  const int64_t begin_us = now_us();
  for (int i = 0; i < streams; ++i) {
    const int fd = ask_for_stream(daemon, model, tokens, i);
    sockets.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  int64_t bytes = 0, events = 0;
  std::map<int, char> last;  // byte of a connection
  std::vector<char> buffer(1 << 16);
  for (int live = streams; live > 0;) {
    HEARTH_CHECK(::poll(sockets.data(), sockets.size(), 60'000) > 0);
    for (pollfd& item : sockets) {
      if (item.fd < 0 || item.revents == 0) continue;
      const ssize_t n = ::recv(item.fd, buffer.data(), buffer.size(), 0);
      if (n > 0) {
        bytes += n;
        for (ssize_t i = 0; i < n; ++i) {
          events += buffer[i] == '\n' && last[item.fd] == '\n';  // an event's end
          last[item.fd] = buffer[i];
        }
        continue;
      }
      ::close(item.fd);
      item.fd = -1;
      --live;
    }
  }
  const double seconds = static_cast<double>(now_us() - begin_us) / 1e6;
  const double count = static_cast<double>(streams) * tokens;
  const int64_t ns = cpu_ns(daemon.pid(), [](const std::string&, bool) { return true; });
  fmt::print(
      "sse      CPU per token: broker {:.2f} us ({} streams, {:.0f} tokens/s, {:.0f} bytes and "
      "{:.2f} events per token)\n",
      static_cast<double>(ns - broker_ns) / 1000.0 / count, streams, count / seconds,
      static_cast<double>(bytes) / count, static_cast<double>(events) / count);
}

struct Alongside {
  double grown_kib = 0;     ///< the broker's resident memory, at most
  double tokens_per_s = 0;  ///< of the other readers
};

/// A stream of 16 samples with 20 log probabilities per token, read or not read; and four other
/// streams at the same time.
Alongside run_alongside(const Daemon& daemon, bool reads, int32_t tokens) {
  ipc::Client client = daemon.connect();
  const int64_t before = resident_bytes(daemon.pid());
  const int fd = ask_for_stream(daemon, "one", 4 * tokens, 1, R"(,"n":16,"logprobs":20)");
  int64_t most = before;
  const int64_t begin_us = now_us();
  constexpr int kOthers = 4;
  for (int i = 0; i < kOthers; ++i) {
    HEARTH_CHECK(client.start(request_for("one", tokens, i)).ok());
  }
  int live = kOthers;
  double seconds = 0;
  std::vector<char> buffer(1 << 16);
  // A stalled reader may not be slow enough to be disconnected, so its end is not waited for.
  for (bool open = true; (open && reads) || live > 0;) {
    pollfd item{.fd = fd, .events = static_cast<short>(reads ? POLLIN : 0), .revents = 0};
    while (open && ::poll(&item, 1, 0) > 0) {
      if (reads && ::recv(fd, buffer.data(), buffer.size(), 0) > 0) continue;
      open = false;  // it ended or was disconnected
    }
    most = std::max(most, resident_bytes(daemon.pid()));
    const Result<std::optional<ipc::Arrival>> arrival = client.next(1);
    HEARTH_CHECK(arrival.ok());
    const auto* event = *arrival ? std::get_if<ipc::Event>(&(**arrival).what) : nullptr;
    if (event == nullptr || !std::holds_alternative<ipc::DoneEvent>(*event)) continue;
    if (--live == 0) seconds = static_cast<double>(now_us() - begin_us) / 1e6;
  }
  ::close(fd);
  return {static_cast<double>(most - before) / 1024, kOthers * tokens / seconds};
}

void measure_stall(const Daemon& daemon, int rounds, int32_t tokens) {
  (void)run_alongside(daemon, true, tokens);  // memory that the first such request leaves allocated
  for (int round = 0; round < rounds; ++round) {
    const Alongside reads = run_alongside(daemon, true, tokens);
    const Alongside stalls = run_alongside(daemon, false, tokens);
    fmt::print(
        "stall    a reader that stalls: broker grew by {:.0f} KiB, others {:.0f} tokens/s; one "
        "that reads: {:.0f} KiB, others {:.0f} tokens/s\n",
        stalls.grown_kib, stalls.tokens_per_s, reads.grown_kib, reads.tokens_per_s);
  }
}

void measure_flood(const Daemon& daemon, int requests, int64_t within_us) {
  ipc::Client client = daemon.connect();
  (void)first_token_ms(client, request_for("one", 1, 0));
  const Result<ipc::Context> context = ipc::Context::create();
  Result<ipc::Socket> socket = ipc::Socket::open(*context, ipc::SocketType::kDealer,
                                                 {.send_high_water = 0,
                                                  .receive_high_water = 0,
                                                  .max_frame_bytes = -1,
                                                  .reconnect = true,
                                                  .routing_id = {}});
  HEARTH_CHECK(socket->connect(*ipc::ipc_endpoint(ipc::api_socket(daemon.runtime()))).ok());
  const std::string json = ipc::encode_request(request_for("one", 200, 1));
  std::map<std::string, int64_t> sent_us;
  std::vector<double> refused_ms;
  int sent = 0, done = 0, other = 0;
  const int64_t begin_us = now_us();
  while (done + other + static_cast<int>(refused_ms.size()) < requests) {
    const int64_t now = now_us();
    HEARTH_CHECK(now - begin_us < 120'000'000, "done {} refused {}", done, refused_ms.size());
    while (sent < requests && sent * within_us / requests <= now - begin_us) {
      const std::string id = std::to_string(sent);
      ipc::Message message;
      ipc::append(message, ipc::kProtocol, id, json);
      HEARTH_CHECK(socket->send(message) == ipc::SendOutcome::kSent);
      sent_us[id] = now_us();
      ++sent;
    }
    ipc::PollItem item{.socket = &*socket};
    // Sleeps between messages: polling would take a core from the daemon.
    ipc::poll({&item, 1}, sent < requests ? 1 : 100);
    ipc::Message message;
    while (socket->receive(message) == ipc::ReceiveOutcome::kReceived) {
      const std::vector<std::string_view> frames = ipc::views(message);
      const Result<ipc::DaemonMessage> parsed = ipc::parse_daemon_message(frames);
      if (!parsed || parsed->answer.is_delta) continue;
      const Result<ipc::Event> event = ipc::decode_event(parsed->answer.json);
      if (!event) continue;
      if (std::holds_alternative<ipc::DoneEvent>(*event)) ++done;
      if (const auto* error = std::get_if<ipc::ErrorEvent>(&*event)) {
        const bool busy = error->error.code == ErrorCode::kBusy;
        const int64_t at_us = sent_us[std::string(parsed->request_id)];
        if (busy) refused_ms.push_back(static_cast<double>(now_us() - at_us) / 1000.0);
        if (!busy) ++other;
      }
    }
  }
  fmt::print(
      "flood    {} requests in {:.2f} s: {} refused, after p50 {:.2f} ms, p99 {:.2f} ms; {} "
      "accepted and done, {} failed otherwise\n",
      requests, static_cast<double>(within_us) / 1e6, refused_ms.size(), quantile(refused_ms, 0.5),
      quantile(refused_ms, 0.99), done, other);
}

void measure_swap(const Daemon& daemon, int rounds) {
  ipc::Client client = daemon.connect();
  for (const char* model : {"one", "two"}) HEARTH_CHECK(client.load({.model = model}).ok());
  std::vector<double> with, without, extra, verb_ms;
  for (int i = 0; i < rounds; ++i) {
    const std::string to = i % 2 == 0 ? "two" : "one";
    const int64_t begin_us = now_us();
    const Result<ipc::SwapReply> reply = client.swap({.role = "default", .model = to});
    HEARTH_CHECK(reply.ok(), "{}", reply.error().message);
    verb_ms.push_back(static_cast<double>(now_us() - begin_us) / 1000.0);
    with.push_back(first_token_ms(client, request_for("default", 2, i)));
    without.push_back(first_token_ms(client, request_for("default", 2, i)));
    extra.push_back(with.back() - without.back());
  }
  fmt::print(
      "swap     first token after a swap between resident models: p50 {:.2f} ms, without {:.2f} "
      "ms; "
      "difference p50 {:.2f} ms, p99 {:.2f} ms; the verb {:.2f} ms ({} rounds)\n",
      quantile(with, 0.5), quantile(without, 0.5), quantile(extra, 0.5), quantile(extra, 0.99),
      quantile(verb_ms, 0.5), rounds);
}

double read_ms(const fs::path& file) {
  std::vector<char> buffer(1 << 20);
  const int64_t begin_us = now_us();
  std::FILE* in = std::fopen(file.c_str(), "rb");
  HEARTH_CHECK(in != nullptr);
  std::setvbuf(in, nullptr, _IONBF, 0);
  while (std::fread(buffer.data(), 1, buffer.size(), in) == buffer.size()) {
  }
  std::fclose(in);
  return static_cast<double>(now_us() - begin_us) / 1000.0;
}

/// Into untouched memory, as a load does.
double copy_ms(size_t bytes, const std::vector<char>& from) {
  const int64_t begin_us = now_us();
  const auto to = std::make_unique_for_overwrite<char[]>(bytes);
  std::memcpy(to.get(), from.data(), bytes);
  const volatile char sink = to[bytes - 1];
  (void)sink;
  return static_cast<double>(now_us() - begin_us) / 1000.0;
}

void measure_load(const Daemon& daemon, const fs::path& file, int rounds) {
  ipc::Client client = daemon.connect();
  const size_t bytes = fs::file_size(file);
  const std::vector<char> source(bytes, 'x');
  std::vector<double> loads, reads, copies, steps, ratios;
  for (int i = 0; i < rounds; ++i) {
    (void)client.unload({.model = "large"});
    reads.push_back(read_ms(file));
    copies.push_back(copy_ms(bytes, source));
    loads.push_back(first_token_ms(client, request_for("large", 1, i)));
    steps.push_back(first_token_ms(client, request_for("large", 1, i)));
    ratios.push_back(loads.back() / (1.3 * (reads.back() + copies.back()) + steps.back()));
  }
  fmt::print(
      "load     {:.0f} MB to first token: {:.0f} ms; warm read {:.0f} ms, one copy {:.0f} ms, a "
      "step "
      "{:.1f} ms: {:.2f} x (1.3 (read + copy) + step) ({} rounds)\n",
      static_cast<double>(bytes) / 1e6, quantile(loads, 0.5), quantile(reads, 0.5),
      quantile(copies, 0.5), quantile(steps, 0.5), quantile(ratios, 0.5), rounds);
}

void write_model(const fs::path& path, const models::ModelShape& shape, uint64_t seed) {
  const auto model = models::RandomModel::create(shape, kernels::DType::kQ8_0, seed);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  const auto written = models::write_random_model(*model, path, 2, nullptr);
  HEARTH_CHECK(written.ok(), "{}", written.error().message);
}

enum class Part { kAll, kSmoke, kTokens, kSse, kStall, kFlood };

int run(Part part, const std::string& shape_name) {
  const bool smoke = part == Part::kSmoke;
  const Result<models::ModelShape> large = models::find_shape(shape_name);
  if (!large) {
    fmt::print(stderr, "{}\n", large.error().message);
    return 2;
  }
  const tests::TempDir temp;
  const fs::path& dir = temp.path();
  fs::create_directories(dir / "models");
  write_model(dir / "models/one.gguf", kTinyShape, 1);
  write_model(dir / "models/two.gguf", kTinyShape, 2);
  write_model(dir / "models/large.gguf", smoke ? kTinyShape : *large, 3);
  {
    const Daemon daemon(dir, {"limits.max_requests=256", "limits.max_requests_per_owner=256",
                              "worker.kv_bytes=67108864", "limits.max_resident=3",
                              // Replay logs for `attach` are kept for every client, stalled or not.
                              part == Part::kStall ? "limits.attach_bytes_per_owner=0"
                                                   : "limits.attach_bytes_per_owner=8388608"});
    for (int round = 0; part == Part::kTokens && round < 5; ++round) {
      measure_tokens(daemon, 16, 1000);
      measure_sse(daemon, "one", 16, 1000);
      measure_sse(daemon, "large", 16, 400);
    }
    if (part == Part::kTokens) return 0;
    for (int round = 0; part == Part::kSse && round < 5; ++round) {
      measure_sse(daemon, "large", 16, 400);
    }
    if (part == Part::kSse) return 0;
    if (smoke || part == Part::kStall) measure_stall(daemon, smoke ? 1 : 5, smoke ? 20 : 1000);
    if (part == Part::kStall) return 0;
    for (int round = 0; part == Part::kFlood && round < 5; ++round) {
      measure_flood(daemon, 10'000, 1'000'000);
    }
    if (part == Part::kFlood) return 0;
    measure_health(daemon, dir, smoke ? 50 : 20'000);
    measure_tokens(daemon, 8, smoke ? 20 : 2000);
    measure_sse(daemon, "one", 16, smoke ? 20 : 2000);
    measure_flood(daemon, smoke ? 400 : 10'000, smoke ? 40'000 : 1'000'000);
    measure_swap(daemon, smoke ? 4 : 200);
    measure_load(daemon, dir / "models/large.gguf", smoke ? 1 : 9);
  }
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  using hearth::bench::Part;
  const std::map<std::string_view, Part> parts = {{"--smoke", Part::kSmoke},
                                                  {"--tokens", Part::kTokens},
                                                  {"--sse", Part::kSse},
                                                  {"--stall", Part::kStall},
                                                  {"--flood", Part::kFlood}};
  const auto part = argc == 2 ? parts.find(argv[1]) : parts.end();
  const bool shape = argc == 3 && std::string_view(argv[1]) == "--shape";
  if (argc > 1 && !shape && part == parts.end()) {
    std::fputs(
        "usage: hearth-broker-bench [--shape NAME | --smoke | --tokens | --sse | --stall | "
        "--flood]\n",
        stderr);
    return 2;
  }
  return hearth::bench::run(part == parts.end() ? Part::kAll : part->second,
                            shape ? argv[2] : "0.1B");
}
