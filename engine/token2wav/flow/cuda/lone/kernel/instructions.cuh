// All PTX, and what goes with it. tests/ have another file of this name, by which the kernel's programs run on a CPU.

#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]

// float16, to float32 sums: m16n8k16.
__device__ __forceinline__ void multiply(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two numbers in a word: the first in its lower half.
__device__ __forceinline__ u32 to_float16(float low, float high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ __forceinline__ u32 to_bfloat16(float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ __forceinline__ u32 to_float8(float low, float high) {  // e4m3, saturating, in the lower 16 bits
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ u32 from_float8(u32 word) {  // the lower two of e4m3, to float16
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)word));
  return pair;
}

__device__ __forceinline__ u32 from_float8_here(u32 word) {  // at this point of the program
  u32 pair;
  asm volatile("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)word));
  return pair;
}

__device__ __forceinline__ float low_half_of(u32 word) {  // of float16
  float value;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(value) : "r"(word));
  return value;
}

__device__ __forceinline__ float high_half_of(u32 word) { return low_half_of(word >> 16); }

// Of words of bfloat16.
__device__ __forceinline__ float low_of(u32 word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_of(u32 word) { return __uint_as_float(word & 0xFFFF0000u); }

__device__ __forceinline__ u32 permute(u32 a, u32 b, u32 which) { return __byte_perm(a, b, which); }
__device__ __forceinline__ float partner(float value, int lanes) { return __shfl_xor_sync(~0u, value, lanes); }

// What another kernel has just written: not from the multiprocessor's own cache.
__device__ __forceinline__ uint4 load_fresh(const u32* there) {
  uint4 words;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(there)
               : "memory");
  return words;
}

// At this point of the program, not where it is first looked at.
__device__ __forceinline__ i64 load_here(const i64* there) {
  i64 value;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(value) : "l"(there) : "memory");
  return value;
}

__device__ __forceinline__ void wait_for_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
