// Scans with a state for each head. A block takes some columns of one head's state of one sequence
// through all rows; the state stays in registers. A column is shared by `parts` lanes of a warp,
// lane p holding its rows p, p + parts, p + 2 parts, ...: each lane sums its rows in ascending
// order, then a fixed tree adds the lanes' sums. The shape depends on k_dim alone, so a row's
// result does not depend on the step. Keys, queries and gates are prepared for kChunk rows at a
// time.

#include "kernels/cuda/state/states.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kScanWarps = kThreads / kWarp;

struct HeadScanParams {
  StateRows rows;
  int num_heads;
  int num_k_heads;
  int k_dim;
  int v_dim;
  int tiles;  ///< of columns
  bool tiled;
  RowsView q;
  RowsView k;
  RowsView v;
  RowsView dt;
  RowsView beta;    ///< data null: no delta rule
  RowsView erased;  ///< data null: none
  RowsView removed;
  bool row_decays;
  const float* dt_bias;  ///< null: no dt
  const float* a;
  const float* skip;  ///< null: none
  bool unit_keys;
  float eps;
  float q_scale;
  StatePart state;
  RowsView kept;
  RowsView out;
};

/// One row's inputs, of the step or kept.
struct HeadInputs {
  const float* k;
  const float* v;
  const float* dt;
  const float* beta;
  const float* erased;
  const float* removed;
};
__device__ bool has_dt(const HeadScanParams& p) {
  return p.dt_bias != nullptr || p.erased.data != nullptr;
}
/// HeadScanArgs::dt_width on the device.
__device__ int64_t dt_width(const HeadScanParams& p) {
  return int64_t{p.num_heads} * (p.row_decays ? p.k_dim : 1);
}
__device__ HeadInputs inputs_of(const HeadScanParams& p, const Walk& walk, int i) {
  const int64_t row = walk.row(i);
  const auto of = [row](const RowsView& view) {
    return view.data == nullptr ? nullptr : row_of(view, row);
  };
  if (!walk.replayed(i)) {
    return {row_of(p.k, row), row_of(p.v, row), has_dt(p) ? row_of(p.dt, row) : nullptr,
            of(p.beta),       of(p.erased),     of(p.removed)};
  }
  const float* k = row_of(p.kept, row);
  const float* v = k + int64_t{p.num_k_heads} * p.k_dim;
  const float* dt = v + int64_t{p.num_heads} * p.v_dim;
  const float* rest = dt + dt_width(p);
  if (p.erased.data != nullptr) return {k, v, dt, nullptr, rest, rest + dt_width(p)};
  return {k, v, dt, p.beta.data == nullptr ? nullptr : rest, nullptr, nullptr};
}

/// Loads a key or query, padded with zeros to `padded` values, and divides it by its length if
/// asked; by one warp.
__device__ void load_key(const HeadScanParams& p, const float* from, float scale, int padded,
                         float* to) {
  const int lane = thread_x() % kWarp;
  double squares = 0;
  for (int i = lane; i < padded; i += kWarp) {
    to[i] = i < p.k_dim ? from[i] : 0.0f;
    squares += double{to[i]} * double{to[i]};
  }
  if (p.unit_keys) {
    for (int offset = 16; offset > 0; offset /= 2) {
      squares += __shfl_xor_sync(kAllLanes, squares, offset);
    }
    scale = static_cast<float>(double{scale} / sqrt(squares + double{p.eps}));
  }
  for (int i = lane; i < padded; i += kWarp) to[i] *= scale;
}

enum class Decays {
  kOne,     ///< of a state
  kRows,    ///< of each row of a state
  kErased,  ///< the same, given as they are, and a key is erased
};

template <int kPer, int kParts, Decays kMode>
struct ScanShape {
  static constexpr bool kRowDecays = kMode != Decays::kOne;
  static constexpr bool kErases = kMode == Decays::kErased;
  static constexpr int kRows = kPer * kParts;  ///< most rows of a state
  static constexpr int kDecays = kRowDecays ? kRows : 1;
  static constexpr int kErased = kErases ? kRows : 1;
  static constexpr int kWarpColumns = kWarp / kParts;
  static constexpr int kColumns = kScanWarps * kWarpColumns;
  static constexpr int kChunk = kRows <= 128 ? 16 : kRows <= 256 ? 8 : kRowDecays ? 2 : 4;
};

template <typename Shape>
struct ScanChunk {
  float k[Shape::kChunk][Shape::kRows];
  float q[Shape::kChunk][Shape::kRows];
  float v[Shape::kChunk][Shape::kColumns];
  float decay[Shape::kChunk][Shape::kDecays];
  float erased[Shape::kChunk][Shape::kErased];
  float removed[Shape::kChunk][Shape::kErased];
  float weight[Shape::kChunk];
};

/// Prepares rows [first, first + count) of the walk.
template <typename Shape>
__device__ void load_chunk(const HeadScanParams& p, const Walk& walk, int head, int key,
                           int first_column, int first, int count, ScanChunk<Shape>& chunk) {
  const int thread = thread_x();
  for (int r = thread / kWarp; r < count; r += kScanWarps) {
    const int i = first + r;
    load_key(p, inputs_of(p, walk, i).k + int64_t{key} * p.k_dim, 1.0f, Shape::kRows, chunk.k[r]);
    if (walk.replayed(i)) continue;
    load_key(p, row_of(p.q, walk.row(i)) + int64_t{key} * p.k_dim, p.q_scale, Shape::kRows,
             chunk.q[r]);
  }
  for (int n = thread; n < count * Shape::kColumns; n += kThreads) {
    const int column = first_column + n % Shape::kColumns;
    if (column >= p.v_dim) continue;
    chunk.v[n / Shape::kColumns][n % Shape::kColumns] =
        inputs_of(p, walk, first + n / Shape::kColumns).v[int64_t{head} * p.v_dim + column];
  }
  for (int n = thread; n < count * Shape::kDecays; n += kThreads) {
    const int r = n / Shape::kDecays, i = n % Shape::kDecays;
    const HeadInputs in = inputs_of(p, walk, first + r);
    const int64_t at = Shape::kDecays > 1 ? int64_t{head} * p.k_dim + i : head;
    if (Shape::kErases) {
      const bool there = i < p.k_dim;
      chunk.decay[r][i] = there ? in.dt[at] : 1.0f;
      chunk.erased[r][i] = there ? in.erased[at] : 0.0f;
      chunk.removed[r][i] = there ? in.removed[at] : 0.0f;
      continue;
    }
    double d = p.dt_bias == nullptr ? 1 : 0;
    if (p.dt_bias != nullptr && (Shape::kDecays == 1 || i < p.k_dim)) {
      d = softplus_of(double{in.dt[at]} + double{p.dt_bias[at]});
    }
    chunk.decay[r][i] = static_cast<float>(exp(double{p.a[head]} * d));
    if (i != 0) continue;
    const double weight = in.beta == nullptr ? d : 1.0 / (1.0 + exp(-double{in.beta[head]}));
    chunk.weight[r] = static_cast<float>(weight);
  }
}

/// Keeps a draft's inputs: each block its columns of v, the first of a head its gates, and the
/// first of a head of keys the key.
template <typename Shape>
__device__ void keep_row(const HeadScanParams& p, const Walk& walk, int i, int head, int key,
                         int first_column) {
  const int thread = thread_x();
  const HeadInputs in = inputs_of(p, walk, i);
  float* k = p.kept.data + walk.kept(i) * p.kept.stride;
  float* v = k + int64_t{p.num_k_heads} * p.k_dim;
  float* dt = v + int64_t{p.num_heads} * p.v_dim;
  if (const int column = first_column + thread; thread < Shape::kColumns && column < p.v_dim) {
    const int64_t at = int64_t{head} * p.v_dim + column;
    v[at] = in.v[at];
  }
  if (first_column != 0) return;
  const int decays = !has_dt(p) ? 0 : p.row_decays ? p.k_dim : 1;
  for (int n = thread; n < decays; n += kThreads) {
    const int64_t at = int64_t{head} * decays + n;
    dt[at] = in.dt[at];
    if (in.erased == nullptr) continue;
    dt[dt_width(p) + at] = in.erased[at];
    dt[2 * dt_width(p) + at] = in.removed[at];
  }
  if (thread == 0 && in.beta != nullptr) dt[dt_width(p) + head] = in.beta[head];
  const bool first_of_key =
      p.tiled ? head < p.num_k_heads : head % (p.num_heads / p.num_k_heads) == 0;
  if (!first_of_key) return;
  for (int n = thread; n < p.k_dim; n += kThreads) {
    const int64_t at = int64_t{key} * p.k_dim + n;
    k[at] = in.k[at];
  }
}

template <int kParts>
__device__ float sum_of_parts(float value) {
  for (int offset = kWarp / kParts; offset < kWarp; offset *= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

/// The state's decay, and what is erased of it. Returns what the row's key adds to it.
template <int kPer, int kParts, typename Shape>
__device__ float forget(const HeadScanParams& p, const ScanChunk<Shape>& chunk, int r, int part,
                        float v, float (&s)[kPer]) {
  const float* decay = chunk.decay[r] + (Shape::kRowDecays ? part : 0);
  float sum = 0;
  if constexpr (Shape::kErases) {
    const float* erased = chunk.erased[r] + part;
    const float* removed = chunk.removed[r] + part;
#pragma unroll
    for (int j = 0; j < kPer; ++j) sum = fmaf(s[j], erased[j * kParts], sum);
    sum = sum_of_parts<kParts>(sum);
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      s[j] = fmaf(removed[j * kParts], -sum, s[j] * decay[j * kParts]);
    }
    return v;
  } else {
    const float* k = chunk.k[r] + part;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      s[j] *= decay[Shape::kRowDecays ? j * kParts : 0];
      sum = fmaf(s[j], k[j * kParts], sum);
    }
    const float expected = p.beta.data == nullptr ? 0.0f : sum_of_parts<kParts>(sum);
    return (v - expected) * chunk.weight[r];
  }
}

template <int kPer, int kParts, Decays kMode>
__global__ void __launch_bounds__(kThreads) head_scan_kernel(HeadScanParams p) {
  after_previous_launch();
  using Shape = ScanShape<kPer, kParts, kMode>;
  const int seq = block_y();
  if (seq >= p.rows.counts[1]) return;
  const Walk walk = walk_of(p.rows, seq);
  const int head = block_x() / p.tiles;
  const int first_column = block_x() % p.tiles * Shape::kColumns;
  const int key = p.tiled ? head % p.num_k_heads : head / (p.num_heads / p.num_k_heads);
  const int lane = thread_x() % kWarp;
  const int part = lane / Shape::kWarpColumns;
  const int in_tile = thread_x() / kWarp * Shape::kWarpColumns + lane % Shape::kWarpColumns;
  const int column = first_column + in_tile;
  const bool there = column < p.v_dim;
  const float skip = p.skip == nullptr ? 0.0f : p.skip[head];

  const int64_t own = (int64_t{head} * p.k_dim + part) * p.v_dim + column;
  float s[kPer] = {};
  if (there && walk.step.from >= 0) {
    const float* from = state_in(p.state, walk.step.from) + own;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      if (part + j * kParts < p.k_dim) s[j] = from[int64_t{j} * kParts * p.v_dim];
    }
  }
  const auto write = [&](int block) {
    if (!there) return;
    float* to = state_in(p.state, block) + own;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      if (part + j * kParts < p.k_dim) to[int64_t{j} * kParts * p.v_dim] = s[j];
    }
  };

  __shared__ ScanChunk<Shape> chunk;
  if (walk.stay == 0) write(walk.step.to);
  for (int first = 0; first < walk.total; first += Shape::kChunk) {
    const int count = walk.total - first < Shape::kChunk ? walk.total - first : Shape::kChunk;
    __syncthreads();  // the chunk before was read
    load_chunk(p, walk, head, key, first_column, first, count, chunk);
    __syncthreads();
    for (int r = 0; r < count; ++r) {
      const int i = first + r;
      const float* k = chunk.k[r] + part;
      const float v = there ? chunk.v[r][in_tile] : 0.0f;
      const float w = forget<kPer, kParts, Shape>(p, chunk, r, part, v, s);
#pragma unroll
      for (int j = 0; j < kPer; ++j) s[j] = fmaf(k[j * kParts], w, s[j]);
      if (!walk.replayed(i)) {
        const float* q = chunk.q[r] + part;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kPer; ++j) sum = fmaf(s[j], q[j * kParts], sum);
        sum = sum_of_parts<kParts>(sum);
        if (there && part == 0) {
          p.out.data[walk.row(i) * p.out.stride + int64_t{head} * p.v_dim + column] =
              fmaf(skip, v, sum);
        }
      }
      if (walk.draft(i)) keep_row<Shape>(p, walk, i, head, key, first_column);
      if (walk.saves_after(i + 1)) write(walk.step.saved);
      if (i + 1 == walk.stay) write(walk.step.to);
    }
  }
}

template <int kPer, int kParts>
void launch_scan(cudaStream_t stream, HeadScanParams params, int num_seqs) {
  constexpr int kColumns = ScanShape<kPer, kParts, Decays::kOne>::kColumns;
  params.tiles = (params.v_dim + kColumns - 1) / kColumns;
  const dim3 grid = grid2(int64_t{params.num_heads} * params.tiles, num_seqs);
  if (params.erased.data != nullptr) {
    HEARTH_LAUNCH(stream, (head_scan_kernel<kPer, kParts, Decays::kErased>), grid, kThreads, 0,
                  params);
  } else if (params.row_decays) {
    HEARTH_LAUNCH(stream, (head_scan_kernel<kPer, kParts, Decays::kRows>), grid, kThreads, 0,
                  params);
  } else {
    HEARTH_LAUNCH(stream, (head_scan_kernel<kPer, kParts, Decays::kOne>), grid, kThreads, 0,
                  params);
  }
}

}  // namespace

void cuda::head_scan(void* state, const HeadScanArgs& args) {
  const BatchIndex& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  const auto view_or_none = [](const TensorView* view) {
    return view == nullptr ? RowsView{} : rows_view(*view);
  };
  const auto vector_or_none = [](const Weight* weight) {
    return weight == nullptr ? nullptr : weight->vector;
  };
  const HeadScanParams params{state_rows(batch),
                              args.num_heads,
                              args.num_k_heads,
                              args.k_dim,
                              args.v_dim,
                              0,
                              args.tiled,
                              rows_view(args.q),
                              rows_view(args.k),
                              rows_view(args.v),
                              rows_view(args.dt),
                              view_or_none(args.beta),
                              view_or_none(args.erased),
                              view_or_none(args.removed),
                              args.row_decays,
                              vector_or_none(args.dt_bias),
                              vector_or_none(args.a),
                              vector_or_none(args.skip),
                              args.unit_keys,
                              args.eps,
                              args.q_scale,
                              args.state,
                              rows_view(args.kept),
                              rows_view(args.out)};
  cudaStream_t stream = cuda_state(state).stream.get();
  if (args.k_dim <= 32) return launch_scan<8, 4>(stream, params, batch.num_seqs);
  if (args.k_dim <= 128) return launch_scan<32, 4>(stream, params, batch.num_seqs);
  if (args.k_dim <= 256) return launch_scan<32, 8>(stream, params, batch.num_seqs);
  static_assert(ScanShape<64, 16, Decays::kOne>::kRows == kMaxKeyDim);
  launch_scan<64, 16>(stream, params, batch.num_seqs);
}

}  // namespace hearth::kernels
