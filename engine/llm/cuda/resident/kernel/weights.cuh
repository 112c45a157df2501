// Weights on their way to shared memory, and the product of 16 of their rows.

constexpr int kHeldSteps = 8;  // whose weights are in registers before the input is there
// From one box to the next; lower -> who polls waits behind them, higher -> they are late.
constexpr int kBoxCycles = 120;

// A warp's part of the program's shared memory, which is filled and read in turn.
struct Slot {
  char* there;
  u32 full, empty;  // barriers
  u32 num_read;

  __device__ __forceinline__ void wait_until_full() const { wait_for(full, num_read); }

  __device__ __forceinline__ void give_back() {  // by the whole warp, which has read all of it
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty);
    num_read++;
  }
};

// What the program's last warp does: fill the slots in the order in which they are needed, each once it was read.
// Evenly: where all programs ask for all they have room for, what others poll waits behind it in the L2 for 5 us.
__device__ __forceinline__ void fetch_weights(const Arguments& args, Shared& shared, char* memory) {
  u32 lane = threadIdx.x % 32, next_cycle = now_cycles();
  const Fetch mine = args.fetches[blockIdx.x * 32 + lane];
  for (int layer = 0; layer <= LAYERS; layer++)
    for (int i = layer < LAYERS ? 0 : 16;; i++) {
      int kind = __shfl_sync(~0u, mine.kind, i);
      if (kind == kNone) break;
      int rows = __shfl_sync(~0u, mine.rows, i), warp = __shfl_sync(~0u, mine.warp, i);
      int fill = layer * __shfl_sync(~0u, mine.per_layer, i) + __shfl_sync(~0u, mine.nth, i);
      u32 there = shared_address(memory + __shfl_sync(~0u, mine.offset, i));
      u32 full = shared_address(&shared.full[warp]), empty = shared_address(&shared.empty[warp]);
      bool is_down = kind == kDownRows;
      int num_boxes = is_down ? INNER / SPLITS / kBox : HIDDEN / kBox;
      int num_rows = kind == kQkvRows ? QKV_ROWS : kind == kGateUpRows ? GATE_UP_ROWS : OUT_ROWS;  // of a layer
      int row = (kind == kHeadRows ? 0 : layer * num_rows) + (is_down ? rows / SPLITS : rows) * 16;
      if (fill > 0) wait_for(empty, fill - 1);
      if (lane == 0) {
        while ((int)(now_cycles() - next_cycle) < 0) {
        }
        next_cycle = now_cycles() + num_boxes * kBoxCycles;
        expect(full, num_boxes * kBoxBytes);
        load_box(there, args.maps[kind - 1], row, is_down ? rows % SPLITS * num_boxes : 0, full, kEvictFirst);
      }
      __syncwarp();
    }
}

// 16 rows of a slot, of which the first steps' are in registers.
template <int STEPS>
struct Rows {
  u32 held[kHeldSteps][4];
  u32 addresses[kBox / 16];  // of a box's steps: sixteens of bytes are swizzled over eight rows (SWIZZLE_128B)

  // Once they are there.
  __device__ __forceinline__ void load(const Slot& slot) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kBox / 16; step++)
      addresses[step] = shared_address(slot.there) + lane % 16 * (2 * kBox) + ((2 * step + lane / 16) ^ lane % 8) * 16;
    slot.wait_until_full();
#pragma unroll
    for (int step = 0; step < kHeldSteps; step++) load_matrices(held[step], address_of(step));
  }

  __device__ __forceinline__ u32 address_of(int step) const {
    return addresses[step % (kBox / 16)] + step / (kBox / 16) * kBoxBytes;
  }

  // Times x: sums[0] of row lane / 4 and sums[2] of row lane / 4 + 8, in lanes that four divides.
  // IS_NORMED: and the sum of x's squares, part after part, of 32 channels each.
  template <bool IS_NORMED>
  __device__ __forceinline__ float times(float (&sums)[4], const u32* x, const float* squares) {
    u32 lane = threadIdx.x % 32;
    const uint4* fragments = (const uint4*)(x + (lane & 3) * (2 * STEPS + 4));
    sums[0] = sums[1] = sums[2] = sums[3] = 0.0f;
    float total = 0.0f;
    auto add_squares = [&](int step) {
      if (IS_NORMED) {
        float2 pair = *(const float2*)(squares + step);
        total = __fadd_rn(total, __fadd_rn(pair.x, pair.y));
      }
    };
#pragma unroll
    for (int step = 0; step < kHeldSteps; step += 2) {
      uint4 b = make_uint4(0, 0, 0, 0);
      if (lane < 4) b = fragments[step / 2];
      multiply(sums, held[step], b.x, b.y);
      multiply(sums, held[step + 1], b.z, b.w);
      add_squares(step);
    }
#pragma unroll
    for (int step = kHeldSteps; step < STEPS; step += 2) {
      uint4 b = make_uint4(0, 0, 0, 0);
      if (lane < 4) b = fragments[step / 2];
      u32 a[4];
      load_matrices(a, address_of(step));
      multiply(sums, a, b.x, b.y);
      load_matrices(a, address_of(step + 1));
      multiply(sums, a, b.z, b.w);
      add_squares(step);
    }
    return total;
  }
};

using ShortRows = Rows<kShortSteps>;
using LongRows = Rows<kLongSteps>;
