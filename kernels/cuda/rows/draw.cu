// Tokens from logits, in two launches each so that a single row keeps the whole device busy: first
// the best of each run of tokens, then the best of each row. Draws keep the best and the
// second-best score. Greedy rows compare f32 logits, the first of equals winning; other rows
// compare f64 scores, whose difference shows whether the host's logarithm could have led to another
// token. f64 is slow on most devices, so f32 first rules out the tokens that cannot win. Results
// depend neither on which run a token is in nor on the number of rows.

#include "kernels/cuda/device.cuh"
#include "kernels/ops/draw.h"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kDrawWarps = kThreads / kWarp;
/// Tokens per block.
constexpr int kRun = 4096;
constexpr int kOwn = kRun / kThreads;  // of a thread

struct Leader {
  double best;
  double second;
  int32_t token;  ///< kNotDrawn: none yet
  int32_t bad;    ///< a logit was not a finite number
};

__device__ inline Leader no_leader() { return {-INFINITY, -INFINITY, kNotDrawn, 0}; }

__device__ inline Leader better(const Leader& a, const Leader& b) {
  const bool a_wins =
      b.token == kNotDrawn ||
      (a.token != kNotDrawn && (a.best > b.best || (a.best == b.best && a.token < b.token)));
  const Leader& winner = a_wins ? a : b;
  const Leader& other = a_wins ? b : a;
  const double second = winner.second > other.best ? winner.second : other.best;
  return {winner.best, second, winner.token, a.bad | b.bad};
}

__device__ inline Leader exchanged(const Leader& mine, int offset) {
  Leader other;
  other.best = __shfl_xor_sync(kAllLanes, mine.best, offset);
  other.second = __shfl_xor_sync(kAllLanes, mine.second, offset);
  other.token = __shfl_xor_sync(kAllLanes, mine.token, offset);
  other.bad = __shfl_xor_sync(kAllLanes, mine.bad, offset);
  return other;
}

/// The leader of the whole block; valid in thread 0.
__device__ inline Leader block_leader(Leader mine, Leader* of_warps) {
  for (int offset = 16; offset > 0; offset /= 2) mine = better(mine, exchanged(mine, offset));
  const int thread = thread_x();
  if (thread % kWarp == 0) of_warps[thread / kWarp] = mine;
  __syncthreads();
  if (thread == 0) {
    for (int warp = 1; warp < kDrawWarps; ++warp) mine = better(mine, of_warps[warp]);
  }
  return mine;
}

/// -log(-log(noise_uniform(bits))) within 2e-6 and a relative 5e-7: near 1 by its distance to 1.
__device__ inline float noise_about(uint64_t bits) {
  const uint64_t n = bits >> 12;
  const uint64_t from_one = (uint64_t{1} << 52) - 1 - n;
  const bool low = n <= from_one;
  const float u = (static_cast<float>(low ? n : from_one) + 0.5f) * 0x1p-52f;
  return -logf(low ? -logf(u) : -log1pf(-u));
}

/// What no token has that wins or comes second by less than kDrawSlack; NaN or -infinity if f32
/// cannot decide. `about`: the scores of a thread's tokens in f32. Called by the whole block.
__device__ float least_score(const float (&about)[kOwn]) {
  float most = -INFINITY;
#pragma unroll
  for (const float score : about) most = fmaxf(most, score);
  for (int offset = 16; offset > 0; offset /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  __shared__ float of_warps[kDrawWarps];
  if (thread_x() % kWarp == 0) of_warps[thread_x() / kWarp] = most;
  __syncthreads();
  for (const float other : of_warps) most = fmaxf(most, other);
  // A score in f32 is off by at most 1e-4 + 2e-6 |most|, the noise being below 40.
  return most - (1e-3f + 1e-5f * fabsf(most));
}

__global__ void __launch_bounds__(kThreads)
    draw_runs_kernel(const int32_t* count, RowsView logits, int vocab, const DrawRow* rows,
                     Leader* leaders) {
  after_previous_launch();
  const int row = block_y();
  if (row >= *count) return;
  __shared__ Leader of_warps[kDrawWarps];
  const float* from = logits.data + row * logits.stride;
  const DrawRow how = rows[row];
  const uint64_t key = noise_key(how.seed, how.sample, how.position);
  const int begin = block_x() * kRun;
  const int end = begin + kRun < vocab ? begin + kRun : vocab;
  // Where f32 has its full precision.
  const bool rules_out = how.temperature > 1e-30 && how.temperature < 1e30;
  float about[kOwn];
  float least = -INFINITY;
  if (rules_out) {
    const auto factor = static_cast<float>(1.0 / how.temperature);
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const int i = begin + own * kThreads + thread_x();
      const float logit = i < end ? from[i] : -INFINITY;
      const bool bad = (__float_as_uint(logit) & 0x7f800000u) == 0x7f800000u;
      about[own] = bad ? -INFINITY : fmaf(logit, factor, noise_about(noise_bits(key, i)));
    }
    least = least_score(about);
  }
  Leader mine = no_leader();
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    const int i = begin + own * kThreads + thread_x();
    if (i >= end) break;
    const float logit = from[i];
    const bool bad = (__float_as_uint(logit) & 0x7f800000u) == 0x7f800000u;
    if (rules_out && !bad && about[own] < least) continue;
    double score = static_cast<double>(logit);
    if (how.temperature > 0) {
      score = score / how.temperature - log(-log(noise_uniform(noise_bits(key, i))));
    }
    mine = better(mine, {bad ? -INFINITY : score, -INFINITY, i, bad ? 1 : 0});
  }
  mine = block_leader(mine, of_warps);
  if (threadIdx.x == 0) leaders[int64_t{row} * gridDim.x + blockIdx.x] = mine;
}

__global__ void __launch_bounds__(kThreads)
    draw_rows_kernel(const int32_t* count, const DrawRow* rows, const Leader* leaders, int runs,
                     int32_t* tokens) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *count) return;
  __shared__ Leader of_warps[kDrawWarps];
  Leader mine = no_leader();
  for (int i = thread_x(); i < runs; i += kThreads) {
    mine = better(mine, leaders[int64_t{row} * runs + i]);
  }
  mine = block_leader(mine, of_warps);
  if (threadIdx.x != 0) return;
  const double size = mine.best < 0 ? -mine.best : mine.best;
  const bool near = mine.best - mine.second <= kDrawSlack * (size > 1 ? size : 1.0);
  const bool unsure = mine.bad != 0 || (rows[row].temperature > 0 && near);
  tokens[row] = unsure ? kNotDrawn : mine.token;
}

// ---- The best of a row ----------------------------------------------------------------------

constexpr int kBest = BestLogits::kCount;
static_assert(kBest == 64 && kRun % kBest == 0);
constexpr uint64_t kNoKey = 0;  ///< below the key of any logit

/// Keys order by logit, then by lower token; infinities and NaN come before all others.
__device__ inline uint64_t key_of(float logit, int token) {
  const uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
  const bool bad = (bits & 0x7f800000u) == 0x7f800000u;
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{bad ? 0xffffffffu : ordered} << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
__device__ inline bool bad_key(uint64_t key) { return (key >> 32) == 0xffffffffu; }
__device__ inline float logit_of(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float((ordered >> 31) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

/// Orders keys[i] and keys[i + stride], the larger first if `falling`.
__device__ inline void in_order(uint64_t* keys, int i, int stride, bool falling) {
  const uint64_t a = keys[i];
  const uint64_t b = keys[i + stride];
  if ((a < b) != falling) return;
  keys[i] = b;
  keys[i + stride] = a;
}

/// Moves the kBest largest of keys[0, count) to the front, in descending order; count is kBest
/// times a power of two. Each run of kBest is sorted by Batcher's bitonic network; then, for two
/// runs at a time, the larger halves are kept. Source: Batcher 1968, "Sorting networks and their
/// applications".
__device__ void keep_best(uint64_t* keys, int count) {
  const int thread = thread_x();
  for (int size = 2; size <= kBest; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int pair = thread; pair < count / 2; pair += kThreads) {
        const int i = pair / stride * 2 * stride + pair % stride;
        in_order(keys, i, stride, size == kBest || (i & size) == 0);
      }
    }
  }
  for (int runs = count / kBest; runs > 1; runs /= 2) {
    // Run r and run r + runs / 2, the latter reversed: the larger of each pair form the best of
    // both runs, and they are bitonic.
    __syncthreads();
    for (int i = thread; i < runs / 2 * kBest; i += kThreads) {
      const int other = (i / kBest + runs / 2) * kBest + (kBest - 1 - i % kBest);
      if (keys[other] > keys[i]) keys[i] = keys[other];
    }
    for (int stride = kBest / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int pair = thread; pair < runs / 2 * (kBest / 2); pair += kThreads) {
        in_order(keys, pair / stride * 2 * stride + pair % stride, stride, true);
      }
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    best_runs_kernel(const int32_t* count, int first_row, RowsView logits, int vocab,
                     uint64_t* best) {
  after_previous_launch();
  const int row = first_row + block_y();
  if (row >= *count) return;
  __shared__ uint64_t keys[kRun];
  const float* from = logits.data + row * logits.stride;
  const int begin = block_x() * kRun;
  for (int i = thread_x(); i < kRun; i += kThreads) {
    keys[i] = begin + i < vocab ? key_of(from[begin + i], begin + i) : kNoKey;
  }
  keep_best(keys, kRun);
  uint64_t* to = best + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * kBest;
  for (int i = thread_x(); i < kBest; i += kThreads) to[i] = keys[i];
}

/// Merges as many runs' best at a time as fit; the survivors are merged with the next runs.
__global__ void __launch_bounds__(kThreads)
    best_rows_kernel(const int32_t* count, int first_row, const uint64_t* best, int runs,
                     BestLogits* out) {
  after_previous_launch();
  const int row = first_row + block_x();
  if (row >= *count) return;
  __shared__ uint64_t keys[kRun];
  const uint64_t* from = best + int64_t{blockIdx.x} * runs * kBest;
  const int thread = thread_x();
  int kept = 0;
  for (int next = 0; next < runs * kBest;) {
    const int room = kRun - kept;
    const int taken = runs * kBest - next < room ? runs * kBest - next : room;
    for (int i = thread; i < room; i += kThreads) {
      keys[kept + i] = i < taken ? from[next + i] : kNoKey;
    }
    keep_best(keys, kRun);
    next += taken;
    kept = kBest;
  }
  const bool bad = bad_key(keys[0]);
  for (int i = thread; i < kBest; i += kThreads) {
    const bool there = !bad && keys[i] != kNoKey;
    out[row].logit[i] = there ? logit_of(keys[i]) : 0.0f;
    out[row].token[i] =
        there ? static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(keys[i])) : kNotDrawn;
  }
}

__global__ void __launch_bounds__(kThreads) feed_kernel(const int32_t* count, const int32_t* tokens,
                                                        const int32_t* rows, int32_t* token_ids) {
  after_previous_launch();
  const int row = block_x() * kThreads + thread_x();
  if (row >= *count) return;
  const int32_t token = tokens[rows[row]];
  token_ids[row] = token == kNotDrawn ? 0 : token;
}

}  // namespace

void cuda::draw(void* opaque, const DrawArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kOutputs);
  if (rows == 0) return;
  CudaState& state = cuda_state(opaque);
  cudaStream_t stream = state.stream.get();
  const auto vocab = static_cast<int>(args.logits.cols);
  const int runs = (vocab + kRun - 1) / kRun;
  HEARTH_EXPECT(int64_t{rows} * runs * int64_t{sizeof(Leader)} <= kPartialBytes, rows, runs);
  HEARTH_EXPECT(rows <= 65535, rows);
  auto* leaders = static_cast<Leader*>(state.partial.get());
  const int32_t* count = row_count(*args.batch, Rows::kOutputs);
  HEARTH_LAUNCH(stream, draw_runs_kernel, grid2(runs, rows), kThreads, 0, count,
                rows_view(args.logits), vocab, args.rows, leaders);
  HEARTH_LAUNCH(stream, draw_rows_kernel, rows, kThreads, 0, count, args.rows,
                static_cast<const Leader*>(leaders), runs, args.tokens);
}

void cuda::best_logits(void* opaque, const BestLogitsArgs& args) {
  const int32_t bound = row_bound(*args.batch, Rows::kOutputs);
  if (bound == 0) return;
  CudaState& state = cuda_state(opaque);
  cudaStream_t stream = state.stream.get();
  const auto vocab = static_cast<int>(args.logits.cols);
  const int runs = (vocab + kRun - 1) / kRun;
  const int64_t at_once = kPartialBytes / (int64_t{runs} * kBest * int64_t{sizeof(uint64_t)});
  HEARTH_EXPECT(at_once > 0, runs);
  auto* best = static_cast<uint64_t*>(state.partial.get());
  const int32_t* count = row_count(*args.batch, Rows::kOutputs);
  for (int64_t first = 0; first < bound; first += at_once) {
    const int64_t rows = bound - first < at_once ? bound - first : at_once;
    HEARTH_LAUNCH(stream, best_runs_kernel, grid2(runs, rows), kThreads, 0, count,
                  static_cast<int>(first), rows_view(args.logits), vocab, best);
    HEARTH_LAUNCH(stream, best_rows_kernel, static_cast<unsigned>(rows), kThreads, 0, count,
                  static_cast<int>(first), static_cast<const uint64_t*>(best), runs, args.best);
  }
}

void cuda::feed(void* opaque, const FeedArgs& args) {
  const int32_t rows = row_bound(*args.batch, Rows::kTokens);
  if (rows == 0) return;
  HEARTH_LAUNCH(cuda_state(opaque).stream.get(), feed_kernel, (rows + kThreads - 1) / kThreads,
                kThreads, 0, row_count(*args.batch, Rows::kTokens), args.tokens, args.rows,
                args.token_ids);
}

}  // namespace hearth::kernels
