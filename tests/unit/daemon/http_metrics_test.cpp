#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/answers/metrics.h"

namespace hearth::http {
namespace {

struct Line {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

/// A whole page, read by the rules of the text format 0.0.4; each violation fails the test.
struct ReadPage {
  std::map<std::string, std::string> types;
  std::map<std::string, std::string> helps;
  std::vector<Line> lines;

  /// The value of the line with this name and these labels; NaN: there is none.
  double value(const std::string& name, const std::map<std::string, std::string>& labels) const {
    for (const Line& line : lines) {
      if (line.name == name && line.labels == labels) return line.value;
    }
    return std::nan("");
  }
};

bool is_name(std::string_view name, bool colon) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  for (const char c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && !(colon && c == ':')) {
      return false;
    }
  }
  return true;
}

/// `text`: what follows the name of a line, without its value.
std::map<std::string, std::string> read_labels(std::string_view text) {
  std::map<std::string, std::string> out;
  if (text.empty()) return out;
  REQUIRE(text.starts_with('{'));
  REQUIRE(text.ends_with('}'));
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t equals = text.find("=\"");
    REQUIRE(equals != std::string_view::npos);
    const std::string name(text.substr(0, equals));
    CHECK(is_name(name, false));
    text.remove_prefix(equals + 2);
    std::string value;
    while (!text.empty() && text[0] != '"') {
      if (text[0] == '\\') text.remove_prefix(1);
      REQUIRE_FALSE(text.empty());
      value += text[0];
      text.remove_prefix(1);
    }
    REQUIRE(text.starts_with('"'));
    text.remove_prefix(1);
    CHECK(out.emplace(name, value).second);
    if (text.empty()) break;
    REQUIRE(text.starts_with(','));
    text.remove_prefix(1);
  }
  return out;
}

/// The metric that a line belongs to.
std::string family_of(const ReadPage& page, const std::string& name) {
  if (page.types.contains(name)) return name;
  for (const std::string_view suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string family = name.substr(0, name.size() - suffix.size());
    const auto found = page.types.find(family);
    if (found != page.types.end() && found->second == "histogram") return family;
  }
  return "";
}

ReadPage read_page(const std::string& text) {
  ReadPage page;
  REQUIRE(text.ends_with('\n'));
  std::istringstream in(text);
  std::string current;
  for (std::string line; std::getline(in, line);) {
    CAPTURE(line);
    std::istringstream words(line);
    std::string hash, keyword, name;
    if (line.starts_with("# ")) {
      words >> hash >> keyword >> name;
      CHECK(is_name(name, true));
      std::string rest;
      std::getline(words >> std::ws, rest);
      CHECK_FALSE(rest.empty());
      if (keyword == "HELP") {
        CHECK(page.helps.emplace(name, rest).second);
        current = name;
      } else {
        REQUIRE(keyword == "TYPE");
        CHECK(name == current);
        CHECK((rest == "gauge" || rest == "counter" || rest == "histogram"));
        CHECK(page.types.emplace(name, rest).second);
      }
      continue;
    }
    const size_t space = line.rfind(' ');
    REQUIRE(space != std::string::npos);
    const size_t brace = std::min(line.find('{'), space);
    Line& read = page.lines.emplace_back();
    read.name = line.substr(0, brace);
    CHECK(is_name(read.name, true));
    CHECK(family_of(page, read.name) == current);  // all lines of a metric stand together
    read.labels = read_labels(std::string_view(line).substr(brace, space - brace));
    char* end = nullptr;
    read.value = std::strtod(line.c_str() + space + 1, &end);
    CHECK(*end == '\0');
    CHECK(std::isfinite(read.value));
  }
  return page;
}

/// Buckets ascend in bound and count, and end with +Inf, which is the count.
void check_histogram(const ReadPage& page, const std::string& name,
                     const std::map<std::string, std::string>& labels) {
  CAPTURE(name);
  CHECK(page.types.at(name) == "histogram");
  double bound = -1, count = 0;
  for (const Line& line : page.lines) {
    if (line.name != name + "_bucket") continue;
    auto without = line.labels;
    const std::string le = without["le"];
    without.erase("le");
    if (without != labels) continue;
    const double next = le == "+Inf" ? HUGE_VAL : std::stod(le);
    CHECK(next > bound);
    CHECK(line.value >= count);
    bound = next;
    count = line.value;
  }
  CHECK(bound == HUGE_VAL);
  CHECK(count == page.value(name + "_count", labels));
  CHECK(page.value(name + "_sum", labels) >= 0);
}

/// A model on a worker, and one that has none and is waited for.
struct Reported {
  Reported() {
    stats.workers.resize(1);
    stats.workers[0].model = kOdd;
    ipc::WorkerSnapshot& s = stats.workers[0].snapshot;
    s.num_running = 3;
    s.num_waiting = 4;
    s.num_preempted = 1;
    s.kv_blocks_total = {100, 40};
    s.kv_blocks_used = {25, 30};
    s.speculation.verifications = 10;
    s.speculation.drafted_tokens = 50;
    s.speculation.accepted_tokens = 20;
    s.speculation.drafted_at = {10, 8};
    s.speculation.accepted_at = {7, 3};
    s.speculation.saved_ms = -1500;
    s.speculation.by = {{"lookup", 20, 5}, {"mtp", 30, 15}};
    ModelTraffic& odd = traffic[kOdd];
    odd.num_waiting = 2;
    odd.block_size = 16;
    odd.num_blocks = 100;
    for (const int64_t us : std::vector<int64_t>{500, 1000, 30'000, 3'000'000'000})
      odd.ttft.add(us);
    for (const int64_t us : {100, 3'000, 9'999, 10'000, 10'001, 90'000'000}) odd.gaps.add(us);
    traffic["parked"].num_waiting = 5;
    stats.remotes = {{.role = kOdd, .remote = "gpu.example.com", .requests_live = 2}};
    stats.remotes[0].requests_sent = 9;
    stats.remotes[0].requests_returned = 4;
  }
  ReadPage page() const { return read_page(metrics_text(stats, {}, {}, traffic)); }

  inline static const std::string kOdd = R"(a "b" {c}, \d)";
  ipc::StatsReply stats;
  ModelTraffics traffic;
};

TEST_CASE("metrics are a valid page, whatever the models' names") {
  const Reported reported;
  const ReadPage page = reported.page();
  for (const Line& line : page.lines) {
    const std::string family = family_of(page, line.name);
    CHECK((family.starts_with("hearth_") || family.starts_with("vllm:")));
    CHECK(page.helps.contains(family));
  }
  std::set<std::string> seen;
  for (const Line& line : page.lines) {
    std::string key = line.name;
    for (const auto& [name, value] : line.labels) key += fmt::format("|{}={}", name, value);
    CHECK_MESSAGE(seen.insert(key).second, key);
  }
  for (const char* name : {"hearth_ttft_seconds", "hearth_token_gap_seconds"}) {
    for (const std::string& model : {Reported::kOdd, std::string("parked")}) {
      check_histogram(page, name, {{"model", model}});
    }
  }
  for (const std::string& model : {Reported::kOdd, std::string("parked")}) {
    check_histogram(page, "vllm:time_to_first_token_seconds", {{"model_name", model}});
  }
  // What the broker measures is not vLLM's meaning of this name.
  CHECK_FALSE(page.types.contains("vllm:inter_token_latency_seconds"));
  read_page(metrics_text({}));
}

TEST_CASE("routers find the figures of a vLLM server under its names") {
  const Reported reported;
  const ReadPage page = reported.page();
  const std::map<std::string, std::string> odd{{"model_name", Reported::kOdd}};
  const std::map<std::string, std::string> parked{{"model_name", "parked"}};
  CHECK(page.types.at("vllm:num_requests_waiting") == "gauge");
  CHECK(page.value("vllm:num_requests_running", odd) == 3);
  CHECK(page.value("vllm:num_requests_waiting", odd) == 4 + 1 + 2);
  CHECK(page.value("vllm:num_requests_running", parked) == 0);
  CHECK(page.value("vllm:num_requests_waiting", parked) == 5);
  CHECK(page.value("hearth_requests_waiting", {{"model", "parked"}}) == 5);
  CHECK(page.value("vllm:kv_cache_usage_perc", odd) == 0.75);  // of the fullest pool
  CHECK(std::isnan(page.value("vllm:kv_cache_usage_perc", parked)));
  CHECK(page.value("vllm:cache_config_info", {{"block_size", "16"},
                                              {"num_gpu_blocks", "100"},
                                              {"model_name", Reported::kOdd}}) == 1);
  int infos = 0;
  for (const Line& line : page.lines) infos += line.name == "vllm:cache_config_info" ? 1 : 0;
  CHECK(infos == 1);
  CHECK(page.types.at("vllm:spec_decode_num_draft_tokens_total") == "counter");
  CHECK(page.value("vllm:spec_decode_num_drafts_total", odd) == 10);
  CHECK(page.value("vllm:spec_decode_num_draft_tokens_total", odd) == 50);
  CHECK(page.value("vllm:spec_decode_num_accepted_tokens_total", odd) == 20);
}

TEST_CASE("drafts are counted by proposer and by place, with the time that they saved") {
  const Reported reported;
  const ReadPage page = reported.page();
  const auto value = [&](const std::string& name, const char* key, const char* which) {
    return page.value("hearth_" + name, {{"model", Reported::kOdd}, {key, which}});
  };
  CHECK(value("proposer_drafted_tokens_total", "proposer", "mtp") == 30);
  CHECK(value("proposer_accepted_tokens_total", "proposer", "lookup") == 5);
  CHECK(value("place_drafted_tokens_total", "place", "1") == 10);
  CHECK(value("place_drafted_tokens_total", "place", "2") == 8);
  CHECK(value("place_accepted_tokens_total", "place", "2") == 3);
  CHECK(std::isnan(value("place_accepted_tokens_total", "place", "3")));
  CHECK(page.types.at("hearth_drafts_saved_seconds") == "gauge");
  CHECK(page.value("hearth_drafts_saved_seconds", {{"model", Reported::kOdd}}) == -1.5);
}

TEST_CASE("histograms count durations up to their bound") {
  const Reported reported;
  const ReadPage page = reported.page();
  const auto at = [&](const std::string& name, const std::string& key, const std::string& le) {
    return page.value(name + "_bucket", {{key, Reported::kOdd}, {"le", le}});
  };
  for (const std::string name : {"hearth_ttft_seconds", "vllm:time_to_first_token_seconds"}) {
    const std::string key = name.starts_with("vllm") ? "model_name" : "model";
    CHECK(at(name, key, "0.001") == 2);
    CHECK(at(name, key, "0.02") == 2);
    CHECK(at(name, key, "0.04") == 3);
    CHECK(at(name, key, "2560.0") == 3);
    CHECK(at(name, key, "+Inf") == 4);
    CHECK(page.value(name + "_sum", {{key, Reported::kOdd}}) == doctest::Approx(3000.0315));
  }
  CHECK(at("hearth_token_gap_seconds", "model", "0.001") == 1);
  CHECK(at("hearth_token_gap_seconds", "model", "0.01") == 4);
  CHECK(at("hearth_token_gap_seconds", "model", "0.025") == 5);
  CHECK(at("hearth_token_gap_seconds", "model", "40.0") == 5);
  CHECK(at("hearth_token_gap_seconds", "model", "+Inf") == 6);
  for (const auto bounds :
       {std::span<const DurationBound>(kTtftBounds), std::span<const DurationBound>(kGapBounds)}) {
    for (const DurationBound& bound : bounds) {
      CHECK(std::stod(std::string(bound.seconds)) * 1e6 ==
            doctest::Approx(static_cast<double>(bound.us)));
    }
  }
}

TEST_CASE("usage of KV blocks is within 0 and 1, and absent before an engine has reported") {
  const std::map<std::string, std::string> labels{{"model_name", "m"}};
  ipc::StatsReply stats;
  stats.workers.resize(1);
  stats.workers[0].model = "m";
  ModelTraffics traffic;
  traffic["m"];
  ipc::WorkerSnapshot& s = stats.workers[0].snapshot;
  const auto usage = [&] {
    return read_page(metrics_text(stats, {}, {}, traffic))
        .value("vllm:kv_cache_usage_perc", labels);
  };
  CHECK(std::isnan(usage()));
  s.kv_blocks_total = {0, 8};
  CHECK(std::isnan(usage()));  // a report cut short
  s.kv_blocks_used = {5, 0};
  CHECK(usage() == 0);
  s.kv_blocks_used = {0, 9};
  CHECK(usage() == 1);
}

TEST_CASE("remotes of roles are counted, and absent where none is configured") {
  Reported reported;
  const std::map<std::string, std::string> labels{{"role", Reported::kOdd},
                                                  {"remote", "gpu.example.com"}};
  std::map<std::string, std::string> returned = labels;
  returned["how"] = "returned";
  CHECK(reported.page().value("hearth_remote_requests_live", labels) == 2);
  CHECK(reported.page().value("hearth_remote_requests_total", labels) == 9);
  CHECK(reported.page().value("hearth_remote_requests_ended_total", returned) == 4);
  reported.stats.remotes.clear();
  CHECK_FALSE(reported.page().helps.contains("hearth_remote_requests_live"));
}

TEST_CASE("readiness gives its reason as a JSON text") {
  CHECK(ready_body({}) == R"({"ready":true})");
  CHECK(ready_body(Error::unavailable("stopping \"now\"\n\xff")) ==
        "{\"ready\":false,\"reason\":\"stopping \\\"now\\\"\\n\xEF\xBF\xBD\"}");
}

}  // namespace
}  // namespace hearth::http
