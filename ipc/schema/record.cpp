#include "ipc/schema/record.h"

namespace hearth::ipc {

GenerateRequest shape_of(const GenerateRequest& request) {
  // Copy members by name, so that a member that is added later stays out of recordings until its
  // author decides that it holds no content of the user.
  GenerateRequest shape;
  shape.model = request.model;
  shape.n = request.n;
  shape.max_tokens = request.max_tokens;
  shape.clip_max_tokens = request.clip_max_tokens;
  shape.min_tokens = request.min_tokens;
  shape.steps = request.steps;
  shape.block_length = request.block_length;
  shape.remasking = request.remasking;
  shape.temperature = request.temperature;
  shape.top_k = request.top_k;
  shape.top_p = request.top_p;
  shape.min_p = request.min_p;
  shape.typical_p = request.typical_p;
  shape.repetition_penalty = request.repetition_penalty;
  shape.presence_penalty = request.presence_penalty;
  shape.frequency_penalty = request.frequency_penalty;
  shape.penalty_window = request.penalty_window;
  shape.seed = request.seed;
  shape.ignore_eos = request.ignore_eos;
  shape.logprobs = request.logprobs;
  shape.prompt_logprobs = request.prompt_logprobs;
  shape.priority = request.priority;
  shape.deadline_ms = request.deadline_ms;
  shape.speculate = request.speculate;
  shape.draft = request.draft;
  shape.cache = request.cache;
  shape.remote = request.remote;
  return shape;
}

EmbedRequest shape_of(const EmbedRequest& request) {
  EmbedRequest shape;
  shape.model = request.model;
  shape.texts.resize(request.texts.empty() ? request.ids.size() : request.texts.size());
  shape.pooling = request.pooling;
  shape.normalize = request.normalize;
  return shape;
}

}  // namespace hearth::ipc
