// Turns the logits of a step into tokens, verified drafts, vectors and log probabilities, and ends
// samples and requests.

#include <algorithm>
#include <utility>

#include "engine/grammar/constraint.h"
#include "engine/loop/engine_impl.h"
#include "engine/sampling/canvas_draw.h"
#include "engine/scheduling/prompt_scores.h"
#include "kernels/base/log.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
void Engine::Impl::take_outputs(const StepPlan& plan) {
  if (std::ranges::any_of(plan.rows,
                          [](const auto& rows) { return rows.seq->request->embeds(); })) {
    runner->fetch_final_rows();
  }
  int32_t next_row = 0;
  int32_t next_token = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlannedRows& rows = plan.rows[i];
    next_row += plan.branch_rows_before(i);
    next_token += plan.branch_rows_before(i);
    const int32_t end = rows.first + rows.count;
    const int32_t first_token = std::exchange(next_token, next_token + rows.count);
    const int32_t first_row = next_row;
    next_row += rows.num_outputs();
    Sequence& seq = *rows.seq;
    LiveRequest& live = *seq.request;
    // Another sample's row may have failed the whole request in this step.
    if (live.ended || seq.state == Sequence::State::kFinished) continue;
    if (next_row > first_row && runner->logits_lost(next_row - 1)) {
      scheduler.recompute(seq);
      continue;
    }
    if (live.embeds()) {
      take_final_rows(rows, first_token);
      continue;
    }
    if (seq.canvas) {
      fill_canvas(seq, first_row);
      continue;
    }
    if (!take_prompt_logprobs(rows, first_row)) continue;
    if (end < size32(seq.tokens)) continue;
    if (live.forked) {
      verify(rows, first_token, next_row - 1 - rows.num_drafted);
      continue;
    }
    // The prompt of several samples: each draws its first token from the same logits, unless it
    // resumes after tokens of an earlier run.
    scheduler.fork(live);
    for (size_t sample = 0; sample < live.samples.size() && !live.ended; ++sample) {
      Sequence& each = *live.samples[sample];
      const auto drawn = size32(each.tokens) - live.prompt_size();
      if (drawn == 0) {
        const Drawn first = draw(each, next_row - 1);
        note_hidden_row(each, next_token - 1);
        if (first.end) end_sample(each, *first.end);
      } else if (drawn == live.request.max_tokens) {
        end_sample(each, FinishReason::kLength);
      }
    }
  }
}

// Draws a token for each place of the pass, and sends the tokens of a block that is whole now.
void Engine::Impl::fill_canvas(Sequence& seq, int32_t first_row) {
  LiveRequest& live = *seq.request;
  const Request& request = live.request;
  Canvas& canvas = *seq.canvas;
  SamplingParams params = request.sampling;
  params.seed = canvas.pass_seed();
  std::vector<CanvasDraw> draws;
  std::vector<int32_t> banned;
  for (int32_t i = 0; i < size32(canvas.places()); ++i) {
    SampleArgs args;
    args.params = &params;
    args.sample = seq.sample;
    args.position = canvas.places()[i];
    banned = {canvas.model().mask_token};
    if (args.position - live.prompt_size() < request.min_tokens) {
      banned.insert(banned.end(), request.stop_ids.begin(), request.stop_ids.end());
    }
    args.banned = banned;
    Result<CanvasDraw> draw = draw_place(sampler, runner->logits(first_row + i), args,
                                         canvas.model(), request.canvas->remasking);
    if (!draw.ok()) return fail(live, draw.take_error());
    draws.push_back(*draw);
  }
  const int32_t whole = canvas.num_whole();
  canvas.take(draws, seq.tokens);
  if (canvas.num_whole() > whole && send_block(seq, whole)) return;
  scheduler.begin_pass(seq);
}

// Sends the canvas's tokens from `first` on, as far as they are whole. True: the sample has ended.
bool Engine::Impl::send_block(Sequence& seq, int32_t first) {
  LiveRequest& live = *seq.request;
  const Request& request = live.request;
  const auto sent = seq.sample < size32(request.resume) ? size32(request.resume[seq.sample]) : 0;
  for (int32_t index = first; index < seq.canvas->num_whole(); ++index) {
    const int32_t token = seq.tokens[live.prompt_size() + index];
    if (index >= request.min_tokens &&
        std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
      seq.canvas->cut(index);
      end_sample(seq, FinishReason::kStop);
      return true;
    }
    if (index < sent) continue;  // an earlier run has sent it
    live.stats.count_token(seq.sample, now_us);
    events.emplace_back(TokenEvent{request.id, seq.sample, index, token, {}, {}});
  }
  if (seq.canvas->num_whole() < request.max_tokens) return false;
  end_sample(seq, FinishReason::kLength);
  return true;
}

void Engine::Impl::take_final_rows(const PlannedRows& rows, int32_t first_row) {
  LiveRequest& live = *rows.seq->request;
  const Request& request = live.request;
  const int32_t size = live.prompt_size();
  for (int32_t i = 0; i < rows.count; ++i) {
    live.pooled.add(request.pooling, rows.first + i, size, runner->final_row(first_row + i));
  }
  if (rows.first + rows.count < size) return;
  Result<std::vector<float>> values = live.pooled.take(request.pooling, size, request.normalize);
  if (!values.ok()) return fail(live, values.take_error());
  live.stats.first_token_us = now_us;
  events.emplace_back(EmbeddingEvent{request.id, std::move(values).value()});
  end_sample(*rows.seq, FinishReason::kStop);
}

// Draws the token after the sequence's last one, and continues after each draft token that equals
// the token drawn. Without a draft this is one draw.
void Engine::Impl::verify(const PlannedRows& rows, int32_t first_token, int32_t first_row) {
  Sequence& seq = *rows.seq;
  const size_t first = seq.tokens.size();
  const DraftSize drafted = seq.draft_size();
  int32_t row = first_row;
  bool in_branch = false;
  int32_t accepted = 0;
  int32_t draws = 0;
  Drawn drawn;
  while (!drawn.end) {
    drawn = draw(seq, row);
    ++draws;
    if (accepted < size32(seq.drafted) && drawn.token == seq.drafted[accepted]) {
      ++row;
    } else {
      if (in_branch || drawn.end || !drawn.token.has_value()) break;
      DraftBranch* const branch = seq.branch_with(accepted, *drawn.token);
      if (branch == nullptr) break;
      scheduler.take_branch(seq, *branch);
      row = branch->first_row;
      in_branch = true;
    }
    ++accepted;
    if (!drawn.end) scheduler.accept(seq);
  }
  const int32_t own_row = first_token + rows.count - rows.num_drafted - 1 + row - first_row;
  note_hidden_row(seq, in_branch ? row : own_row);
  counters.verified(seq.request->stats, drafted, accepted, draws, seq.drafted_by);
  if (drawn.end) end_sample(seq, *drawn.end);
  if (drafted.tokens > 0) scheduler.end_verification(seq);
  speculator.learn(seq, first, drafted.tokens);
}

void Engine::Impl::note_hidden_row(Sequence& seq, int32_t row) const {
  seq.hidden_step = runner->num_steps();
  seq.hidden_row = row;
}

bool Engine::Impl::take_prompt_logprobs(const PlannedRows& rows, int32_t first_row) {
  LiveRequest& live = *rows.seq->request;
  if (!live.request.sampling.prompt_logprobs || rows.seq->sample != 0) return true;
  std::vector<float>& known = live.prompt_logprobs;
  const int32_t num_best = live.request.sampling.top_logprobs;
  const int32_t end = std::min(rows.first + rows.count, live.prompt_size() - 1);
  for (int32_t position = std::max(rows.first_output, size32(known)); position < end; ++position) {
    const int32_t row = first_row + position - rows.first_output;
    Result<Sampler::Score> score =
        sampler.score(runner->logits(row), live.request.prompt[position + 1], num_best);
    if (!score.ok()) {
      fail(live, score.take_error());
      return false;
    }
    known.push_back(score->logprob);
    if (num_best > 0) live.prompt_top.push_back(std::move(score->best));
    if (position + 1 < end) continue;
    keep_scores(kv, live, rows.seq->blocks);
    if (live.scores_left(*rows.seq) > 0) continue;
    events.emplace_back(PromptLogprobsEvent{live.request.id, known, live.prompt_top});
  }
  return true;
}

// Sets what the text so far allows. Rejected draft tokens never enter the sequence, so the
// constraint's state only moves forward.
Result<void> Engine::Impl::constrain(Sequence& seq, int32_t index, SampleArgs& args) {
  const Request& request = seq.request->request;
  Constraint& constraint = *request.constraint;
  // A fork's text begins inside its prompt.
  const size_t prompt = request.prompt.size() - request.constraint_prefix;
  const int32_t last = index + request.constraint_prefix;
  for (; seq.constraint_tokens < last && seq.constraint_state != Constraint::kDead;
       ++seq.constraint_tokens) {
    seq.constraint_state =
        constraint.advance(seq.constraint_state, seq.tokens[prompt + seq.constraint_tokens]);
  }
  if (seq.constraint_state == Constraint::kDead) {
    return Error::internal("the text has left what its schema or grammar allows");
  }
  const Constraint::Mask& mask = constraint.mask(seq.constraint_state);
  const bool may_end = constraint.accepts(seq.constraint_state);
  // min_tokens holds as long as any token can continue the text.
  const bool ends = may_end && (index >= request.min_tokens || mask.count == 0);
  if (mask.count == 0 && (!ends || request.stop_ids.empty())) {
    if (constraint.full()) {
      return Error::too_large("json_schema or grammar: its texts have more states than are kept",
                              "json_schema");
    }
    return Error::unsupported(
        "json_schema or grammar: no token of the model can continue the text so far",
        "json_schema");
  }
  args.mask = mask.bits;
  args.banned = {};
  if (ends) {
    args.also = request.stop_ids;
  } else {
    args.banned = request.stop_ids;
  }
  return {};
}

// Plans for each row whether the device can pick the token itself, so that its logits stay there.
// If take_outputs() needs more, it is fetched.
void Engine::Impl::plan_draws(const StepPlan& plan) {
  wishes.clear();
  if (!runner->picks_tokens()) return;
  wishes.resize(plan.num_outputs);
  size_t next_row = 0;
  for (size_t index = 0; index < plan.rows.size(); ++index) {
    const PlannedRows& rows = plan.rows[index];
    next_row += plan.branch_rows_before(index);
    Sequence& seq = *rows.seq;
    const Request& request = seq.request->request;
    const int32_t end = rows.first + rows.count;
    next_row += rows.num_outputs();
    if (seq.canvas) continue;
    const auto num_tokens = size32(seq.tokens);
    const bool drawn_alone = seq.request->forked || request.n == 1;
    if (end < num_tokens || !drawn_alone || request.constraint != nullptr) continue;
    if (forced_token(seq)) continue;  // so that no step is launched with another token
    const std::optional<RowWish> wish = device_wish(request.sampling, runner->info().vocab_size);
    if (!wish.has_value()) continue;
    const auto ask = [&](size_t row, int32_t position) {
      if (position - seq.request->prompt_size() < request.min_tokens) return;
      wishes[row] = *wish;
      wishes[row].draw.sample = seq.sample;
      wishes[row].draw.position = position;
    };
    for (int32_t i = 0; i <= rows.num_drafted; ++i) {
      ask(next_row - 1 - (rows.num_drafted - i), num_tokens + i);
    }
    for (const DraftBranch& branch : seq.branches) {
      for (int32_t i = 0; i < size32(branch.tokens); ++i) {
        ask(branch.first_row + i, num_tokens + branch.after + 1 + i);
      }
    }
  }
}

Result<Sampled> Engine::Impl::sample(int32_t row, const SampleArgs& args) {
  if (const auto token = runner->drawn(row, args.params->seed, args.sample, args.position)) {
    Sampled out;
    out.token = *token;
    return out;
  }
  if (const kernels::BestLogits* best = runner->best_logits(row)) {
    return sampler.sample(*best, args);
  }
  return sampler.sample(runner->logits(row), args);
}

std::optional<int32_t> Engine::Impl::forced_token(Sequence& seq) {
  const Request& request = seq.request->request;
  if (request.reasoning == nullptr) return std::nullopt;
  // A fork's text begins inside its prompt.
  const size_t prompt = request.prompt.size() - request.constraint_prefix;
  return seq.reasoning.forced(*request.reasoning, std::span(seq.tokens).subspan(prompt),
                              request.end_reasoning);
}

Result<Sampled> Engine::Impl::take_forced(int32_t row, int32_t token,
                                          const SamplingParams& params) {
  Sampled out;
  out.token = token;
  if (params.top_logprobs < 0) return out;
  HEARTH_ASSIGN_OR_RETURN(Sampler::Score score,
                          sampler.score(runner->logits(row), token, params.top_logprobs));
  out.logprob = score.logprob;
  out.top_logprobs = std::move(score.best);
  return out;
}

Engine::Impl::Drawn Engine::Impl::draw(Sequence& seq, int32_t row) {
  LiveRequest& live = *seq.request;
  const Request& request = live.request;
  const auto position = size32(seq.tokens);
  const int32_t index = position - live.prompt_size();
  SampleArgs args;
  args.params = &request.sampling;
  args.history = seq.tokens;
  if (index < request.min_tokens) args.banned = request.stop_ids;
  args.sample = seq.sample;
  args.position = position;
  const std::optional<int32_t> forced = forced_token(seq);
  if (request.constraint != nullptr && !forced) {
    if (Result<void> constrained = constrain(seq, index, args); !constrained.ok()) {
      fail(live, constrained.take_error());
      return {};
    }
  }
  Result<Sampled> sampled =
      forced ? take_forced(row, *forced, request.sampling) : sample(row, args);
  if (!sampled.ok()) {
    fail(live, sampled.take_error());
    return {};
  }

  const int32_t token = sampled->token;
  if (args.banned.empty() && std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
    return {{}, FinishReason::kStop};
  }
  scheduler.append(seq, token);
  live.stats.count_token(seq.sample, now_us);
  events.emplace_back(TokenEvent{request.id, seq.sample, index, token, sampled->logprob,
                                 std::move(sampled->top_logprobs)});
  if (index + 1 == request.max_tokens) return {token, FinishReason::kLength};
  return {token, {}};
}

// ---- Ends -----------------------------------------------------------------------------------

void Engine::Impl::end_sample(Sequence& seq, FinishReason reason) {
  LiveRequest& live = *seq.request;
  if (disk != nullptr) disk->saver.offer(seq);
  scheduler.finish(seq, reason);
  events.emplace_back(
      SampleDoneEvent{live.request.id, seq.sample, reason, seq.num_output(live.prompt_size())});
  if (live.finished()) report_done(live);
}

void Engine::Impl::end_request(LiveRequest& live, FinishReason reason) {
  const std::vector<std::vector<int32_t>>& resume = live.request.resume;
  for (int32_t sample = 0; sample < live.request.n; ++sample) {
    // Samples that do not exist yet end too, each with its own event.
    int32_t num_tokens = sample < size32(resume) ? size32(resume[sample]) : 0;
    if (live.forked) {
      num_tokens = live.samples[sample]->num_output(live.prompt_size());
    }
    if (sample < size32(live.samples)) {
      Sequence& seq = *live.samples[sample];
      if (seq.state == Sequence::State::kFinished) continue;
      scheduler.finish(seq, reason);
    }
    events.emplace_back(SampleDoneEvent{live.request.id, sample, reason, num_tokens});
  }
  report_done(live);
}
void Engine::Impl::fail(LiveRequest& live, Error error) {
  live.ended = true;
  ended.push_back(&live);
  for (const auto& seq : live.samples) {
    if (seq->state != Sequence::State::kFinished) scheduler.finish(*seq, FinishReason::kCancelled);
  }
  log_error("request_failed", "id={} code={} message=\"{}\"", live.request.id, name(error.code),
            error.message);
  events.emplace_back(RequestFailedEvent{live.request.id, std::move(error)});
}

void Engine::Impl::remove_ended() {
  for (LiveRequest* live : std::exchange(ended, {})) {
    speculator.forget(*live);
    if (disk != nullptr) disk->restorer.forget(*live);
    scheduler.remove(*live);
  }
}
}  // namespace hearth::engine
