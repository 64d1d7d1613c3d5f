// The verbs that compute without a daemon, run as a shell would run them.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/e2e/daemon.h"
#include "tests/paths.h"

namespace hearth::e2e {
namespace {

using nlohmann::json;

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

/// hearth with these words of a shell, without a home folder, and with only the bundled models.
Outcome hearth(const Sandbox& sandbox, const std::string& words, const std::string& input = "") {
  const std::string dir = sandbox.path().string();
  std::ofstream(sandbox.path() / "in") << input;
  const std::string command =
      "cd " + dir + " && HEARTH_RUNTIME_DIR=" + dir +
      "/run HEARTH_MODEL_DIRS=" + hearth::tests::source_path("models/demo ") +
      program("hearth").string() + " " + words + " <in >out 2>err";
  const pid_t pid = start_program({"/bin/sh", "-c", command});
  const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
  REQUIRE(how.has_value());
  return {WIFEXITED(*how) ? WEXITSTATUS(*how) : -1, text_of(sandbox.path() / "out"),
          text_of(sandbox.path() / "err")};
}

TEST_CASE("inspect shows the bundled model") {
  const Sandbox sandbox;
  const Outcome text = hearth(sandbox, "inspect tales");
  CHECK(text.status == 0);
  CHECK(text.err == "");
  CHECK(text.out.find("2048 bytes per token as f16") != std::string::npos);
  const Outcome machine =
      hearth(sandbox, "inspect --json " + hearth::tests::source_path("models/demo/tales.gguf"));
  CHECK(machine.status == 0);
  const json facts = json::parse(machine.out);
  CHECK(facts["architecture"] == "llama");
  CHECK(facts["parameters"] == 4196608);
  CHECK(facts["runs"] == true);
  CHECK(facts["tokenizer"]["size"] == 4096);
}

TEST_CASE("inspect of a file that is not a model names the reason") {
  const Sandbox sandbox;
  std::ofstream(sandbox.path() / "no.gguf") << "no model";
  const Outcome outcome = hearth(sandbox, "inspect no.gguf");
  CHECK(outcome.status == 1);
  CHECK(outcome.out == "");
  CHECK(outcome.err.find("magic") != std::string::npos);
  CHECK(hearth(sandbox, "inspect nonesuch").status == 1);
  CHECK(hearth(sandbox, "inspect").status == 2);
  CHECK(hearth(sandbox, "inspect --no-such-flag x").status == 2);
  CHECK(hearth(sandbox, "bench --quik x").err ==
        "hearth: bench: no option --quik; did you mean --quick?\n");
  const Outcome help = hearth(sandbox, "inspect --help");
  CHECK(help.status == 0);
  CHECK(help.out.find("hearth inspect") != std::string::npos);
}

TEST_CASE("tokenize works without a daemon, from words, a file and a pipe") {
  const Sandbox sandbox;
  const std::string text = "Once upon a time \xC3\xA9";
  const Outcome words = hearth(sandbox, "tokenize tales --json '" + text + "'");
  CHECK(words.status == 0);
  const json reply = json::parse(words.out);
  CHECK(reply["ids"].size() == reply["offsets"].size());
  CHECK(reply["ids"].size() == reply["pieces"].size());
  CHECK(reply["ids"][0] == 1);  // BOS
  CHECK(reply["offsets"].back()[1] == text.size());
  CHECK(json::parse(hearth(sandbox, "tokenize tales --json", text + "\n").out) == reply);
  std::ofstream(sandbox.path() / "text") << text;
  CHECK(json::parse(hearth(sandbox, "tokenize --model tales --json -f text").out) == reply);

  const Outcome ids = hearth(sandbox, "tokenize tales --ids --raw 'Once upon'");
  CHECK(ids.out == "2440 667\n");
  const Outcome plain = hearth(sandbox, "tokenize tales --ids --raw '</s>'");
  const Outcome special = hearth(sandbox, "tokenize tales --ids --raw --special '</s>'");
  CHECK(special.out == "2\n");
  CHECK(plain.out != special.out);
  CHECK(hearth(sandbox, "tokenize no/such.gguf x").status == 1);
  CHECK(hearth(sandbox, "tokenize").status == 2);
}

TEST_CASE("render shows the prompt that the model's chat template makes, and its tokens") {
  const Sandbox sandbox;
  std::ofstream(sandbox.path() / "chat.json")
      << R"({"messages":[{"role":"user","content":"Once"},{"role":"assistant","content":" upon"},)"
      << R"({"role":"user","content":"So"}]})";
  CHECK(hearth(sandbox, "render tales -f chat.json --prompt").out == "Once upon\n\nSo");
  const json reply = json::parse(hearth(sandbox, "render tales -f chat.json --json").out);
  CHECK(reply["prompt"] == "Once upon\n\nSo");
  CHECK(reply["ids"][0] == 1);  // BOS, which this template leaves to the encoder
  CHECK(reply["ids"].size() == reply["entries"].size());
  const Outcome ids = hearth(sandbox, "render tales --ids", R"({"messages":[]})");
  CHECK(ids.out == "1\n");
  const Outcome wrong = hearth(sandbox, "render tales", R"({"messages":7})");
  CHECK(wrong.status == 1);
  CHECK(wrong.err.find("messages") != std::string::npos);
  CHECK(hearth(sandbox, "render tales --template rag", R"({"messages":[]})").status == 1);
}

TEST_CASE("the help of cache names all its verbs, wherever they are implemented") {
  const Sandbox sandbox;
  const Outcome help = hearth(sandbox, "cache --help");
  CHECK(help.status == 0);
  for (const char* verb :
       {"ls", "stats", "rm", "pin", "unpin", "verify", "compact", "warm", "why"}) {
    CHECK_MESSAGE(help.out.find(std::string("\n  ") + verb + " ") != std::string::npos, verb);
  }
}

TEST_CASE("bench measures a shape and reports shares of the ceiling") {
  const Sandbox sandbox;
  const Outcome outcome =
      hearth(sandbox, "bench --quick --rounds 1 --read-mib 8 --json --shape tiny --type F16");
  CHECK(outcome.status == 0);
  CHECK(outcome.err.find("round 1 of 1") != std::string::npos);
  const json report = json::parse(outcome.out);
  CHECK(report["type"] == "F16");
  CHECK(report["ceilings"]["read_bytes_per_s"] > 0);
  CHECK(report["cases"].size() == 6);
  for (const json& each : report["cases"]) {
    CAPTURE(each.dump());
    CHECK(each["tokens_per_s"] > 0);
    CHECK(each["share"] > 0);
  }
}

TEST_CASE("bench writes a shape as a file that all other verbs read") {
  const Sandbox sandbox;
  CHECK(hearth(sandbox, "bench --write-shape tiny --type Q8_0 tiny.gguf").status == 0);
  const json facts = json::parse(hearth(sandbox, "inspect --json tiny.gguf").out);
  CHECK(facts["runs"] == true);
  CHECK(facts["types"][0]["type"] == "Q8_0");
  CHECK(hearth(sandbox, "tokenize tiny.gguf --ids abc").status == 0);
  CHECK(hearth(sandbox, "bench --quick --rounds 1 --read-mib 8 tiny.gguf").status == 0);
  CHECK(hearth(sandbox, "bench").status == 2);
  CHECK(hearth(sandbox, "bench --shape tiny tiny.gguf").status == 2);
  CHECK(hearth(sandbox, "bench --shape nonesuch").status == 1);
  CHECK(hearth(sandbox, "bench --shape tiny --type nonesuch").status == 1);
  CHECK(hearth(sandbox, "bench --shape tiny --mapping file").status == 1);
  CHECK(
      hearth(sandbox, "plan tiny.gguf --mapping nonesuch --bandwidth 1GB/s --memory 1GB").status ==
      1);
  const json plan = json::parse(hearth(sandbox, "plan --json tiny.gguf --mapping file").out);
  CHECK(plan["memory"]["in_file"]["bytes"].get<uint64_t>() > 0);
  CHECK(plan["memory"]["weight_bytes"] == 0);
}

TEST_CASE("plan shows sizes and rates of a model and of a shape before anything is loaded") {
  const Sandbox sandbox;
  const Outcome outcome =
      hearth(sandbox, "plan tales --bandwidth 10GB/s --memory 1GiB --context 64 --json");
  CHECK(outcome.status == 0);
  const json plan = json::parse(outcome.out);
  CHECK(plan["memory"]["fits"] == true);
  CHECK(plan["memory"]["device_bytes"] == 1u << 30);
  CHECK(plan["groups"][0]["kv_bytes_per_token_f16"] == 2048);
  CHECK(plan["decode"][0]["bound"] == "read");
  const Outcome text =
      hearth(sandbox, "plan --shape 13B --type BF16 --bandwidth 3.35TB/s --memory 80GB");
  CHECK(text.status == 0);
  CHECK(text.out.find(" 8.02 ") != std::string::npos);
  CHECK(text.out.find("2689.4") != std::string::npos);
  CHECK(hearth(sandbox, "plan tales --read-mib 8").out.find("ridge") != std::string::npos);
  const Outcome canvas =
      hearth(sandbox, "plan tales-canvas --bandwidth 10GB/s --memory 1GiB --context 64");
  CHECK_MESSAGE(canvas.out.find("A pass over 64 tokens") != std::string::npos, canvas.out);
  CHECK(canvas.out.find("tokens/s") == std::string::npos);
  CHECK(hearth(sandbox, "plan").status == 2);
  CHECK(hearth(sandbox, "plan tales --memory lots").status == 1);
  CHECK(hearth(sandbox, "plan tales --context 1000000").status == 1);
}

TEST_CASE("quantize writes a smaller model, perplexity measures its distance from the original") {
  const Sandbox sandbox;
  const Outcome written = hearth(sandbox, "quantize tales q8.gguf --type q8_0");
  CHECK(written.status == 0);
  CHECK(json::parse(hearth(sandbox, "inspect --json q8.gguf").out)["types"][0]["type"] == "Q8_0");
  const std::string text = "Once upon a time there was a poor woodcutter.";
  const Outcome outcome =
      hearth(sandbox, "perplexity q8.gguf -f - --against tales --context 64 --json", text);
  CHECK(outcome.status == 0);
  const json score = json::parse(outcome.out);
  CHECK(score["bytes"] == text.size());
  CHECK(score["kl"] > 0);
  CHECK(score["kl"] < 0.01);
  CHECK(score["bits_per_byte"] > 0);
  CHECK(hearth(sandbox, "perplexity tales -f none").status == 1);
  CHECK(hearth(sandbox, "perplexity tales").status == 2);
  const Outcome again = hearth(sandbox, "quantize tales q8.gguf --type Q4_K_M");
  CHECK(again.status == 1);
  CHECK(again.err.find("q8.gguf is there already; --force writes over it") != std::string::npos);
  CHECK(json::parse(hearth(sandbox, "inspect --json q8.gguf").out)["types"][0]["type"] == "Q8_0");
  CHECK(hearth(sandbox, "quantize tales q8.gguf --type q8_0 --force").status == 0);
  CHECK(hearth(sandbox, "quantize tales out.gguf --type Q9").status == 1);
  CHECK(hearth(sandbox, "quantize q8.gguf q8.gguf --type Q4_0").status == 1);
  CHECK(hearth(sandbox, "quantize tales --type Q8_0").status == 2);
}

TEST_CASE("imatrix measures a model's inputs, quantize weighs by them") {
  const Sandbox sandbox;
  const std::string text = "Once upon a time there was a poor woodcutter with two children.";
  const Outcome recorded = hearth(sandbox, "imatrix tales -f - -o m.gguf --context 16", text);
  CHECK(recorded.status == 0);
  CHECK(recorded.out.find("windows of up to 16 tokens") != std::string::npos);
  const Outcome again = hearth(sandbox, "imatrix tales -f - -o m.gguf", text);
  CHECK(again.status == 1);
  CHECK(again.err.find("m.gguf is there already; --force writes over it") != std::string::npos);
  CHECK(hearth(sandbox, "imatrix tales -f - -o m.gguf --force --tokens 4", text).status == 0);
  CHECK(hearth(sandbox, "imatrix tales -f - -o n.gguf", "").status == 1);
  CHECK(hearth(sandbox, "imatrix tales -f - -o n.gguf --context 1000000", text).status == 1);
  CHECK(hearth(sandbox, "imatrix tales -o n.gguf").status == 2);

  const Outcome written = hearth(sandbox, "quantize tales q4.gguf --type Q4_0 --imatrix m.gguf");
  CHECK(written.status == 0);
  CHECK(written.out.find("weighted by m.gguf") != std::string::npos);
  const Outcome scaled =
      hearth(sandbox, "quantize tales awq.gguf --type Q4_0 --imatrix m.gguf --awq");
  CHECK(scaled.status == 0);
  CHECK(scaled.out.find("of 16 places") != std::string::npos);
  const Outcome alone = hearth(sandbox, "quantize tales a.gguf --type Q4_0 --awq");
  CHECK(alone.status == 1);
  CHECK(alone.err.find("want --imatrix FILE") != std::string::npos);
  const Outcome wrong = hearth(sandbox, "quantize tales a.gguf --type Q4_0 --imatrix q4.gguf");
  CHECK(wrong.status == 1);
  CHECK(wrong.err.find("q4: general.type is ") != std::string::npos);
  const Outcome other = hearth(sandbox, "quantize tales-draft a.gguf --type Q4_0 --imatrix m.gguf");
  CHECK(other.status == 1);
  CHECK(other.err.find("m: ") != std::string::npos);
}

TEST_CASE("pull refuses invalid sources before it connects") {
  const Sandbox sandbox;
  const Outcome plain = hearth(sandbox, "pull http://models.example/a.gguf");
  CHECK(plain.status == 1);
  CHECK(plain.err.find("want https") != std::string::npos);
  CHECK(hearth(sandbox, "pull hf:owner/model.gguf").status == 1);
  CHECK(hearth(sandbox, "pull https://models.example/a.gguf --dir /proc/none").status == 1);
  CHECK(hearth(sandbox, "pull").status == 2);
  CHECK(hearth(sandbox, "pull --help").out.find("--sha256") != std::string::npos);
}

TEST_CASE("Ctrl-C while a shape is written leaves no file") {
  for (const int number : {SIGINT, SIGTERM}) {
    const Sandbox sandbox;
    const std::filesystem::path file = sandbox.path() / "m.gguf", part = file.string() + ".part";
    const pid_t pid = start_program({program("hearth").string(), "bench", "--write-shape", "M",
                                     "--type", "F32", file.string()});
    std::error_code ignored;
    CHECK(eventually([&] { return std::filesystem::file_size(part, ignored) + 1 > (1u << 20); }));
    CHECK(::kill(pid, number) == 0);
    const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
    REQUIRE(how.has_value());
    CHECK(WIFEXITED(*how));
    CHECK(WEXITSTATUS(*how) == 130);
    CHECK_FALSE(std::filesystem::exists(part));
    CHECK_FALSE(std::filesystem::exists(file));
  }
}

}  // namespace
}  // namespace hearth::e2e
