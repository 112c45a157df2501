// All PTX, and what goes with it. The approximate instructions are those that Triton chooses. tests/ have another file
// of this name, by which the kernel's programs run on a CPU.

#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) char name[]

__device__ __forceinline__ u32 shared_address(const void* there) { return (u32)__cvta_generic_to_shared(there); }

__device__ __forceinline__ void multiply(float (&sums)[4], const u32* a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load_matrices(u32* a, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address));
}

__device__ __forceinline__ void load_transposed(u32* a, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address));
}

__device__ __forceinline__ float divide(float a, float b) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float exp_fast(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(__fmul_rn(x, __uint_as_float(0x3FB8AA3B))));
  return y;
}

__device__ __forceinline__ float inverse_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ u32 pack(float low, float high) {  // to bfloat16, rounded to nearest
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ __forceinline__ float low_of(u32 word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_of(u32 word) { return __uint_as_float(word & 0xFFFF0000u); }

__device__ __forceinline__ float partner(float value, int lanes) { return __shfl_xor_sync(~0u, value, lanes); }

__device__ __forceinline__ u64 now_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ u32 now_cycles() { return (u32)clock64(); }

// --- between programs ------------------------------------------------------------------------------------------------

// Each of eight bytes as a whole, in no order among them.
__device__ __forceinline__ void store_word(u64* there, u64 word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(there), "l"(word) : "memory");
}

__device__ __forceinline__ void load_words(const u64* words, u64& first, u64& second) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(first), "=l"(second) : "l"(words) : "memory");
}

__device__ __forceinline__ void wait_for_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// --- between warps ---------------------------------------------------------------------------------------------------

template <int ID, int NUM_THREADS>
__device__ __forceinline__ void synchronize() {
  asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(NUM_THREADS) : "memory");
}

__device__ __forceinline__ void synchronize_workers() { synchronize<1, kWorkers>(); }

// What was written so far, before what the copy engine writes from now on.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- barriers of shared memory, in phases --------------------------------------------------------------------------

__device__ __forceinline__ void begin_barrier(u64& barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void wait_for(u32 barrier, u32 phase) {  // until that phase has ended
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\nbra again;\nover:\n}" ::"r"(barrier), "r"(phase & 1) : "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// A phase ends when so many bytes have come.
__device__ __forceinline__ void expect(u32 barrier, u32 num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}

// A box of a tensor map to shared memory, to be counted by the barrier.
__device__ __forceinline__ void load_box(u32 there, const TensorMap& map, int row, int box, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(there),
      "l"(&map), "r"(0), "r"(row), "r"(box), "r"(barrier), "l"(policy) : "memory");
}

// Of createpolicy.fractional.L2, as compilers write them out.
constexpr u64 kEvictNormal = 0x1000000000000000ull, kEvictFirst = 0x12F0000000000000ull;
