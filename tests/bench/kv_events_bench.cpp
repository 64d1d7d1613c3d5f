// hearth-kv-events-bench: what KV events cost the speed of decoding, with the real hearthd and
// workers of this build.
//
// Two daemons with the same model, one of which publishes all prefixes to a subscriber that reads
// them, stream the same request in turn. The ratio of a pair is the rate of tokens with events over
// that without, from the first token to the last.
//
//   hearth-kv-events-bench [--smoke | PAIRS]
// Measures the tiny model and shape 0.1B. Prints medians and quartiles of PAIRS (30) pairs; never
// judges. --smoke: tiny counts, for ctest.

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ipc/client/client.h"
#include "ipc/files/paths.h"
#include "ipc/wire/socket.h"
#include "kernels/base/check.h"
#include "models/random_model.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/tiny_shape.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;

/// Reads all events on a thread of its own.
class Subscriber {
 public:
  explicit Subscriber(const fs::path& runtime)
      : context_(ipc::Context::create().value()),
        socket_(ipc::Socket::open(context_, ipc::SocketType::kSub).value()) {
    HEARTH_CHECK(socket_.subscribe("kv@").ok());
    HEARTH_CHECK(socket_.connect(*ipc::ipc_endpoint(ipc::kv_events_socket(runtime))).ok());
    thread_ = std::thread([this] { run(); });
  }
  ~Subscriber() {
    stop_ = true;
    thread_.join();
  }
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;
  uint64_t messages() const { return messages_; }

 private:
  void run() {
    while (!stop_) {
      ipc::PollItem item{.socket = &socket_};
      ipc::poll({&item, 1}, 100);
      ipc::Message message;
      while (socket_.receive(message) == ipc::ReceiveOutcome::kReceived) ++messages_;
    }
  }

  ipc::Context context_;
  ipc::Socket socket_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> messages_{0};
  std::thread thread_;
};

/// Tokens per second after the first one.
double rate(ipc::Client& client, int32_t tokens, int32_t salt) {
  ipc::GenerateRequest request;
  request.model = "model";
  for (int32_t i = 0; i < 64; ++i) request.prompt_ids.push_back(300 + (salt * 31 + i * 7) % 200);
  request.max_tokens = tokens;
  request.temperature = 0;
  request.ignore_eos = true;
  request.speculate = false;
  int64_t first_us = 0, last_us = 0;
  uint32_t first_tokens = 0;
  ipc::GenerateCallbacks callbacks;
  callbacks.on_delta = [&](const ipc::Delta& delta) {
    last_us = now_us();
    if (first_us == 0) {
      first_us = last_us;
      first_tokens = delta.header.num_tokens;
    }
  };
  const Result<ipc::DoneEvent> done = client.generate(request, callbacks);
  HEARTH_CHECK(done.ok(), "{}", done.error().message);
  HEARTH_CHECK(done->usage.output_tokens == tokens && last_us > first_us);
  return (tokens - static_cast<double>(first_tokens)) * 1e6 /
         static_cast<double>(last_us - first_us);
}

void measure(const models::ModelShape& shape, int32_t tokens, int pairs) {
  const tests::TempDir temp;
  const auto model = models::RandomModel::create(shape, kernels::DType::kQ8_0, 1);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  const auto folder_of = [&](const char* name) {
    fs::create_directories(temp.path() / name / "models");
    const auto written =
        models::write_random_model(*model, temp.path() / name / "models/model.gguf", 2, nullptr);
    HEARTH_CHECK(written.ok(), "{}", written.error().message);
    return temp.path() / name;
  };
  const std::vector<std::string> settings = {"worker.prefix_store=false",
                                             "worker.kv_bytes=67108864"};
  std::vector<std::string> publishing = settings;
  publishing.emplace_back("kv_events.publish=all");
  const Daemon off(folder_of("off"), settings), on(folder_of("on"), publishing);
  const Subscriber subscriber(on.runtime());
  ipc::Client without = off.connect(), with = on.connect();
  rate(without, tokens, -1);  // loads and warms up
  rate(with, tokens, -1);
  std::vector<double> ratios, off_rates, on_rates;
  for (int pair = 0; pair < pairs; ++pair) {
    // Each goes first in half of the pairs.
    for (int turn = 0; turn < 2; ++turn) {
      const bool events = (turn == 0) == (pair % 2 == 0);
      (events ? on_rates : off_rates).push_back(rate(events ? with : without, tokens, pair));
    }
    ratios.push_back(on_rates.back() / off_rates.back());
  }
  HEARTH_CHECK(subscriber.messages() > 0, "the subscriber has received nothing");
  fmt::print(
      "{:<6} decode {:.1f} tokens/s without events, {:.1f} with: {:.4f}x (quartiles {:.4f}, "
      "{:.4f}; "
      "{} pairs of {} tokens, {} messages)\n",
      shape.name, quantile(off_rates, 0.5), quantile(on_rates, 0.5), quantile(ratios, 0.5),
      quantile(ratios, 0.25), quantile(ratios, 0.75), pairs, tokens, subscriber.messages());
}

int run(bool smoke, int pairs) {
  measure(kTinyShape, smoke ? 600 : 4000, pairs);
  if (smoke) return 0;
  measure(models::find_shape("0.1B").value(), 400, pairs);
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  const bool smoke = argc == 2 && std::string_view(argv[1]) == "--smoke";
  int pairs = smoke ? 2 : 30;
  if (argc == 2 && !smoke) {
    const auto [end, error] = std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), pairs);
    if (error != std::errc() || *end != 0 || pairs < 1) pairs = 0;
  }
  if (argc > 2 || pairs == 0) {
    std::fputs("usage: hearth-kv-events-bench [--smoke | PAIRS]\n", stderr);
    return 2;
  }
  return hearth::bench::run(smoke, pairs);
}
