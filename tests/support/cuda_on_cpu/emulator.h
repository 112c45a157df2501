// Threads as fibers, and CUDA's own names for them: what a kernel needs to be compiled for a CPU.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace emulated {

struct Thread;

struct BarrierOfThreads {
  std::vector<Thread*> waiting;
  void wait(int num_threads);
};

using Lanes = std::array<std::array<unsigned, 6>, 32>;

struct Warp {
  BarrierOfThreads barrier;
  Lanes lanes[2];  // of collective operations, in turn: a lane may be one ahead
};

struct Program {
  std::vector<char> room;
  char* memory;  // in it, aligned
  std::array<BarrierOfThreads, 16> barriers;
  std::vector<Warp> warps;
};

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Program* program;
  unsigned block, index, num_collectives = 0;
  bool is_over = false, is_parked = false, is_polling = false;
  long num_stores_seen = -1;
};

struct Later {
  long due;
  std::function<void()> act;
};

inline Thread* current;
inline ucontext_t scheduler;
inline std::vector<Later> pending;
inline std::mt19937 random_numbers;
inline long turn, num_stores, num_events;  // events: whatever lets somebody go on
inline bool has_front_ended;               // the kernel in front, and what it stores is there
inline std::string failure;

inline Program& this_program() { return *current->program; }
inline void yield() { swapcontext(&current->context, &scheduler); }

[[noreturn]] inline void fail(const char* why) {
  failure = why;
  for (;;) yield();
}

inline void later(int at_most, std::function<void()> act) {
  pending.push_back({turn + 1 + (long)(random_numbers() % at_most), std::move(act)});
}

inline void yield_some(int at_most) {  // what a memory takes
  for (int n = (int)(random_numbers() % (at_most + 1)); n > 0; n--) yield();
}

inline void BarrierOfThreads::wait(int num_threads) {
  if ((int)waiting.size() + 1 < num_threads) {
    waiting.push_back(current);
    current->is_parked = true;
    yield();
    return;
  }
  for (Thread* other : waiting) other->is_parked = false;
  waiting.clear();
  num_events++;
}

// Everybody's words in the warp; valid until the lane's next but one.
inline const Lanes& exchange_in_warp(const unsigned (&mine)[6]) {
  Warp& warp = this_program().warps[current->index / 32];
  Lanes& lanes = warp.lanes[current->num_collectives++ % 2];
  std::copy(std::begin(mine), std::end(mine), lanes[current->index % 32].begin());
  warp.barrier.wait(32);
  return lanes;
}

struct Index {
  unsigned x, y, z;
};

}  // namespace emulated

inline emulated::Index threadIdx, blockIdx, gridDim;

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)

struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
struct float2 {
  float x, y;
};
struct uint2 {
  unsigned x, y;
};
using std::min;
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline void __trap() { emulated::fail("a trap"); }
inline void __syncwarp() {
  unsigned nothing[6] = {};
  emulated::exchange_in_warp(nothing);
}
inline void __syncthreads();
inline int __shfl_sync(unsigned, int value, int lane) {
  unsigned mine[6] = {(unsigned)value};
  return (int)emulated::exchange_in_warp(mine)[lane][0];
}

// --- what all kernels' instructions are made of ---------------------------------------------------------------------

// Of words of bfloat16.
inline float low_of(unsigned word) { return __uint_as_float(word << 16); }
inline float high_of(unsigned word) { return __uint_as_float(word & 0xFFFF0000u); }

inline unsigned to_bfloat16(float low, float high) {
  auto rounded = [](float value) {
    unsigned bits = __float_as_uint(value);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
}

inline float exp2_fast(float x) { return exp2f(x); }

inline float partner(float value, int lanes) {
  unsigned mine[6] = {__float_as_uint(value)};
  return __uint_as_float(emulated::exchange_in_warp(mine)[threadIdx.x % 32 ^ lanes][0]);
}

namespace emulated {

// m16n8k16 of what `value_of(word, half)` says: row r of `a` is in lanes of r % 8, column n of `b` in lanes of n, as
// PTX has them.
template <typename ValueOf>
void multiply(float (&sums)[4], const unsigned* a, unsigned b0, unsigned b1, ValueOf value_of) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const Lanes& lanes = exchange_in_warp(mine);
  int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      unsigned left = lanes[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      unsigned right = lanes[column * 4 + k % 8 / 2][4 + k / 8];
      sums[i] += value_of(left, k % 2) * value_of(right, k % 2);
    }
  }
}

}  // namespace emulated
