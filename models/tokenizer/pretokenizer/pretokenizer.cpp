#include "models/tokenizer/pretokenizer/pretokenizer.h"

namespace hearth::models {
namespace {

constexpr Stage kGpt2[] = {stages::gpt2};
constexpr Stage kDigitsThenGpt2[] = {stages::each_number, stages::gpt2};
constexpr Stage kDefault[] = {stages::punctuation, stages::gpt2, stages::numbers,
                              stages::three_ascii_digits};
constexpr Stage kFalcon[] = {stages::ascii_and_other_punctuation, stages::gpt2,
                             stages::three_ascii_digits};
constexpr Stage kLlama3[] = {stages::llama3};
constexpr Stage kQwen2[] = {stages::qwen2};
constexpr Stage kQwen35[] = {stages::qwen35};
constexpr Stage kSeedCoder[] = {stages::seed_coder};
constexpr Stage kMinicpm5[] = {stages::numbers_by_three, stages::minicpm5};
constexpr Stage kTekken[] = {stages::tekken};
constexpr Stage kGpt4o[] = {stages::gpt4o};
constexpr Stage kKimi[] = {stages::kimi};
constexpr Stage kDeepseekLlm[] = {stages::each_newline,         stages::deepseek_cased_letters,
                                  stages::deepseek_punctuation, stages::trailing_space,
                                  stages::deepseek_east_asian,  stages::each_number};
constexpr Stage kDeepseekCoder[] = {stages::each_newline, stages::letters_with_space,
                                    stages::punctuation_with_space, stages::deepseek_east_asian,
                                    stages::each_number};
constexpr Stage kDeepseek3[] = {stages::numbers_by_three, stages::han_and_kana, stages::deepseek3};
constexpr Stage kBloom[] = {stages::bloom};
constexpr Stage kViking[] = {stages::bloom, stages::each_number};

struct Named {
  std::string_view name;  // tokenizer.ggml.pre
  PreTokenizer rule;
};

// The rules of the models' own tokenizer.json files, grouped by model family.
constexpr Named kNamed[] = {
    {"default", {kDefault}},

    {"gpt-2", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"mpt", {.stages = kGpt2, .composes = true}},
    {"olmo", {.stages = kGpt2, .composes = true}},
    {"jais", {kGpt2}},
    {"trillion", {kGpt2}},
    {"exaone4", {kGpt2}},
    {"gigachat", {kGpt2}},
    {"a.x-4.0", {kGpt2}},
    {"mellum", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"roberta-bpe", {kGpt2}},
    {"modern-bert", {kGpt2}},
    {"jina-es", {kGpt2}},
    {"jina-de", {kGpt2}},
    {"jina-v1-en", {kGpt2}},
    {"jina-v2-es", {kGpt2}},
    {"jina-v2-de", {kGpt2}},
    {"jina-v2-code", {kGpt2}},

    {"starcoder", {kDigitsThenGpt2}},
    {"refact", {kDigitsThenGpt2}},
    {"command-r", {.stages = kDigitsThenGpt2, .composes = true}},
    {"smollm", {kDigitsThenGpt2}},
    {"codeshell", {kDigitsThenGpt2}},
    {"exaone", {kDigitsThenGpt2}},
    {"minerva-7b", {kDigitsThenGpt2}},

    {"falcon", {kFalcon}},

    {"llama-bpe", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"llama3", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"llama-v3", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"falcon3", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"falcon-h1", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"pixtral", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"midm-2.0", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"lfm2", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"jina-v5-nano", {.stages = kLlama3, .whole_pieces_first = true, .adds_bos = true}},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"glm4", {kLlama3}},
    {"chatglm-bpe", {kLlama3}},

    {"qwen2", {.stages = kQwen2, .composes = true}},
    {"qwen35", {.stages = kQwen35, .composes = true}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"kormo", {kQwen2}},
    {"f2llmv2", {kQwen2}},
    {"megrez", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"hunyuan", {kQwen2}},
    {"solar-open", {kQwen2}},
    {"grok-2", {kQwen2}},
    {"bailingmoe", {kQwen2}},
    {"bailingmoe2", {kQwen2}},
    {"llada-moe", {kQwen2}},
    {"seed-coder", {kSeedCoder}},
    {"minicpm5", {kMinicpm5}},

    {"tekken", {.stages = kTekken, .whole_pieces_first = true, .adds_bos = true}},
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"kanana2", {kGpt4o}},
    {"minimax-m2", {kGpt4o}},
    {"kimi-k2", {.stages = kKimi, .whole_pieces_first = true}},

    {"deepseek-llm", {kDeepseekLlm}},
    {"deepseek-coder", {kDeepseekCoder}},
    {"deepseek-v3", {kDeepseek3}},
    {"step35", {kDeepseek3}},
    {"hunyuan-dense", {kDeepseek3}},
    {"joyai-llm", {kDeepseek3}},

    {"bloom", {kBloom}},
    {"poro-chat", {kBloom}},
    {"gpt3-finnish", {kBloom}},
    {"viking", {kViking}},
};

}  // namespace

const PreTokenizer* PreTokenizer::find(std::string_view name) {
  for (const Named& named : kNamed) {
    if (named.name == name) return &named.rule;
  }
  return nullptr;
}

std::string PreTokenizer::known_names() {
  std::string names;
  for (const Named& named : kNamed) {
    if (!names.empty()) names += ", ";
    names += named.name;
  }
  return names;
}

}  // namespace hearth::models
