// Vectors of texts: tiny encoders compared with the published implementation in float64
// (tests/golden/encoders), decoders' rows with PyTorch's logits, and both with themselves alone, in
// a batch, in chunks and after a cached prefix.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "engine/engine.h"
#include "models/gguf/gguf_file.h"
#include "models/ranking/classifier.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;
using models::Pooling;

struct Text {
  std::vector<int32_t> ids;
  std::map<size_t, std::vector<double>> rows;
  std::vector<double> mean, cls;
  std::optional<double> score{};
};
struct EncoderModel {
  FamilyModel file;
  std::vector<Text> texts;
};

EncoderModel read_encoder(const std::string& name) {
  std::ifstream in(hearth::tests::source_path("tests/golden/encoders/") + name + ".json");
  REQUIRE_MESSAGE(in.good(), name);
  const auto root = nlohmann::json::parse(in);
  EncoderModel m;
  m.file.name = name;
  root.at("architecture").get_to(m.file.architecture);
  root.at("context").get_to(m.file.context);
  root.at("seed").get_to(m.file.seed);
  m.file.metadata = root.at("metadata");
  for (const auto& entry : root.at("tensors")) {
    m.file.tensors.push_back({entry.at(0), entry.at(1), entry.at(2), entry.at(3)});
  }
  for (const auto& entry : root.at("texts")) {
    Text& text = m.texts.emplace_back();
    entry.at("ids").get_to(text.ids);
    entry.at("mean").get_to(text.mean);
    entry.at("cls").get_to(text.cls);
    if (entry.contains("score")) text.score = entry.at("score").get<double>();
    for (const auto& [row, values] : entry.at("rows").items()) {
      text.rows[std::stoul(row)] = values.get<std::vector<double>>();
    }
  }
  return m;
}

/// An engine that is stepped by hand.
class Embedder {
 public:
  Embedder(const models::GgufFile& file, const kernels::OpTable& ops, EngineConfig config) {
    Result<std::unique_ptr<models::Model>> model = models::load_model(file, ops, nullptr);
    REQUIRE_MESSAGE(model.ok(), model.error().message);
    auto created = Engine::create(config, ops, std::move(model).value(), clock_);
    REQUIRE_MESSAGE(created.ok(), created.error().message);
    engine_ = std::move(created).value();
    engine_->warm_up();
  }

  void submit(RequestId id, std::vector<int32_t> ids, Pooling pooling, bool normalize = true) {
    Request request;
    request.id = id;
    request.owner = request.cache_salt = "uid:1000";
    request.prompt = std::move(ids);
    request.max_tokens = 0;
    request.pooling = pooling;
    request.normalize = normalize;
    engine_->inbox().post(std::move(request));
  }
  void post(EngineCommand command) { engine_->inbox().post(std::move(command)); }
  /// Runs until nothing is left; returns the vectors by request.
  std::map<RequestId, std::vector<float>> run() {
    bool more = true;
    while (more) {
      more = engine_->step();
      engine_->check_integrity();
      for (const auto& step : engine_->outbox().drain()) {
        for (const EngineEvent& event : step) {
          if (const auto* made = std::get_if<EmbeddingEvent>(&event))
            vectors_[made->id] = made->values;
          if (const auto* done = std::get_if<RequestDoneEvent>(&event)) done_[done->id] = *done;
          if (const auto* failed = std::get_if<RequestFailedEvent>(&event)) {
            errors_[failed->id] = failed->error;
          }
        }
      }
    }
    return vectors_;
  }
  std::vector<float> one(std::vector<int32_t> ids, Pooling pooling, bool normalize = true) {
    submit(1, std::move(ids), pooling, normalize);
    vectors_.clear();
    return run().at(1);
  }
  const std::map<RequestId, RequestDoneEvent>& done() const { return done_; }
  const std::map<RequestId, Error>& errors() const { return errors_; }
  Engine& engine() { return *engine_; }

 private:
  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::vector<float>> vectors_;
  std::map<RequestId, RequestDoneEvent> done_;
  std::map<RequestId, Error> errors_;
};

double worst(const std::vector<float>& met, const std::vector<double>& want) {
  REQUIRE(met.size() == want.size());
  double most = 0;
  for (size_t i = 0; i < met.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(met[i]) - want[i]));
  }
  return most;
}

std::vector<NamedTable> quiet_tables() {
  std::vector<NamedTable> tables = all_tables();
  for (const NamedTable& table : tables) table.ops.set_num_threads(table.ops.state.get(), 1);
  return tables;
}

TEST_CASE("encoders: rows and vectors equal those of the published implementation") {
  for (const std::string name : {"bert", "nomic-bert"}) {
    const EncoderModel model = read_encoder(name);
    // PyTorch's own f32 differs from its f64 by 1.2e-5 and 7.3e-5: attention is sharper in the
    // second.
    const double bound = name == "bert" ? 5e-5 : 3e-4;
    const OwnedFile owned(model.file.file_bytes(DType::kF32));
    for (const NamedTable& table : quiet_tables()) {
      INFO(name << " on " << table.name);
      Embedder embedder(owned.file, table.ops, {});
      CHECK(embedder.engine().model_info().pooling ==
            (name == "bert" ? Pooling::kCls : Pooling::kMean));
      CHECK_FALSE(embedder.engine().model_info().generates);
      for (const Text& text : model.texts) {
        CAPTURE(text.ids.size());
        CHECK(worst(embedder.one(text.ids, Pooling::kCls, false), text.rows.at(0)) < bound);
        CHECK(worst(embedder.one(text.ids, Pooling::kLast, false),
                    text.rows.at(text.ids.size() - 1)) < bound);
        CHECK(worst(embedder.one(text.ids, Pooling::kMean), text.mean) < bound / 5);
        CHECK(worst(embedder.one(text.ids, Pooling::kCls), text.cls) < bound / 5);
      }
    }
  }
}

TEST_CASE("encoders: scores of pairs equal those of the published implementation") {
  const EncoderModel model = read_encoder("bert-rank");
  for (const DType type : {DType::kF32, DType::kF16}) {
    const OwnedFile owned(model.file.file_bytes(type));
    const auto classifier = models::Classifier::load(owned.file);
    REQUIRE_MESSAGE(classifier.ok(), classifier.error().message);
    for (const NamedTable& table : quiet_tables()) {
      INFO(table.name);
      Embedder embedder(owned.file, table.ops, {});
      CHECK(embedder.engine().model_info().pooling == Pooling::kRank);
      for (const Text& text : model.texts) {
        CAPTURE(text.ids.size());
        const std::vector<float> row = embedder.one(text.ids, Pooling::kCls, false);
        const double score = classifier->score(row, false);
        CHECK(std::abs(score - text.score.value()) < 5e-5);
        CHECK(classifier->score(row, true) == doctest::Approx(1 / (1 + std::exp(-score))));
      }
    }
  }
}

TEST_CASE("encoders: a file with another classifier is refused by name") {
  const auto refused = [](const EncoderModel& model, ErrorCode code, std::string_view what) {
    const OwnedFile owned(model.file.file_bytes(DType::kF32));
    const auto loaded = models::Classifier::load(owned.file);
    REQUIRE_FALSE_MESSAGE(loaded.ok(), what);
    CHECK_MESSAGE(loaded.error().code == code, loaded.error().message);
    CHECK_MESSAGE(loaded.error().message.find(what) != std::string::npos, loaded.error().message);
  };
  const EncoderModel good = read_encoder("bert-rank");
  const auto changed = [&good](std::string_view tensor, auto change) {
    EncoderModel model = good;
    for (auto& each : model.file.tensors) {
      if (each.name == tensor) change(each);
    }
    return model;
  };
  refused(changed("cls.output.weight", [](auto& t) { t.name = "cls.other"; }),
          ErrorCode::kUnsupported, "cls.output.weight");
  refused(changed("cls.output.weight",
                  [](auto& t) {
                    t.dims = {64, 3};
                  }),
          ErrorCode::kUnsupported, "3 labels");
  refused(changed("cls.output.weight",
                  [](auto& t) {
                    t.dims = {64, 2};
                  }),
          ErrorCode::kCorrupt, "cls.output.bias");
  refused(changed("cls.weight",
                  [](auto& t) {
                    t.dims = {32, 64};
                  }),
          ErrorCode::kCorrupt, "cls.weight");
  refused(changed("cls.bias", [](auto& t) { t.dims = {63}; }), ErrorCode::kCorrupt, "cls.bias");
}

TEST_CASE("encoders: a text's vector is the same alone and in a batch, to the bit") {
  for (const std::string name : {"bert", "nomic-bert"}) {
    const EncoderModel model = read_encoder(name);
    for (const DType type : {DType::kF32, DType::kF16}) {
      const OwnedFile owned(model.file.file_bytes(type));
      for (const NamedTable& table : quiet_tables()) {
        if (table.name == "reference" && !tests::full_counts()) continue;
        INFO(name << " on " << table.name);
        std::vector<std::vector<int32_t>> texts;
        for (int32_t size = 1; size <= 80; size += 13) {
          texts.push_back(random_tokens(size, 96, static_cast<uint32_t>(size)));
        }
        Embedder alone(owned.file, table.ops, {});
        Embedder together(owned.file, table.ops, {});
        for (size_t i = 0; i < texts.size(); ++i) {
          together.submit(i + 1, texts[i], i % 2 == 0 ? Pooling::kMean : Pooling::kLast);
        }
        const auto vectors = together.run();
        REQUIRE(vectors.size() == texts.size());
        for (size_t i = 0; i < texts.size(); ++i) {
          CHECK(alone.one(texts[i], i % 2 == 0 ? Pooling::kMean : Pooling::kLast) ==
                vectors.at(i + 1));
        }
        CHECK(together.engine().snapshot().kv_blocks_used.front() == 0);
        CHECK(together.engine().snapshot().kv_blocks_cached.front() == 0);
      }
    }
  }
}

TEST_CASE("encoders generate no text, and refuse a text longer than their context") {
  const EncoderModel model = read_encoder("bert");
  const OwnedFile owned(model.file.file_bytes(DType::kF32));
  Embedder embedder(owned.file, quiet_tables().back().ops, {});
  Request request;
  request.id = 5;
  request.prompt = {1, 2};
  request.max_tokens = 4;
  embedder.post(request);
  embedder.submit(6, random_tokens(81, 96, 1), Pooling::kMean);
  embedder.submit(7, {1, 96}, Pooling::kMean);
  embedder.run();
  REQUIRE(embedder.errors().size() == 3);
  CHECK(embedder.errors().at(5).code == ErrorCode::kUnsupported);
  CHECK(embedder.errors().at(6).code == ErrorCode::kContextOverflow);
  CHECK(embedder.errors().at(7).code == ErrorCode::kInvalidArgument);
}

TEST_CASE("encoders: a file with other settings is refused by name") {
  const auto refused = [](EncoderModel model, ErrorCode code, std::string_view what) {
    const OwnedFile owned(model.file.file_bytes(DType::kF32));
    const auto loaded = models::load_model(owned.file, quiet_tables().front().ops, nullptr);
    REQUIRE_FALSE_MESSAGE(loaded.ok(), what);
    CHECK_MESSAGE(loaded.error().code == code, loaded.error().message);
    CHECK_MESSAGE(loaded.error().message.find(what) != std::string::npos, loaded.error().message);
  };
  EncoderModel model = read_encoder("bert");
  model.file.metadata["bert.pooling_type"] = 5;
  refused(model, ErrorCode::kCorrupt, "pooling_type");
  model = read_encoder("bert");
  model.file.metadata["bert.attention.causal"] = true;
  refused(model, ErrorCode::kUnsupported, "attention.causal");
  model = read_encoder("bert");
  model.file.metadata["bert.nonesuch"] = 3;
  refused(model, ErrorCode::kUnsupported, "nonesuch");
  model = read_encoder("bert");
  model.file.metadata["bert.context_length"] = 81;  // one more than there are rows
  refused(model, ErrorCode::kCorrupt, "position_embd.weight");
  for (size_t i = 0; i < read_encoder("bert").file.tensors.size(); ++i) {
    model = read_encoder("bert");
    const std::string name = model.file.tensors[i].name;
    if (name == "token_types.weight" || name.ends_with("output.bias") ||
        name.ends_with("ffn_up.bias") || name.ends_with("ffn_down.bias")) {
      continue;  // some files have none
    }
    model.file.tensors.erase(model.file.tensors.begin() + static_cast<ptrdiff_t>(i));
    if (name.ends_with("attn_q.bias")) {
      refused(model, ErrorCode::kUnsupported, "attn_k.bias");  // then the others are strangers
    } else {
      refused(model, ErrorCode::kCorrupt, name);
    }
  }
}

TEST_CASE("decoders: logits are computed from the row after the last norm") {
  const FamilyModel model = read_family("qwen2");
  const OwnedFile owned(model.file_bytes(DType::kF32));
  const auto tokens = model.all_but_last();
  const auto head = std::ranges::find_if(
      model.tensors, [&](const FamilyTensor& t) { return t.name == "output.weight"; });
  const FamilyTensor& used = head != model.tensors.end() ? *head : model.tensors.front();
  REQUIRE(used.dims.size() == 2);
  const std::vector<float> weight = family_values(used, model.seed);
  for (const NamedTable& table : quiet_tables()) {
    INFO(table.name);
    EngineConfig config;
    config.kv_type = DType::kF32;
    config.context_length = 128;
    config.scheduler.max_seqs = 4;
    Embedder embedder(owned.file, table.ops, config);
    for (const auto& [row, want] : model.logits) {
      const std::vector<float> met =
          embedder.one({tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(row) + 1},
                       Pooling::kLast, false);
      double most = 0, off = 0;
      for (size_t id = 0; id < want.size(); ++id) {
        double logit = 0;
        for (size_t i = 0; i < met.size(); ++i) {
          logit += static_cast<double>(met[i]) * weight[id * met.size() + i];
        }
        most = std::max(most, std::abs(want[id]));
        off = std::max(off, std::abs(logit - want[id]));
      }
      CHECK(off < 5e-5 * most);
    }
  }
}

TEST_CASE("decoders: in chunks, in a batch and after a cached prefix, the same bits") {
  const FamilyModel model = read_family("gemma3");  // with sliding layers
  const OwnedFile owned(model.file_bytes(DType::kQ8_0));
  const auto tokens = model.all_but_last();
  EngineConfig config;
  config.context_length = 128;
  config.scheduler.max_seqs = 8;
  for (const NamedTable& table : quiet_tables()) {
    if (table.name == "reference" && !tests::full_counts()) continue;
    INFO(table.name);
    for (const Pooling pooling : {Pooling::kMean, Pooling::kCls, Pooling::kLast}) {
      Embedder whole(owned.file, table.ops, config);
      const std::vector<float> want = whole.one(tokens, pooling);
      double length = 0;
      for (const float value : want) length += static_cast<double>(value) * value;
      CHECK(length == doctest::Approx(1.0));
      CHECK(whole.one(tokens, pooling) == want);  // the cache of the earlier runs changes nothing
      CHECK(whole.done().at(1).cached_tokens ==
            (pooling == Pooling::kLast ? (static_cast<int32_t>(tokens.size()) - 1) / 16 * 16 : 0));
      for (const int32_t chunk : {1, 7, 33}) {
        EngineConfig small = config;
        small.scheduler.max_step_tokens = chunk;
        CHECK(Embedder(owned.file, table.ops, small).one(tokens, pooling) == want);
      }
      Embedder among(owned.file, table.ops, config);
      for (RequestId id = 2; id < 7; ++id) {
        among.submit(id,
                     random_tokens(static_cast<int32_t>(9 * id), 128, static_cast<uint32_t>(id)),
                     id % 2 == 0 ? pooling : Pooling::kMean);
      }
      CHECK(among.one(tokens, pooling) == want);
    }
  }
}

}  // namespace
}  // namespace hearth::golden
