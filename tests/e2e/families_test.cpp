// A tiny file of every family in every verb that reads models: inspect, plan, bench, models and
// load. A model that runs must be measured: one whose plan is unknown would count as no memory.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/family_file.h"
#include "tests/e2e/http_client.h"
#include "tests/golden/family_model.h"
#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

struct Family {
  std::string name;
  bool generates = true;
};

/// An encoder's recording has texts where the others have ids.
golden::FamilyModel read_encoder(const std::string& name) {
  std::ifstream in(hearth::tests::source_path("tests/golden/encoders/") + name + ".json");
  const Json root = Json::parse(in);
  golden::FamilyModel m;
  root.at("name").get_to(m.name);
  root.at("architecture").get_to(m.architecture);
  root.at("seed").get_to(m.seed);
  m.metadata = root.at("metadata");
  for (const Json& each : root.at("tensors")) {
    m.tensors.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
  }
  return m;
}

std::vector<Family> write_all(const Sandbox& sandbox) {
  std::vector<Family> out;
  for (const std::string& name : golden::family_names()) {
    golden::FamilyModel model = golden::read_family(name);
    model.metadata["tokenizer.chat_template"] = "{{ messages[0].content }}";
    write_family(model, sandbox.models() / (name + ".gguf"));
    out.push_back({name, true});
  }
  for (const char* name : {"bert", "nomic-bert"}) {
    write_family(read_encoder(name), sandbox.models() / (std::string(name) + ".gguf"));
    out.push_back({name, false});
  }
  return out;
}

void check_measuring(const Sandbox& sandbox, const Family& family) {
  const CommandOutcome measured = run_hearth(
      sandbox, "bench --json --quick --rounds 1 --read-mib 4 --threads 1 " + family.name);
  if (family.generates) {
    REQUIRE_MESSAGE(measured.status == 0, measured.err);
    const Json report = Json::parse(measured.out);
    CHECK_FALSE(report["cases"].empty());
    for (const Json& each : report["cases"]) CHECK(each["tokens_per_s"] > 0);
  } else {
    CHECK(measured.status == 1);
    CHECK_MESSAGE(measured.err.find("makes vectors") != std::string::npos, measured.err);
  }
}

void check_writing(const Sandbox& sandbox, const Family& family) {
  const std::string more = " 'Once upon' --no-start --max-tokens 4 --temperature 0 --ignore-eos";
  const CommandOutcome run = run_hearth(sandbox, "run --raw --ids " + family.name + more);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(std::ranges::count(run.out, ' ') >= 3);
  const CommandOutcome chat = run_hearth(sandbox, "chat " + family.name + more);
  CHECK_MESSAGE(chat.status == 0, chat.err);
}

TEST_CASE("every family is inspected, planned, measured, run, loaded and counted") {
  const Sandbox sandbox;
  const std::vector<Family> families = write_all(sandbox);
  REQUIRE(families.size() >= 18);
  const Daemon daemon(sandbox, {"limits.max_resident=128", "worker.kv_bytes=1048576"});
  // Under a sanitizer measuring takes most of the time.
  const size_t measure_each = tests::kSanitized && !tests::full_counts() ? 8 : 1;
  for (size_t i = 0; i < families.size(); ++i) {
    const Family& family = families[i];
    CAPTURE(family.name);
    const CommandOutcome inspected = run_hearth(sandbox, "inspect --json " + family.name);
    REQUIRE_MESSAGE(inspected.status == 0, inspected.err);
    CHECK_MESSAGE(Json::parse(inspected.out)["runs"] == true, inspected.out);

    const CommandOutcome planned = run_hearth(
        sandbox,
        "plan --json --bandwidth 10GB/s --flops 1e12 --memory 1GB --context 64 " + family.name);
    REQUIRE_MESSAGE(planned.status == 0, planned.err);
    const Json plan = Json::parse(planned.out)["memory"];
    CHECK(plan["weight_bytes"].get<uint64_t>() > 0);
    CHECK(plan["kv_bytes"].get<uint64_t>() > 0);

    if (i % measure_each == 0 || !family.generates) check_measuring(sandbox, family);

    if (family.generates) check_writing(sandbox, family);

    const CommandOutcome loaded = run_hearth(sandbox, "load --no-start --json " + family.name);
    REQUIRE_MESSAGE(loaded.status == 0, loaded.err);
    CHECK(Json::parse(loaded.out)["weight_bytes"].get<uint64_t>() > 0);
  }
  const CommandOutcome models = run_hearth(sandbox, "models --json");
  REQUIRE(models.status == 0);
  size_t resident = 0;
  const Json reply = Json::parse(models.out);
  for (const Json& model : reply["models"]) {
    CAPTURE(model["name"].get<std::string>());
    if (model["state"] != "resident") continue;
    ++resident;
    // Residency counts what was planned: at least weights and KV.
    CHECK(model["memory_bytes"].get<uint64_t>() >=
          model["weight_bytes"].get<uint64_t>() + model["kv_bytes"].get<uint64_t>());
  }
  CHECK(resident == families.size());
}

TEST_CASE("a model that ranks scores texts on the command line and over HTTP") {
  const Sandbox sandbox;
  write_family(read_encoder("bert-rank"), sandbox.models() / "ranker.gguf");
  write_family(read_encoder("bert"), sandbox.models() / "plain.gguf");
  const Daemon daemon(sandbox);
  const CommandOutcome inspected = run_hearth(sandbox, "inspect ranker");
  CHECK_MESSAGE(inspected.out.find("of pairs of texts") != std::string::npos, inspected.out);
  std::ofstream(sandbox.path() / "documents") << "aa b\nc\nthe d e f\n";
  const std::string documents = " --lines -f " + (sandbox.path() / "documents").string();
  const CommandOutcome scored =
      run_hearth(sandbox, "embed --no-start ranker --query q --json" + documents);
  REQUIRE_MESSAGE(scored.status == 0, scored.err);
  const Json scores = Json::parse(scored.out);
  REQUIRE(scores["dimensions"] == 1);
  REQUIRE(scores["vectors"].size() == 3);

  HttpClient http(daemon);
  const HttpAnswer answer =
      http.ask("POST", "/v1/rerank",
               R"({"model":"ranker","query":"q","documents":["aa b","c","the d e f"],"top_n":2})");
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  const Json results = Json::parse(answer.body)["results"];
  REQUIRE(results.size() == 2);
  CHECK(results[0]["relevance_score"] >= results[1]["relevance_score"]);
  for (const Json& each : results) {
    const double score = each["relevance_score"];
    CHECK(score > 0);
    CHECK(score < 1);
    CHECK(static_cast<float>(score) ==
          scores["vectors"][each["index"].get<size_t>()][0].get<float>());
  }
  // Encoders have no logits.
  for (const char* verb : {"perplexity plain --context 64", "imatrix plain -o none.gguf"}) {
    const CommandOutcome encoder =
        run_hearth(sandbox, verb + (" -f " + (sandbox.path() / "documents").string()));
    CHECK(encoder.status == 1);
    CHECK_MESSAGE(encoder.err.find("is an encoder") != std::string::npos, encoder.err);
  }
  // It makes no vectors of its own accord, and other models make no scores.
  CHECK(run_hearth(sandbox, "embed --no-start ranker a").status == 1);
  CHECK(run_hearth(sandbox, "embed --no-start ranker --pooling mean a").status == 0);
  const HttpAnswer refused =
      http.ask("POST", "/v1/rerank", R"({"model":"plain","query":"q","documents":["a"]})");
  CHECK(refused.status == 400);
  CHECK_MESSAGE(refused.body.find("does not rank") != std::string::npos, refused.body);
}

}  // namespace
}  // namespace hearth::e2e
