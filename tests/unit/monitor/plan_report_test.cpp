// The contents of a plan, and invalid plans.

#include "monitor/snapshot/plan_report.h"

#include <doctest/doctest.h>

#include <string>

namespace hearth::monitor {
namespace {

const std::string kPlan = R"({"model":"tales","memory":{"device_bytes":1073741824,
  "weight_bytes":104857600,"kv_bytes":52428800,"activation_bytes":1048576,"fits":true},
  "contexts":[{"context":1024,"sequences":40},{"context":2048,"sequences":20}],
  "decode":[{"sequences":1,"tokens_per_s":412.5},{"sequences":8,"tokens_per_s":2000}],
  "prefill":{"tokens_per_s":9000.04},
  "ceilings":{"read_bytes_per_s":44.4e9,"f32_ops_per_s":1e11,"int8_ops_per_s":2.129e12}})";

TEST_CASE("a plan in lines, and the ceilings used for it") {
  const auto plan = parse_plan(kPlan);
  REQUIRE(plan.ok());
  CHECK(plan->model == "tales");
  CHECK(plan->fits);
  CHECK(plan->read_bytes_per_s == 44.4e9);
  CHECK(plan->ops_per_s == 2.129e12);
  const auto value = [&](const std::string& label) {
    for (const auto& [name, text] : plan->lines) {
      if (name == label) return text;
    }
    return std::string("none");
  };
  CHECK(value("Weights") == "100.0 MiB");
  CHECK(value("Context of 2048 tokens") == "20 sequences at once");
  CHECK(value("Decode of 8 at once") == "at most 2000.0 tokens/s");
  CHECK(value("Prefill") == "at most 9000.0 tokens/s");
}

TEST_CASE("hostile plans") {
  for (const char* text : {"", "[]", "{}", "{\"memory\":1}", "nonsense", "{\"memory\":{}"}) {
    CHECK_FALSE(parse_plan(text).ok());
  }
  const auto wild = parse_plan(
      R"({"model":"a\u001b[2Jb","memory":{"weight_bytes":1e300,"kv_bytes":-5,"fits":"yes",
          "refusal":7},"contexts":[1,"x",{"context":"big"}],"decode":{"a":1},"prefill":[],
          "ceilings":{"read_bytes_per_s":-1,"f32_ops_per_s":null}})");
  REQUIRE(wild.ok());
  CHECK(wild->model.find('\x1b') == std::string::npos);
  CHECK_FALSE(wild->fits);
  CHECK(wild->read_bytes_per_s == 0);
  CHECK(wild->ops_per_s == 0);
  std::string many = R"({"memory":{},"contexts":[)";
  for (int i = 0; i < 1000; ++i) many += R"({"context":1,"sequences":1},)";
  many += "1]}";
  REQUIRE(parse_plan(many).ok());
  CHECK(parse_plan(many)->lines.size() < 30);
}

}  // namespace
}  // namespace hearth::monitor
