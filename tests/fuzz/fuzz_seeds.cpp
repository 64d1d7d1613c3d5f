// fuzz_seeds DIRECTORY: writes the seeds of each fuzz target, DIRECTORY/TARGET/*. The corpora in
// the repository came from these by fuzzing and minimising (run.sh --keep).

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "daemon/broker/transport/zmtp.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"
#include "ipc/wire/worker_pipe.h"
#include "kernels/quant/quant_layout.h"
#include "tests/fuzz/seeds.h"
#include "tests/split_model.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/importance_file.h"
#include "tests/unit/models/raw_gguf.h"
#include "tests/unit/models/tiny_model.h"

namespace {

namespace fs = std::filesystem;
using namespace hearth;
using fuzz::Folder;
using namespace hearth::models;

/// A value of every type, arrays of every type, nested ones, an alignment, tensors of several
/// types.
RawGguf every_type(uint32_t version) {
  RawGguf raw(4, 26, version);
  raw.entry<uint32_t>("general.alignment", GgufType::kU32, 64);
  raw.entry<uint8_t>("u8", GgufType::kU8, 200).entry<int8_t>("i8", GgufType::kI8, -3);
  raw.entry<uint16_t>("u16", GgufType::kU16, 60000).entry<int16_t>("i16", GgufType::kI16, -300);
  raw.entry<uint32_t>("u32", GgufType::kU32, 4000000000u);
  raw.entry<int32_t>("i32", GgufType::kI32, -70000);
  raw.entry<uint64_t>("u64", GgufType::kU64, ~uint64_t{0});
  raw.entry<int64_t>("i64", GgufType::kI64, -1);
  raw.entry<float>("f32", GgufType::kF32, 1.5f).entry<double>("f64", GgufType::kF64, -2.5);
  raw.entry<uint8_t>("bool", GgufType::kBool, 1);
  raw.key("text", GgufType::kString).text("abc");
  const auto array = [&raw](const char* key, GgufType type, uint64_t count) -> RawGguf& {
    return raw.key(key, GgufType::kArray).put(static_cast<uint32_t>(type)).put(count);
  };
  array("u8s", GgufType::kU8, 2).put<uint8_t>(1).put<uint8_t>(2);
  array("i8s", GgufType::kI8, 1).put<int8_t>(-1);
  array("u16s", GgufType::kU16, 1).put<uint16_t>(7);
  array("i16s", GgufType::kI16, 1).put<int16_t>(-7);
  array("u32s", GgufType::kU32, 1).put<uint32_t>(7);
  array("i32s", GgufType::kI32, 2).put<int32_t>(-7).put<int32_t>(7);
  array("u64s", GgufType::kU64, 1).put<uint64_t>(7);
  array("i64s", GgufType::kI64, 1).put<int64_t>(-7);
  array("f32s", GgufType::kF32, 2).put(1.0f).put(2.0f);
  array("f64s", GgufType::kF64, 1).put(1.0);
  array("bools", GgufType::kBool, 2).put<uint8_t>(0).put<uint8_t>(1);
  array("texts", GgufType::kString, 2).text("a").text("");
  array("arrays", GgufType::kArray, 1).put(static_cast<uint32_t>(GgufType::kU8)).put<uint64_t>(1);
  raw.put<uint8_t>(9);
  raw.tensor("f32", {4, 2}, 0, 0).tensor("f16", {4}, 1, 64).tensor("q8", {32, 1, 1, 1}, 8, 128);
  raw.tensor("later", {1}, 77, 192);
  return raw.data(256, 64);
}

/// A model in so many parts, one after another.
std::vector<std::byte> in_parts(const std::vector<std::byte>& whole, uint16_t count) {
  std::vector<std::byte> out;
  for (const GgufWriter& part : tests::split_model(GgufFile::parse(whole, "m").value(), count)) {
    const std::vector<std::byte> bytes = part.bytes();
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

/// Importance matrices: one that fits, one with one count for all experts, and ones that do not
/// fit.
void imatrix(Folder out) {
  out.add(layer_importance().bytes());
  for (const float count : {0.0f, 2.0f, -1.0f, NAN}) {
    GgufWriter w = importance_header();
    add_constant(&w, "blk.0.ffn_up_exps.weight.in_sum2", {kLayerCols * kLayerExperts, 1}, 1);
    add_constant(&w, "blk.0.ffn_up_exps.weight.counts", {1, 1}, count);
    out.add(w.bytes());
  }
  GgufWriter alone = importance_header();
  add_constant(&alone, "blk.0.attn_q.weight.in_sum2", {kLayerCols, 1}, 1);
  out.add(alone.bytes());
  GgufWriter other = importance_header();
  add_constant(&other, "blk.1.attn_q.weight.in_sum2", {kLayerCols, 2}, NAN);
  add_constant(&other, "blk.1.attn_q.weight.counts", {1, 2}, 1, kernels::DType::kF16);
  out.add(other.bytes());
  out.add(small_layer().bytes());
}

void gguf(Folder out) {
  out.add(every_type(3).bytes());
  out.add(every_type(2).bytes());
  GgufWriter no_vocabulary;
  no_vocabulary.set_string("general.architecture", "llama");
  set_llama_metadata(&no_vocabulary);
  add_llama_tensors(&no_vocabulary, 16);
  out.add(no_vocabulary.bytes());
  out.add(in_parts(no_vocabulary.bytes(), 2));
  out.add(in_parts(no_vocabulary.bytes(), 3));
  out.add(tiny_model().bytes());
  out.add(tiny_heads().bytes());
  out.add(tiny_eagle3().bytes());
  out.add(tiny_dflash().bytes());
  out.add(tiny_adapter().bytes());
  out.add(vocab_file(small_vocab()).bytes());
  out.add(vocab_file(small_bpe_vocab(), "llama-bpe").bytes());
  // One wrong thing each.
  out.add(RawGguf(0, 0, 0x03000000).bytes());
  out.add(RawGguf(0, 0, 9).bytes());
  out.add(RawGguf(1, 0).bytes());
  out.add(RawGguf(0, 1).bytes());
  out.add(RawGguf(0, 2)
              .entry<uint8_t>("a", GgufType::kU8, 1)
              .entry<uint8_t>("a", GgufType::kU8, 1)
              .bytes());
  out.add(RawGguf(0, 1).entry<uint8_t>("a", GgufType::kBool, 2).bytes());
  out.add(RawGguf(0, 1).entry<uint32_t>("general.alignment", GgufType::kU32, 3).bytes());
  out.add(RawGguf(0, 1).entry<float>("a", GgufType::kF32, HUGE_VALF).bytes());
  out.add(RawGguf(0, 1)
              .key("a", GgufType::kArray)
              .put(static_cast<uint32_t>(GgufType::kF32))
              .put<uint64_t>(1)
              .put(HUGE_VALF)
              .bytes());
  RawGguf deep(0, 1);
  deep.key("a", GgufType::kArray);
  for (int i = 0; i < 12; ++i) deep.put(static_cast<uint32_t>(GgufType::kArray)).put<uint64_t>(1);
  out.add(deep.bytes());
  out.add(RawGguf(2, 0).tensor("a", {1}, 0, 0).tensor("a", {1}, 0, 32).data(64).bytes());
  out.add(RawGguf(2, 0).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 0).data(64).bytes());
  out.add(RawGguf(1, 0).tensor("a", {33}, 8, 0).data(64).bytes());
  out.add(RawGguf(1, 0).tensor("a", {uint64_t{1} << 62}, 0, 0).data(64).bytes());
  out.add(RawGguf(1, 0).tensor("a", {8}, 0, 3).data(64).bytes());
  out.add(RawGguf(1, 0).tensor("a", {8}, 0, 64).data(64).bytes());
  out.add(RawGguf(1, 0).tensor("a", {8}, 77, 64).data(64).bytes());
  out.add(RawGguf(1, 0).tensor("a", {0}, 0, 0).data(64).bytes());
  out.add(RawGguf(1, 0).tensor("", {1}, 0, 0).data(64).bytes());
  for (const kernels::DType type : kernels::kQuantTypes) {  // one block, and a byte less
    const kernels::DTypeInfo& info = kernels::info(type);
    RawGguf block(1, 0);
    block.tensor("a", {static_cast<uint64_t>(info.block_elements)}, static_cast<uint32_t>(type), 0);
    RawGguf less = block;
    out.add(block.data(static_cast<size_t>(info.block_bytes)).bytes());
    out.add(less.data(static_cast<size_t>(info.block_bytes) - 1).bytes());
  }
}

/// Noise with many low numbers, and with the byte that triggers rare choices.
void vocabulary(Folder out) {
  std::mt19937 random(7);
  for (int i = 0; i < 600; ++i) {
    std::string bytes;
    while (bytes.size() < 20u + static_cast<size_t>(i)) {
      switch (random() % 8) {
        case 0: bytes.push_back('\xA5'); break;
        case 1:
        case 2: bytes.push_back(static_cast<char>(random() % 8)); break;
        case 3: bytes += "<0x41>"; break;
        default: bytes.push_back(static_cast<char>(random() % 256));
      }
    }
    out.add(bytes);
  }
}

void tokenizer(Folder out) {
  std::string one_piece;
  while (one_piece.size() < 600) one_piece += "abcbcab";
  for (char which = 0; which < 20; ++which) {
    out.add(std::string(1, which) + '\0' + one_piece);
    out.add(std::string(1, which) + '\0' +
            "we're I'll They've 'S 'D 'M 'T 'x \xF0\x9F\x91\x8D\xCC\x81");
    for (const char* text :
         {"The abc, it's 1984 and  3.14!\n\n  don't <|end|> \xC3\xA9t\xC3\xA9 CamelCaseWORDs",
          "\xE4\xB8\xAD\xE6\x96\x87\xD0\xBC\xD0\xB8\xD1\x80 e\xCC\x81 \xF0\x9F\x98\x80\xFF\xE2\x82"
          "<tool>\t\r\n ==!= a_b"}) {
      out.add(std::string(1, which) + static_cast<char>(which % 2) + text);
    }
  }
}

void wire(Folder out) {
  using namespace hearth::ipc;
  const std::string gap(1, '\x1E');
  const auto client = [&](const std::string& json) {
    out.add(std::string(1, 0) + std::string(kProtocol) + gap + "r1" + gap + json);
  };
  GenerateRequest full;
  full.prompt = "Once";
  full.seed = 7;
  full.stop = {"END"};
  full.stop_ids = {1, 2};
  full.logit_bias = {{3, -1.5f}};
  GenerateRequest ids;
  ids.prompt_ids = {1, 2, 3};
  for (const ClientRequest& request : std::vector<ClientRequest>{
           PingRequest{}, full, ids, TokenizeRequest{"m", "text", true, true}, CancelRequest{"r1"},
           ModelsRequest{}, PsRequest{}, StatsRequest{}, HealthRequest{}}) {
    client(encode_request(request));
  }
  for (const char* wrong : {R"({"verb":"nonesuch"})",
                            R"({"verb":7})",
                            R"({"verb":"generate","temperature":"hot"})",
                            R"({"verb":"generate","n":0})",
                            R"({"verb":"generate","model":7})",
                            R"({"verb":"generate","model":"a\u0001"})",
                            R"({"verb":"generate","model":""})",
                            R"({"verb":"generate","seed":-1})",
                            R"({"verb":"generate","priority":"high"})",
                            R"({"verb":"generate","stop":7})",
                            R"({"verb":"generate","stop":[7]})",
                            R"({"verb":"generate","stop_ids":[-1]})",
                            R"({"verb":"generate","prompt_ids":[]})",
                            R"({"verb":"generate","logit_bias":[7]})",
                            R"({"verb":"generate","logit_bias":[[-1,0]]})",
                            R"({"verb":"generate","logit_bias":[[1,"x"]]})",
                            R"({"verb":"generate","raw":1})",
                            R"({"verb":"generate","prompt":"a","prompt_ids":[1]})",
                            R"({"verb":"generate","nonesuch":1})",
                            R"({"verb":"generate","prompt":"a","min_tokens":9,"max_tokens":3})",
                            R"({"verb":"cancel"})",
                            R"({"verb":"tokenize"})",
                            R"({"verb":"generate"})",
                            R"({"verb":"generate","prompt":null})",
                            R"({"verb":"generate","temperature":1e999})",
                            R"({"verb":"generate","n":1.5})"}) {
    client(wrong);
  }
  const auto daemon = [&](const std::string& frames) {
    out.add(std::string(1, 1) + std::string(kProtocol) + gap + "r1" + gap + frames);
  };
  ModelsReply models_reply;
  models_reply.models.resize(1);
  models_reply.folders = {"/m"};
  PsReply ps;
  ps.requests.resize(1);
  StatsReply stats;
  stats.workers.resize(1);
  stats.workers[0].snapshot.kv_blocks_total = {1, 2};
  for (const Event& event : std::vector<Event>{
           QueuedEvent{"busy", 1, 2}, ProgressEvent{1, 2}, StartedEvent{"m", 1, 0, 0.5},
           PromptLogprobsEvent{{-1.0f}}, SampleDoneEvent{0, "stop", 2}, DoneEvent{},
           ErrorEvent{{ErrorCode::kBusy, "busy", "model"}, 5}, PongReply{},
           TokenizeReply{"m", {1}, {"a"}}, CancelReply{"r"}, models_reply, ps, stats,
           HealthReply{"ok", {"p"}}}) {
    daemon("event" + gap + encode_event(event));
  }
  for (const char* wrong :
       {R"({})", R"({"event":"nonesuch"})", R"({"event":"reply","verb":"nonesuch"})",
        R"({"event":"queued","position":"x"})", R"({"event":"queued","position":9999999999})",
        R"({"event":"done","timings":{"ttft_ms":"x"}})",
        R"({"event":"started","queue_ms":null})"}) {
    daemon("event" + gap + wrong);
  }
  const std::vector<TokenLogprobs> logprobs = {{-0.5f, {{3, -1.0f}}}};
  const std::vector<int32_t> one = {7};
  const std::string payload = encode_delta_payload({0, 0, 1, 0}, "text");
  daemon("delta" + gap + payload + gap + encode_ids(one));
  daemon("delta" + gap + payload + gap + encode_ids(one) + gap + encode_logprobs(logprobs));
  daemon("delta" + gap + "short" + gap + encode_ids(one));
  daemon("delta" + gap + payload + gap + "123");
  daemon("delta" + gap + payload + gap + encode_ids(one) + encode_ids(one));
  daemon("delta" + gap + encode_delta_payload({0, 0, 1, 5}, "text") + gap + encode_ids(one));
  daemon("delta" + gap + encode_delta_payload({0, 0, 1, 0}, "\xFF") + gap + encode_ids(one));
  daemon("delta" + gap + payload + gap + encode_ids(one) + gap + "[]");
  WorkerEnvelope envelope;
  envelope.owner = "uid:1";
  envelope.resume = {{1, 2}};
  const auto pipe = [&out](std::initializer_list<PipeMessage> messages) {
    std::string bytes;
    for (const PipeMessage& message : messages) append_pipe_message(bytes, message);
    out.add("\x02\x07" + bytes);
  };
  const std::string first = encode_worker_request(envelope, full);
  envelope.resume.clear();
  const std::string second = encode_worker_request(envelope, TokenizeRequest{});
  pipe({{PipeKind::kRequest, 1, first}, {PipeKind::kRequest, 2, second}});
  for (const WorkerControl control :
       {WorkerControl::kCancel, WorkerControl::kDrain, WorkerControl::kStop,
        WorkerControl::kKvBound, WorkerControl::kSleep, WorkerControl::kWake}) {
    pipe({{PipeKind::kControl, 1, encode_worker_control(control)}});
  }
  for (const WorkerEvent& event :
       std::vector<WorkerEvent>{WorkerHello{1, "v", "cpu"}, WorkerLoadProgress{1, 2, "reading"},
                                WorkerReady{}, WorkerFailed{{ErrorCode::kCorrupt, "no", ""}},
                                WorkerHeartbeat{}, WorkerStopped{}, WorkerAsleep{4}}) {
    pipe({{PipeKind::kEvent, 0, encode_worker_event(event)}});
  }
  pipe({{PipeKind::kEvent, 0, R"({"event":"nonesuch"})"},
        {PipeKind::kControl, 1, R"({"control":"nonesuch"})"},
        {PipeKind::kRequest, 1, R"({"verb":"ping"})"},
        {PipeKind::kWatch, 0, "1"}});
  pipe({{static_cast<PipeKind>(kNumPipeKinds), 0, ""}});
  std::string answers;
  const std::string health = encode_event(HealthReply{"ok", {}});
  const std::string delta_payload = encode_delta_payload({0, 0, 1, 0}, "a");
  const std::string one_id = encode_ids(std::vector{1});
  append_answer(answers, 1,
                {.is_delta = false, .json = health, .payload = {}, .ids = {}, .logprobs = {}});
  append_answer(
      answers, 2,
      {.is_delta = true, .json = {}, .payload = delta_payload, .ids = one_id, .logprobs = {}});
  pipe({{PipeKind::kAnswers, 0, answers}});
  out.add(std::string(1, 3) + answers);
  out.add(std::string(1, 3) + answers.substr(0, answers.size() - 1));
  for (const char* text :
       {R"({"a":[1,-2,3.5,true,null,"x"],"b":{"c":{"d":1}}})", R"({"a":1,"a":2})",
        R"({"a":[[[[[1]]]]]})", R"({"a":1e999})", "[1]", "{\"a\":\"\xFF\"}",
        R"({"a":1,"b":2,"c":3,"d":4,"e":5})", "{\"a\":", "",
        R"({"a":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21]})", "null", "true", "-7",
        "1.5", "\"x\"", R"({"a":[[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,[]]]})"}) {
    out.add(std::string(1, 4) + text);
  }
  out.add(std::string(1, 5) +
          "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xC0\x80\xED\xA0\x80\xF5\xFF\xC3");
}

/// Edits of a database; see store_fuzz.
void store(const fs::path& directory) {
  Folder out(directory);
  const auto two = [](int value) {
    return std::string{static_cast<char>(value & 255), static_cast<char>(value >> 8)};
  };
  constexpr int kColumns = 18;
  constexpr int kExtremes = 11;
  // The file's head, a page of its tree, its end; a cut.
  for (const int page : {0, 1, 2, 5, 9}) {
    for (const int at : {16, 18, 96, 100, 103, 4000, 32760}) {
      for (const char flip : {'\x01', '\x80'}) {
        out.add(std::string(1, '\0') + static_cast<char>(page) + two(at) + flip);
      }
    }
    out.add(std::string(1, '\0') + static_cast<char>(page) + two(page * 100) +
            std::string(1, '\0'));
  }
  for (int column = 0; column < kColumns; ++column) {
    for (int extreme = 0; extreme < kExtremes; ++extreme) {
      out.add(std::string("\x01") + static_cast<char>(column) + std::string(2, '\0') +
              static_cast<char>(extreme) + "\x01");
    }
    for (const int kind : {2, 3}) {
      for (const int length : {0, 1, 16, 60}) {
        const std::string size =
            kind == 2 ? std::string(1, static_cast<char>(length)) : two(length);
        out.add(std::string("\x01") + static_cast<char>(column) + "\x01" + static_cast<char>(kind) +
                size + std::string(static_cast<size_t>(length), 'x') + "\x01");
      }
    }
  }
}

/// Pieces of templates, and a conversation; see template_fuzz.
void chat_template(Folder out) {
  const std::string gap(1, '\x1E');
  const std::string conversation =
      R"({"messages":[{"role":"user","content":"hi"},{"role":"tool","content":[1,2.5,null]}],)"
      R"("tools":[{"name":"f"}],"k":true})";
  for (const char* source :
       {"{% for m in messages if m.role != 'x' %}{{ loop.index }}{{ m.content | trim }}{% else %}"
        "-{% endfor %}",
        "{%- set ns = namespace(a=1) -%}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ 'a' ~ 1.5 ~ none }}",
        "{% macro m(a, b='x') %}<{{ a }}{{ caller() if caller }}>{% endmacro %}"
        "{% call m(1) %}c{% endcall %}{{ m(b=2, a='q') | upper }}",
        "{{ messages[::-1][0]['role'][1:-1] }}{{ messages | map(attribute='role') | join(',') }}"
        "{{ tools | tojson(indent=2) }}{{ {'a': (1, [2])} }}",
        "{% set x | replace('a', 'b') %}aa{% endset %}{{ x }}{# c #}{% raw %}{{ y }}{% endraw %}",
        "{% if k is defined and not (k is string) %}{{ 7 // 2 ** 3 % 5 }}{% elif 1 < 2 <= 3 %}"
        "{% endif %}",
        "{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
        "{{ 'a,b'.split(',')[-1].strip().startswith(('b', 'c')) }}{{ 'x' * 3 }}{{ -1 | abs }}",
        "{% filter indent(2, true) %}a\nb{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}",
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "{{ [3, 1] | sort | first }}{{ {'b': 1} | dictsort }}{{ 'a%s' | format(1) }}",
        "{% for a in range(9) %}{% if a == 2 %}{% continue %}{% endif %}{% break %}{% endfor %}",
        "{{ raise_exception('no') }}", "{{ '\\u00e9\\n' ~ 0x1f ~ 1e3 }}{{ strftime_now('%Y') }}"}) {
    out.add(source + gap + conversation);
  }
}

/// Connections of clients and listeners; see zmtp_fuzz.
void zmtp(Folder out) {
  namespace wire = broker::zmtp;
  for (const char piece : {0, 1, 6, 63}) {
    std::string bytes{piece, 1};
    wire::append_ready(bytes, "DEALER");
    wire::append_frame(bytes, "HEARTH/1", true);
    wire::append_frame(bytes, "", true);
    wire::append_frame(bytes, R"({"verb":"ping"})", false);
    out.add(bytes);
    wire::append_command(bytes, "PING",
                         std::string("\0\x0a"
                                     "abc",
                                     5));
    wire::append_command(bytes, "SUBSCRIBE", "metrics");
    wire::append_frame(bytes, std::string("\1events"), false);
    wire::append_frame(bytes, std::string(280, 'x'), false);
    for (int i = 0; i < 5; ++i) wire::append_frame(bytes, "f", true);
    wire::append_frame(bytes, "end", false);
    out.add(bytes);
    bytes = {piece, 0};
    bytes += wire::greeting();
    wire::append_error(bytes, "no");
    out.add(bytes);
    out.add(std::string{piece, 1} + std::string("\2\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 9));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIRECTORY\n");
    return 2;
  }
  const fs::path directory = argv[1];
  gguf(directory / "gguf");
  imatrix(directory / "imatrix");
  vocabulary(directory / "vocabulary");
  tokenizer(directory / "tokenizer");
  wire(directory / "wire");
  store(directory / "store");
  fuzz::http_seeds(directory / "http");
  fuzz::remote_seeds(directory / "remote");
  chat_template(directory / "template");
  fuzz::grammar_seeds(directory / "grammar");
  fuzz::answer_seeds(directory / "answer");
  zmtp(directory / "zmtp");
  return 0;
}
