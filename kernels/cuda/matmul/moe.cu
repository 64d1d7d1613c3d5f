// The parts of mixture of experts around its matrix products: routing, sorting and combining.

#include <algorithm>

#include "kernels/cuda/matmul/moe_slices.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

struct RouteParams {
  const int32_t* count;
  RowsView logits;
  int32_t num_experts;
  int32_t top_k;
  bool normalize;
  float scale;
  bool sigmoid;
  const float* bias;  ///< of the selection; null: none
  int32_t num_groups;
  int32_t groups_used;
  int32_t* ids;
  int64_t ids_stride;
  RowsView weights;
  const float* expert_scale;  ///< null: none

  __device__ double scale_of(int expert) const {
    const double all = scale;
    return expert_scale == nullptr ? all : all * double{expert_scale[expert]};
  }
};

/// True if (value a of expert i) comes before (b of j): a is larger, or equal with the lower id. A
/// NaN comes after all numbers, so the ids are valid experts for any input.
__device__ bool before(double a, int i, double b, int j) {
  if (a > b) return true;
  if (b > a) return false;
  const bool a_is = a == a;
  const bool b_is = b == b;
  return a_is != b_is ? a_is : i < j;
}

__device__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/// What experts are chosen by.
struct Keys {
  const RouteParams& p;
  const float* logits;
  bool plain;  ///< the logits themselves: no bias, no groups
  double largest;
  double sum;

  __device__ double of(int e) const {
    if (plain) return logits[e];
    const double share = p.sigmoid ? sigmoid(logits[e]) : exp(logits[e] - largest) / sum;
    return p.bias == nullptr ? share : share + p.bias[e];
  }
};

/// Marks the experts of the groups that are not used as chosen.
__device__ void drop_groups(const RouteParams& p, const Keys& keys, int32_t* chosen) {
  const int size = p.num_experts / p.num_groups;
  const auto score = [&](int group) {
    double first = -INFINITY;
    double second = -INFINITY;
    for (int e = group * size; e < (group + 1) * size; ++e) {
      const double key = keys.of(e);
      if (key > first) {
        second = first;
        first = key;
      } else if (key > second) {
        second = key;
      }
    }
    return p.bias != nullptr && size > 1 ? first + second : first;
  };
  for (int group = 0; group < p.num_groups; ++group) {
    const double mine = score(group);
    int better = 0;
    for (int other = 0; other < p.num_groups; ++other) {
      if (other != group && before(score(other), other, mine, group)) ++better;
    }
    if (better < p.groups_used) continue;
    for (int e = group * size; e < (group + 1) * size; ++e) chosen[e] = 1;
  }
}

/// One warp per token. Each lane handles experts lane, lane + 32, ...; chosen experts are marked in
/// shared memory. Sums are over experts in ascending order, in double.
__global__ void __launch_bounds__(kWarp) route_kernel(RouteParams p) {
  after_previous_launch();
  const int row = block_x();
  if (row >= *p.count) return;
  const auto lane = thread_x();
  HEARTH_DYN_SHARED(int32_t, chosen);
  const float* logits = p.logits.data + row * p.logits.stride;
  int32_t* ids = p.ids + row * p.ids_stride;
  float* weights = p.weights.data + row * p.weights.stride;
  for (int e = lane; e < p.num_experts; e += kWarp) chosen[e] = 0;
  Keys keys{p, logits, p.bias == nullptr && p.num_groups == 1, -INFINITY, 0};
  if (!keys.plain) {
    for (int e = 0; e < p.num_experts; ++e) keys.largest = fmax(keys.largest, double{logits[e]});
    for (int e = 0; e < p.num_experts; ++e) keys.sum += exp(logits[e] - keys.largest);
  }
  __syncwarp();
  if (lane == 0 && p.num_groups > 1) drop_groups(p, keys, chosen);
  __syncwarp();
  for (int j = 0; j < p.top_k; ++j) {
    int best = -1;
    for (int e = lane; e < p.num_experts; e += kWarp) {
      if (chosen[e] == 0 && (best < 0 || before(keys.of(e), e, keys.of(best), best))) best = e;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const int other = __shfl_xor_sync(kAllLanes, best, offset);
      if (other < 0) continue;
      if (best < 0 || before(keys.of(other), other, keys.of(best), best)) best = other;
    }
    if (lane == 0) {
      chosen[best] = 1;
      ids[j] = best;
    }
    __syncwarp();
  }
  if (lane != 0) return;
  double sum = 0;
  if (p.sigmoid) {
    for (int j = 0; j < p.top_k; ++j) sum += sigmoid(logits[ids[j]]);
    if (!p.normalize) sum = 1;
    for (int j = 0; j < p.top_k; ++j) {
      const double scale = p.scale_of(ids[j]) / fmax(sum, 1e-20);
      weights[j] = static_cast<float>(sigmoid(logits[ids[j]]) * scale);
    }
    return;
  }
  const double largest = keys.plain ? double{logits[ids[0]]} : keys.largest;
  if (p.normalize) {
    for (int j = 0; j < p.top_k; ++j) sum += exp(logits[ids[j]] - largest);
  } else {
    for (int e = 0; e < p.num_experts; ++e) sum += exp(logits[e] - largest);
  }
  for (int j = 0; j < p.top_k; ++j) {
    weights[j] = static_cast<float>(exp(logits[ids[j]] - largest) / sum * p.scale_of(ids[j]));
  }
}

struct SliceParams {
  const int32_t* count;
  const int32_t* ids;
  int64_t ids_stride;
  int32_t top_k;
  int32_t first;
  int32_t tokens;
  int32_t num_experts;
  int32_t width;
  int32_t num_slices;  ///< upper bound
  int32_t list_warps;  ///< that count choices: as many as shared memory has room for
  int32_t* choices;
  ExpertSlice* slices;
};

constexpr int kListWarps = kThreads / kWarp;
/// Of slices_kernel's shared memory, per expert: a count per warp, the first row, the first slice.
inline int list_ints(int warps) { return warps + 2; }

/// The lanes that chose the lane's expert.
struct SameExpert {
  unsigned lanes;
  int before;  ///< of them, below the lane
  bool first;
};
__device__ inline SameExpert same_expert(int expert) {
  const unsigned lanes = __match_any_sync(kAllLanes, expert);
  const int before = __popc(lanes & ((1u << thread_x() % kWarp) - 1));
  return {lanes, before, before == 0};
}

/// One block sorts the choices by expert, in ascending order within each. A warp takes a run of
/// them, 32 at a time: it counts them by expert, and when all counts are known it places them.
__global__ void __launch_bounds__(kThreads) slices_kernel(SliceParams p) {
  after_previous_launch();
  HEARTH_DYN_SHARED(int32_t, shared);
  const int lane = thread_x() % kWarp;
  const int warp = thread_x() / kWarp;
  int32_t* counts = shared + warp * p.num_experts;  // of the warp, later choices of earlier warps
  int32_t* begins = shared + p.list_warps * p.num_experts;
  int32_t* slice_begins = begins + p.num_experts;
  const int left = *p.count - p.first;
  const int tokens = left < 0 ? 0 : left < p.tokens ? left : p.tokens;
  const int choices = tokens * p.top_k;
  const int at_once = p.list_warps * kWarp;
  const int run = (choices + at_once - 1) / at_once * kWarp;
  const int begin = warp < p.list_warps ? warp * run : choices;
  const int end = begin + run < choices ? begin + run : choices;
  const auto expert_of = [&](int choice) {
    if (choice >= end) return -1;
    return p.ids[(p.first + choice / p.top_k) * p.ids_stride + choice % p.top_k];
  };
  for (int i = thread_x(); i < p.list_warps * p.num_experts; i += kThreads) shared[i] = 0;
  __syncthreads();
  for (int first = begin; first < end; first += kWarp) {
    const int expert = expert_of(first + lane);
    const SameExpert same = same_expert(expert);
    if (expert >= 0 && same.first) counts[expert] += __popc(same.lanes);
    __syncwarp();
  }
  __syncthreads();
  for (int e = thread_x(); e < p.num_experts; e += kThreads) {
    int rows = 0;
    for (int w = 0; w < p.list_warps; ++w) {
      const int own = shared[w * p.num_experts + e];
      shared[w * p.num_experts + e] = rows;
      rows += own;
    }
    begins[e] = rows;
  }
  __syncthreads();
  __shared__ int num_slices;
  if (warp == 0) {  // how many there are becomes where each begins
    int rows_before = 0;
    int slices_before = 0;
    for (int base = 0; base < p.num_experts; base += kWarp) {
      const int e = base + lane;
      const int own = e < p.num_experts ? begins[e] : 0;
      int rows = own;
      int slices = (own + p.width - 1) / p.width;
      const int own_slices = slices;
      for (int offset = 1; offset < kWarp; offset *= 2) {
        const int other_rows = __shfl_up_sync(kAllLanes, rows, offset);
        const int other_slices = __shfl_up_sync(kAllLanes, slices, offset);
        rows += lane >= offset ? other_rows : 0;
        slices += lane >= offset ? other_slices : 0;
      }
      if (e < p.num_experts) {
        begins[e] = rows_before + rows - own;
        slice_begins[e] = slices_before + slices - own_slices;
      }
      rows_before += __shfl_sync(kAllLanes, rows, kWarp - 1);
      slices_before += __shfl_sync(kAllLanes, slices, kWarp - 1);
    }
    if (lane == 0) num_slices = slices_before;
  }
  __syncthreads();
  for (int first = begin; first < end; first += kWarp) {
    const int expert = expert_of(first + lane);
    const SameExpert same = same_expert(expert);
    const int place = expert < 0 ? 0 : begins[expert] + counts[expert] + same.before;
    __syncwarp();
    if (expert >= 0) {
      p.choices[place] = p.first * p.top_k + first + lane;
      if (same.first) counts[expert] += __popc(same.lanes);
    }
    __syncwarp();
  }
  for (int e = thread_x(); e < p.num_experts; e += kThreads) {
    const bool last = e + 1 == p.num_experts;
    const int past = last ? choices : begins[e + 1];
    int slice = slice_begins[e];
    for (int first = begins[e]; first < past; first += p.width) {
      p.slices[slice++] = {e, first, past - first < p.width ? past - first : p.width, 0};
    }
  }
  for (int s = num_slices + thread_x(); s < p.num_slices; s += kThreads) p.slices[s] = {0, 0, 0, 0};
}

struct CombineParams {
  const int32_t* count;
  RowsView x;
  RowsView weights;
  int32_t top_k;
  int32_t cols;
  RowsView out;
  bool add;
};

__global__ void __launch_bounds__(kThreads) combine_kernel(CombineParams p) {
  after_previous_launch();
  const int64_t row = blockIdx.x;
  if (row >= *p.count) return;
  const float* weights = p.weights.data + row * p.weights.stride;
  for (int c = thread_x(); c < p.cols; c += kThreads) {
    float sum = 0;
    for (int j = 0; j < p.top_k; ++j) {
      sum = fmaf(weights[j], p.x.data[(row * p.top_k + j) * p.x.stride + c], sum);
    }
    float& out = p.out.data[row * p.out.stride + c];
    out = p.add ? out + sum : sum;
  }
}

const int32_t* ids_of(const TensorView& ids) {
  HEARTH_EXPECT(ids.dtype == DType::kI32, static_cast<int>(ids.dtype));
  return static_cast<const int32_t*>(ids.data);
}

}  // namespace

int64_t list_slices(CudaState& state, const MoeMatmulArgs& args, int32_t first, int32_t count,
                    int32_t num_experts, int width, MatmulRows* rows) {
  const auto top_k = static_cast<int32_t>(args.ids.cols);
  const int64_t choices = int64_t{count} * top_k;
  // Each expert's last slice may hold a single row.
  const int64_t bound = choices / width + (choices < num_experts ? choices : num_experts);
  HEARTH_EXPECT(num_experts <= state.moe.max_experts && choices <= kQuantRows, num_experts,
                choices);
  constexpr int kSharedInts =
      48 * 1024 / static_cast<int>(sizeof(int32_t));  // every device has them
  const int list_warps = std::min(kListWarps, kSharedInts / num_experts - list_ints(0));
  HEARTH_EXPECT(list_warps > 0, num_experts);
  const SliceParams params{row_count(*args.batch, Rows::kTokens),
                           ids_of(args.ids),
                           args.ids.row_stride,
                           top_k,
                           first,
                           count,
                           num_experts,
                           width,
                           static_cast<int32_t>(bound),
                           list_warps,
                           static_cast<int32_t*>(state.moe.choices.get()),
                           static_cast<ExpertSlice*>(state.moe.slices.get())};
  const size_t shared = sizeof(int32_t) * static_cast<size_t>(list_ints(list_warps) * num_experts);
  HEARTH_LAUNCH(state.stream.get(), slices_kernel, 1, kThreads, shared, params);
  rows->choices = params.choices;
  rows->slices = params.slices;
  return bound;
}

void cuda::moe_route(void* state, const MoeRouteArgs& args) {
  const int32_t rows = args.batch->num_tokens;
  if (rows == 0) return;
  const auto num_experts = static_cast<int32_t>(args.logits.cols);
  const RouteParams params{
      row_count(*args.batch, Rows::kTokens),
      rows_view(args.logits),
      num_experts,
      args.top_k,
      args.normalize,
      args.scale,
      args.sigmoid,
      args.selection_bias == nullptr ? nullptr : args.selection_bias->vector,
      args.num_groups,
      args.groups_used,
      const_cast<int32_t*>(ids_of(args.ids)),  // a view does not distinguish const data
      args.ids.row_stride,
      rows_view(args.weights),
      args.expert_scale == nullptr ? nullptr : args.expert_scale->vector};
  HEARTH_LAUNCH(cuda_state(state).stream.get(), route_kernel, rows, kWarp,
                static_cast<size_t>(num_experts) * sizeof(int32_t), params);
}

void cuda::moe_combine(void* state, const MoeCombineArgs& args) {
  const int32_t rows = args.batch->num_tokens;
  if (rows == 0) return;
  const CombineParams params{row_count(*args.batch, Rows::kTokens),
                             rows_view(args.x),
                             rows_view(args.weights),
                             static_cast<int32_t>(args.weights.cols),
                             static_cast<int32_t>(args.out.cols),
                             rows_view(args.out),
                             args.add};
  HEARTH_LAUNCH(cuda_state(state).stream.get(), combine_kernel, rows, kThreads, 0, params);
}

}  // namespace hearth::kernels
