// A step of the decoder for one line that feeds its slot's last token: all layers and the head in one launch.
//
// A step's 120 kernels wait for one another longer than each of them takes. Here one program stays on each
// multiprocessor, and a warp has the same rows of every layer's weights (plan.py). They come to its slot of shared
// memory while it waits: a program holds a layer's worth of them. Activations go from program to program in words
// that say of which layer they are (exchange.cuh): who reads them polls the data itself, and there is no barrier of
// the grid.
//
// Arithmetic and its order are those of linear_kernels.py and attention_kernels.py, bit for bit (tests/gpu): products
// by m16n8k16 in ascending k, one chain an output and split; nothing is fused that is not fused there.
//
// All programs must be resident at once, one a multiprocessor, so nothing may wait for this kernel that it waits for.

#include "model.cuh"
#include "instructions.cuh"
#include "exchange.cuh"
#include "weights.cuh"
#include "epilogues.cuh"
#include "attention.cuh"

struct Worker {
  const Arguments& args;
  Shared& shared;
  OutShared& out_shared;
  Plan plan;
  u32 first_flag;
  Slot slot;
  QkvRows qkv_rows;
  ShortRows rows;
  float sums[4];

  __device__ __forceinline__ u64* exchange_of(int layer) const { return args.exchange + (layer & 1) * kExchangeWords; }

  __device__ __forceinline__ void begin(bool projects_out, int first_row) {
    for (int i = threadIdx.x; i < HIDDEN / 2; i += kWorkers) shared.x[fragment_place<kShortLane>(i)] = args.x[i];
    if (threadIdx.x < kGranules)
      shared.squares[threadIdx.x] = threadIdx.x % 2 ? 0.0f : args.squares[threadIdx.x / 2 * SQUARES_STRIDE];
    if (projects_out && threadIdx.x < 16) out_shared.residual[threadIdx.x] = args.residual[first_row + threadIdx.x];
    if (plan.first_kind == kQkvRows) qkv_rows.begin(args, plan.first);
    synchronize_workers();
  }

  __device__ __forceinline__ void project_qkv(int layer) {
    if (plan.first_kind == kQkvRows) rows.load(slot);
    if (layer > 0) {
      receive_input(shared, exchange_of(layer) + kInput, first_flag + layer);
      synchronize_workers();
    }
    if (plan.first_kind != kQkvRows) return;
    float total = rows.times<true>(sums, shared.x, shared.squares);
    qkv_rows.finish(args, sums, total, layer, exchange_of(layer), first_flag + layer);
    slot.give_back();
    if (layer + 1 < LAYERS) qkv_rows.load_bias(args, layer + 1);
  }

  __device__ __forceinline__ void project_out(int layer) {
    if (plan.first_kind == kOutRows) rows.load(slot);
    receive<kAttendedWords>(exchange_of(layer) + kAttended, first_flag + layer, [&](int index, u32 data) {
      out_shared.attended[fragment_place<kShortLane>(index)] = data;
    });
    synchronize_workers();
    if (plan.first_kind != kOutRows) return;
    rows.times<false>(sums, out_shared.attended, nullptr);
    finish_residual(out_shared, sums[0], sums[2], plan.first, exchange_of(layer) + kMiddle, first_flag + layer);
    slot.give_back();
  }

  __device__ __forceinline__ void project_gate_up(int layer) {
    if (plan.gate_up >= 0) rows.load(slot);
    receive_input(shared, exchange_of(layer) + kMiddle, first_flag + layer);
    synchronize_workers();
    if (plan.gate_up < 0) return;
    float total = rows.times<true>(sums, shared.x, shared.squares);
    finish_gate_up(args, sums, total, plan.gate_up, exchange_of(layer), first_flag + layer);
    slot.give_back();
  }

  __device__ __forceinline__ void project_down(int layer) {
    constexpr int kSplitWords = kInnerWords / SPLITS;
    LongRows long_rows;
    if (plan.first_kind == kDownRows) long_rows.load(slot);
    receive<kInnerWords>(exchange_of(layer) + kInner, first_flag + layer, [&](int index, u32 data) {
      out_shared.inner[index / kSplitWords][fragment_place<kLongLane>(index % kSplitWords)] = data;
    });
    synchronize_workers();
    if (plan.first_kind != kDownRows) return;
    int split = plan.first % SPLITS;
    u32 row = threadIdx.x % 32 / 4;
    long_rows.times<false>(sums, out_shared.inner[split], nullptr);
    if (threadIdx.x % 4 == 0) out_shared.parts[split][row] = sums[0], out_shared.parts[split][row + 8] = sums[2];
    synchronize<2, 32 * SPLITS>();  // the splits' warps
    if (split == 0) {
      float low = 0.0f, high = 0.0f;
#pragma unroll
      for (int part = 0; part < SPLITS; part++) {
        low = __fadd_rn(low, out_shared.parts[part][row]);
        high = __fadd_rn(high, out_shared.parts[part][row + 8]);
      }
      u64* words = exchange_of(layer + 1) + kInput;
      finish_residual(out_shared, low, high, plan.first / SPLITS, words, first_flag + layer + 1);
    }
    slot.give_back();
  }

  __device__ __forceinline__ void score() {
    if (plan.head >= 0) rows.load(slot);
    receive_input(shared, exchange_of(LAYERS) + kInput, first_flag + LAYERS);
    synchronize_workers();
    if (plan.head < 0) return;
    float total = rows.times<true>(sums, shared.x, shared.squares);
    float scale = inverse_rms(total, args.epsilon);
    if (threadIdx.x % 4 != 0) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = plan.head * 16 + half * 8 + threadIdx.x % 32 / 4;
      float value = __fmul_rn(sums[2 * half], scale);
      args.scores[row] = args.head_bias ? __fadd_rn(value, args.head_bias[row]) : value;
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1) decode_step(const __grid_constant__ Arguments args) {
  DYNAMIC_SHARED(memory);
  Shared& shared = *(Shared*)memory;
  u32 warp = threadIdx.x / 32;
  int kv_head = (int)blockIdx.x - ((int)gridDim.x - KV_HEADS);  // the last programs attend
  if (threadIdx.x < kWarps) {
    begin_barrier(shared.full[threadIdx.x]);
    begin_barrier(shared.empty[threadIdx.x]);
  }
  __syncthreads();
  if (warp >= kWarps) {  // weights were there before the kernel in front of this one
    fetch_weights(args, shared, memory);
    return;
  }
  wait_for_kernels_before();
  u32 first_flag = *args.epoch + 1;
  if (kv_head >= 0) {
    attend(args, *(AttentionShared*)(memory + kFixedBytes), shared_address(&shared.full[0]), kv_head, first_flag);
    return;
  }
  const Plan* plans = args.plans + blockIdx.x * kWarps;
  const Plan first = plans[0];  // its warp has a part in all that others of its program have
  bool projects_qkv = first.first_kind == kQkvRows, projects_out = first.first_kind == kOutRows;
  Worker worker{args, shared, *(OutShared*)(memory + kOutShared), plans[warp], first_flag};
  u32 full = shared_address(&shared.full[warp]), empty = shared_address(&shared.empty[warp]);
  worker.slot = {memory + worker.plan.offset, full, empty, 0};
  worker.begin(projects_out, first.first * 16);
  for (int layer = 0; layer < LAYERS; layer++) {
    if (projects_qkv) worker.project_qkv(layer);
    if (projects_out) worker.project_out(layer);
    worker.project_gate_up(layer);
    if (projects_out) worker.project_down(layer);
  }
  if (first.head < 0) return;
  worker.score();
  // Everybody has read the epoch: everybody had a part in what was just received.
  if (blockIdx.x == HEAD_PROGRAM && threadIdx.x == 0) *args.epoch = first_flag + LAYERS;
}
