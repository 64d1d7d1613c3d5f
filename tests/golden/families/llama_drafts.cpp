// What the layer for drafting of a file, or an EAGLE-3 head or a DFlash drafter for it, drafts in
// llama.cpp, for llama_drafts.py. Not part of the build: it needs llama.cpp's headers and library.
//
//   c++ -std=c++17 -O1 -I LLAMA/include -I LLAMA/src -I LLAMA/ggml/include llama_drafts.cpp -L
//   LLAMA/build/bin -lllama llama_drafts FILE.gguf HEAD.gguf FIRST COUNT ID...   (HEAD "-": the
//   file's own layer)
// Prints {"SIZE": [COUNT drafts], ...} for each SIZE from FIRST on up to all of the ids: the drafts
// after the first SIZE of them, each continued from the drafter's own row, of DFlash all from one
// pass. F32 KV, one thread.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "llama-ext.h"
#include "llama.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "llama_drafts: %s\n", what);
  std::exit(1);
}

llama_model* load(const char* path, bool with_layer) {
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.load_mtp = with_layer;
  llama_model* model = llama_model_load_from_file(path, params);
  if (model == nullptr) fail("a file does not load");
  return model;
}

llama_context* context_of(llama_model* model, llama_context* target, bool own_layer) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 256;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  if (own_layer) params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
  params.ctx_other = target;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) fail("no context");
  llama_set_embeddings_nextn(context, true, target != nullptr);
  return context;
}

/// One pass over `ids` from position `first` on; with `rows`, each token has the row before it.
void run(llama_context* context, const std::vector<int32_t>& ids, int32_t first,
         const std::vector<float>* rows, size_t width) {
  llama_batch_ext* batch = llama_batch_ext_init(context);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t at = llama_batch_ext_add_token(batch, 0, ids[i]);
    const llama_pos position = first + static_cast<llama_pos>(i);
    bool ok = at >= 0 && llama_batch_ext_set_pos(batch, at, &position);
    if (rows != nullptr) {
      ok = ok && llama_batch_ext_set_embd_token(batch, at, {rows->data() + i * width, 1, width});
    }
    if (i + 1 == ids.size()) ok = ok && llama_batch_ext_set_output_logits(batch, at, true);
    if (!ok) fail("a token was refused");
  }
  if (llama_process(context, LLAMA_PROCESS_TYPE_DECODE, batch) != 0) fail("a pass failed");
  llama_batch_ext_free(batch);
}

/// Gives a head the target's rows before its layers, of the last pass.
void give_rows(llama_context* target, llama_context* head, size_t count,
               llama_process_type process) {
  const llama_model* model = llama_get_model(head);
  const int32_t* layers = llama_model_target_layer_ids(model);
  const size_t num_layers = llama_model_target_layer_ids_n(model);
  const auto width = static_cast<size_t>(llama_model_n_embd(llama_get_model(target)));
  llama_batch_ext* batch = llama_batch_ext_init(head);
  std::vector<float> rows(count * num_layers * width);
  for (size_t i = 0; i < count; ++i) {
    float* row = rows.data() + i * num_layers * width;
    for (size_t layer = 0; layer < num_layers; ++layer) {
      const float* from =
          llama_get_embeddings_layer_inp(target, static_cast<uint32_t>(layers[layer])) + i * width;
      std::copy(from, from + width, row + layer * width);
    }
    const int32_t at = llama_batch_ext_add_embd(batch, 0, {row, 1, num_layers * width});
    const auto position = static_cast<llama_pos>(i);
    if (at < 0 || !llama_batch_ext_set_pos(batch, at, &position) ||
        !llama_batch_ext_set_output_logits(batch, at, true)) {
      fail("a row was refused");
    }
  }
  if (llama_process(head, process, batch) != 0) fail("the head refuses rows");
  llama_batch_ext_free(batch);
}

std::string text_of(const llama_model* model, const char* key) {
  char text[64] = "";
  llama_model_meta_val_str(model, key, text, sizeof text);
  return text;
}

/// The drafts of a DFlash drafter after `token`, at `position`.
std::vector<int32_t> block_after(llama_context* drafter, int32_t token, size_t position, int count,
                                 int32_t vocab) {
  const int32_t mask =
      std::atoi(text_of(llama_get_model(drafter), "tokenizer.ggml.mask_token_id").c_str());
  llama_batch_ext* batch = llama_batch_ext_init(drafter);
  for (int i = 0; i <= count; ++i) {
    const int32_t at = llama_batch_ext_add_token(batch, 0, i == 0 ? token : mask);
    const auto place = static_cast<llama_pos>(position) + i;
    if (at < 0 || !llama_batch_ext_set_pos(batch, at, &place) ||
        !llama_batch_ext_set_output_logits(batch, at, true)) {
      fail("a token of the block was refused");
    }
  }
  if (llama_process(drafter, LLAMA_PROCESS_TYPE_DECODE, batch) != 0) fail("a block failed");
  llama_batch_ext_free(batch);
  std::vector<int32_t> drafts;
  for (int i = 1; i <= count; ++i) {
    const float* logits = llama_get_logits_ith(drafter, i);
    drafts.push_back(static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits));
  }
  return drafts;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) fail("want FILE HEAD FIRST COUNT ID...");
  ggml_backend_load_all();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const bool own_layer = argv[2] == std::string("-");
  llama_model* model = load(argv[1], own_layer);
  llama_model* head = own_layer ? model : load(argv[2], false);
  const auto first = static_cast<size_t>(std::atoi(argv[3]));
  const int count = std::atoi(argv[4]);
  std::vector<int32_t> ids;
  for (int i = 5; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  const auto width = static_cast<size_t>(llama_model_n_embd(head));
  const int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  llama_context* target = context_of(model, nullptr, false);
  llama_context* drafter = context_of(head, target, own_layer);
  const bool by_block = text_of(head, "general.architecture") == "dflash";
  if (by_block) {
    llama_set_causal_attn(drafter, text_of(head, "dflash.attention.causal") == "true");
  }
  if (!own_layer) {
    for (uint32_t i = 0; i < llama_model_target_layer_ids_n(head); ++i) {
      const int32_t layer = llama_model_target_layer_ids(head)[i];
      llama_set_embeddings_layer_inp(target, static_cast<uint32_t>(layer), true);
    }
  }
  std::printf("{");
  for (size_t size = std::max<size_t>(first, 2); size <= ids.size(); ++size) {
    llama_memory_clear(llama_get_memory(target), true);
    llama_memory_clear(llama_get_memory(drafter), true);
    const std::vector<int32_t> known(ids.begin(), ids.begin() + static_cast<int64_t>(size) - 1);
    run(target, known, 0, nullptr, width);
    std::printf("%s\"%zu\": [", size > std::max<size_t>(first, 2) ? ", " : "", size);
    int32_t token = ids[size - 1];
    if (by_block) {
      give_rows(target, drafter, known.size(), LLAMA_PROCESS_TYPE_DECODE);
      const std::vector<int32_t> drafts = block_after(drafter, token, known.size(), count, vocab);
      for (int i = 0; i < count; ++i) std::printf("%s%d", i > 0 ? ", " : "", drafts[i]);
      std::printf("]");
      continue;
    }
    std::vector<float> rows(width, 0.0f);  // nothing is before the first token
    if (own_layer) {
      const float* final_rows = llama_get_embeddings_nextn(target);
      rows.insert(rows.end(), final_rows, final_rows + known.size() * width);
    } else {
      give_rows(target, drafter, known.size(), LLAMA_PROCESS_TYPE_ENCODE);
      const float* fused = llama_get_embeddings_nextn(drafter);
      rows.insert(rows.end(), fused, fused + known.size() * width);
    }
    run(drafter, known, 0, &rows, width);
    std::vector<float> row(rows.end() - static_cast<int64_t>(width), rows.end());
    for (int i = 0; i < count; ++i) {
      run(drafter, {token}, static_cast<int32_t>(size) - 1 + i, &row, width);
      const float* logits = llama_get_logits_ith(drafter, -1);
      const float* own = llama_get_embeddings_nextn_ith(drafter, -1);
      token = static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits);
      row.assign(own, own + width);
      std::printf("%s%d", i > 0 ? ", " : "", token);
    }
    std::printf("]");
  }
  std::printf("}\n");
  return 0;
}
