// Attention of a row over a paged context in 8 bits, with rotary and the write to the pool.
//
// A program: sixteen queries of one head of one half of one row, and all its keys. A warp has a finished block for
// itself, which is on its way to registers before the queries are there, or a share of the new block. Nothing is
// exchanged until every warp has its own softmax; then they are merged in their order.
//
// Shapes, and what is rounded to what: attention_kernels.py. Products are by m16n8k16, whose operands are words of two
// numbers in fixed lanes. Which channel or key is which column is free as long as both operands agree, and chosen so
// that each lane loads what lies side by side. In comments g = lane / 4 and t = lane % 4.

#include "model.cuh"
#include "instructions.cuh"
#include "lines.cuh"
#include "softmax.cuh"

union Memory {
  Turns turns;  // until all queries and keys are rotated
  Found found[kWarps];
};

static_assert(sizeof(Memory) == SHARED_MEMORY_BYTES, "as the host says");

__device__ __forceinline__ void load(const Arguments& args, const Row& row, Turns& turns) {
  i64 first = (i64)row.first_frame * (kChannels / 2);
  for (int i = threadIdx.x; i < row.num_frames * (kChannels / 2); i += kThreads)
    turns.of[i / (kChannels / 2)][i % (kChannels / 2)] = {args.cosines[first + i], args.sines[first + i]};
}

// For the product in front of this kernel; and for the angles.
__device__ __forceinline__ void wait(const Asked& asked) {
  if (asked.head == 0) __syncthreads();
  wait_for_kernels_before();
  let_next_begin();
}

// A warp's keys: of finished blocks, which do not change within an Euler step, so that the first is on its way before
// the product in front of this kernel has ended; and, of the last warps, a share of the new block.
__device__ __forceinline__ void attend_keys(const Arguments& args, const Row& row, Memory& memory) {
  int warp = threadIdx.x / 32;
  bool has_past = warp < row.num_finished, has_share = warp >= kFirstShareWarp;
  Place place{args, row.step, (int)blockIdx.x};
  PastBlock past;
  if (has_past) past.load(place, row.first_past);
  Asked asked(args, row);
  Share share;
  share.first = (warp - kFirstShareWarp) * kShareKeys;
  wait(asked);
  Softmax softmax;
  softmax.clear();
  if (has_past || has_share) asked.load();
  if (has_past) {
    past.widen_keys();
    softmax.begin(asked, memory.turns);
    softmax.attend(past);
    for (int i = warp + kWarps; i < row.num_finished; i += kWarps) {
      past.load(place, row.table[i]);
      past.widen_keys();
      softmax.attend(past);
    }
    if (has_share) share.load(args, asked);
  } else if (has_share) {
    share.load(args, asked);
    softmax.begin(asked, memory.turns);
  }
  if (has_share && share.first < asked.num_frames) {
    share.rotate(asked, memory.turns);
    softmax.attend(share.keys, share.values, asked.num_frames - share.first);
    if (asked.num_frames == kWhole && blockIdx.z == 0) share.keep(place, row.block);
  }
  if (asked.head == 0) __syncthreads();  // everybody is through with the angles
  if (has_past || has_share) softmax.tell(memory.found[warp]);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ Arguments args) {
  DYNAMIC_SHARED(shared);
  Memory& memory = *(Memory*)shared;
  const Row row(args);
  int head = blockIdx.x % args.num_heads, first_query = blockIdx.z * kQueries;
  if (first_query >= row.num_frames) {  // of a padding row any
    wait_for_kernels_before();          // as everybody does: who waits for this kernel waits for those in front, too
    return;
  }
  if (head == 0) load(args, row, memory.turns);
  attend_keys(args, row, memory);
  __syncthreads();

  int query = threadIdx.x / 16, channel = threadIdx.x % 16 * 4;
  if (query >= kQueries || first_query + query >= row.num_frames) return;
  float4 value = merged(memory.found, row.num_finished, query, channel);
  i64 place = ((i64)(row.first_line + first_query + query) * args.num_heads + head) * kChannels + channel;
  *(uint2*)(args.out + place / 2) = {to_bfloat16(value.x, value.y), to_bfloat16(value.z, value.w)};
}
