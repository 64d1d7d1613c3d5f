// What the layer for drafting of a file drafts in llama.cpp, for llama_cpp.py. Not part of the
// build: it needs llama.cpp's headers and library.
//
//   c++ -std=c++17 -O1 -I LLAMA/include -I LLAMA/src -I LLAMA/ggml/include llama_drafts.cpp -L
//   LLAMA/build/bin -lllama llama_drafts FILE.gguf FIRST COUNT ID...
// Prints {"SIZE": [COUNT drafts], ...} for each SIZE from FIRST on up to all of the ids: the drafts
// after the first SIZE of them, each continued from the layer's own row. F32 KV, one thread.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama-ext.h"
#include "llama.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "llama_drafts: %s\n", what);
  std::exit(1);
}

llama_context* context_of(llama_model* model, llama_context* target) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 256;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  if (target != nullptr) {
    params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    params.ctx_other = target;
  }
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

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) fail("want FILE FIRST COUNT ID...");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.load_mtp = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) fail("the file does not load");
  const auto first = static_cast<size_t>(std::atoi(argv[2]));
  const int count = std::atoi(argv[3]);
  std::vector<int32_t> ids;
  for (int i = 4; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  const auto width = static_cast<size_t>(llama_model_n_embd(model));
  const int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  llama_context* target = context_of(model, nullptr);
  llama_context* drafter = context_of(model, target);
  std::printf("{");
  for (size_t size = std::max<size_t>(first, 2); size <= ids.size(); ++size) {
    llama_memory_clear(llama_get_memory(target), true);
    llama_memory_clear(llama_get_memory(drafter), true);
    const std::vector<int32_t> known(ids.begin(), ids.begin() + static_cast<int64_t>(size) - 1);
    run(target, known, 0, nullptr, width);
    const float* final_rows = llama_get_embeddings_nextn(target);
    std::vector<float> rows(width, 0.0f);  // nothing is before the first token
    rows.insert(rows.end(), final_rows, final_rows + known.size() * width);
    run(drafter, known, 0, &rows, width);
    std::vector<float> row(rows.end() - static_cast<int64_t>(width), rows.end());
    int32_t token = ids[size - 1];
    std::printf("%s\"%zu\": [", size > std::max<size_t>(first, 2) ? ", " : "", size);
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
