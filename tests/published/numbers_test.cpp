// Published models compared with llama.cpp: token ids, greedy ids in F32, likelihoods, and the loss
// of the published types.

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/paths.h"
#include "tests/published/published_model.h"

namespace hearth::published {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

/// Two engines may differ where the best two logits are closer than this, in F32.
constexpr double kNearTie = 2e-3;

/// The stdout of a program of the build; the test fails unless it ends with 0.
std::string output_of(const std::vector<std::string>& argv, const fs::path& directory) {
  const fs::path out = directory / "output";
  fs::remove(out);
  std::vector<std::string> shell = {"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"",
                                    (directory / "stderr").string()};
  shell.insert(shell.end(), argv.begin(), argv.end());
  const pid_t pid = e2e::start_program(shell, out);
  const std::optional<int> status = e2e::wait_for_exit(pid, 10 * e2e::kPatienceMs);
  REQUIRE(status.has_value());
  REQUIRE_MESSAGE(*status == 0, e2e::text_of(directory / "stderr"));
  return e2e::text_of(out);
}

std::string hearth() { return e2e::program("hearth").string(); }

fs::path quantized_to_f32(const fs::path& file, const e2e::Sandbox& sandbox) {
  const fs::path out = sandbox.models() / "f32.gguf";
  output_of({hearth(), "quantize", file.string(), out.string(), "--type", "F32", "--requantize"},
            sandbox.path());
  return out;
}

/// Compares greedy ids up to the first near tie where the engines differ.
void check_greedy(const Ids& met, const Json& wanted) {
  const Ids ids = wanted.at("greedy").get<Ids>();
  REQUIRE(met.size() == ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const double margin = wanted.at("margins").at(i).get<double>();
    if (met[i] != ids[i] && margin < kNearTie) {
      MESSAGE("near tie at token " << i << ", margin " << margin);
      return;
    }
    REQUIRE_MESSAGE(met[i] == ids[i], "token " << i << ", margin " << margin);
  }
}

void ids_equal(const Model& model) {
  const Json want = recorded(model);
  const e2e::Sandbox sandbox;
  quantized_to_f32(file_of(model), sandbox);
  const e2e::Daemon daemon(sandbox, {"worker.kv_type=f32", "worker.kv_bytes=268435456"});
  ipc::Client client = daemon.connect();

  for (const Json& each : want.at("texts")) {
    ipc::TokenizeRequest request;
    request.text = each.at("text").get<std::string>();
    const Result<ipc::TokenizeReply> reply = client.tokenize(request);
    REQUIRE_MESSAGE(reply.ok(), (reply.ok() ? "" : reply.error().message));
    CHECK_MESSAGE(reply->ids == each.at("ids").get<Ids>(), request.text);
  }

  ipc::GenerateRequest greedy;
  greedy.temperature = 0;
  greedy.ignore_eos = true;
  for (const Json& each : want.at("prompts")) {
    CAPTURE(each.at("prompt").get<std::string>());
    greedy.prompt = each.at("prompt").get<std::string>();
    greedy.max_tokens = static_cast<int32_t>(each.at("greedy").size());
    const e2e::Answer answer = e2e::run(client, greedy);
    REQUIRE_MESSAGE(answer.done.has_value(), e2e::why(answer));
    CHECK(answer.done->usage.prompt_tokens == static_cast<int32_t>(each.at("ids").size()));
    check_greedy(answer.ids.at(0), each);
  }

  if (!want.contains("chat")) return;
  const Json& chat = want.at("chat");
  ipc::TokenizeRequest conversation;
  conversation.messages.text = chat.at("messages").dump();
  const Result<ipc::TokenizeReply> rendered = client.tokenize(conversation);
  REQUIRE_MESSAGE(rendered.ok(), (rendered.ok() ? "" : rendered.error().message));
  CHECK(rendered->ids == chat.at("ids").get<Ids>());
  greedy.prompt.clear();
  greedy.messages.text = conversation.messages.text;
  greedy.max_tokens = static_cast<int32_t>(chat.at("greedy").size());
  const e2e::Answer answer = e2e::run(client, greedy);
  REQUIRE_MESSAGE(answer.done.has_value(), e2e::why(answer));
  check_greedy(answer.ids.at(0), chat);
}

void forecasts_equal(const Model& model) {
  const Json want = recorded(model).at("windows");
  const e2e::Sandbox sandbox;
  const fs::path file = file_of(model);
  const fs::path f32 = quantized_to_f32(file, sandbox);
  const auto perplexity = [&](const fs::path& of, const std::vector<std::string>& more) {
    std::vector<std::string> argv = {hearth(), "perplexity", of.string(), "--json"};
    for (const auto& [option, key] :
         {std::pair{"--context", "context"}, {"--stride", "stride"}, {"--tokens", "text_tokens"}}) {
      argv.insert(argv.end(), {option, std::to_string(want.at(key).get<int>())});
    }
    argv.insert(argv.end(), {"-f", hearth::tests::source_path("tests/published/text.txt")});
    argv.insert(argv.end(), more.begin(), more.end());
    return Json::parse(output_of(argv, sandbox.path()));
  };
  const Json exact = perplexity(f32, {"--kv-type", "f32"});
  CHECK(exact.at("tokens") == want.at("scored"));
  MESSAGE("F32: " << exact.at("nll") << " nats per token, llama.cpp " << want.at("f32_nll"));
  CHECK(exact.at("nll").get<double>() ==
        doctest::Approx(want.at("f32_nll").get<double>()).epsilon(1e-4));
  // KL of the published types from F32, over the same windows.
  const Json published = perplexity(file, {"--against", f32.string()});
  const double kl = published.at("kl").get<double>(), theirs = want.at("kl").get<double>();
  MESSAGE("KL: " << kl << " nats per token, llama.cpp " << theirs << ", ratio " << kl / theirs);
  CHECK(kl <= 1.05 * theirs);
  CHECK(published.at("nll").get<double>() ==
        doctest::Approx(want.at("nll").get<double>()).epsilon(5e-3));
  // And with llama-perplexity's own windows.
  const Json theirs_windows = recorded(model).at("llama_perplexity");
  const auto halves = [&](const fs::path& of, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--halves"};
    words.insert(words.end(), more.begin(), more.end());
    const Json out = perplexity(of, words);
    CHECK(out.at("tokens") == theirs_windows.at("scored"));
    return out.at("nll").get<double>();
  };
  CHECK(halves(f32, {"--kv-type", "f32"}) ==
        doctest::Approx(theirs_windows.at("f32_nll").get<double>()).epsilon(1e-4));
  CHECK(halves(file, {}) == doctest::Approx(theirs_windows.at("nll").get<double>()).epsilon(5e-3));
}

TEST_CASE("SmolLM2 in F32: token ids and greedy ids equal llama.cpp's") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  ids_equal(kSmolLm2);
}

TEST_CASE("SmolLM2: likelihoods equal llama.cpp's, KL of Q4_1 is at most 1.05 times its") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  forecasts_equal(kSmolLm2);
}

TEST_CASE("Gemma 3 in F32: token ids and greedy ids equal llama.cpp's") {
  HEARTH_NEEDS_MODEL(kGemma3);
  ids_equal(kGemma3);
}

TEST_CASE("Gemma 3: likelihoods equal llama.cpp's, KL of Q4_K_M is at most 1.05 times its") {
  HEARTH_NEEDS_MODEL(kGemma3);
  forecasts_equal(kGemma3);
}

}  // namespace
}  // namespace hearth::published
