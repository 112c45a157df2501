// Stands in for the kernel's file of this name: its programs on a CPU, all threads at once, in an order that a seed
// gives.
//
// A thread is a fiber that yields wherever it waits. What a GPU does meanwhile, copies and stores that others see, is
// done some turns later, in any order. Arithmetic is float32, rounded where the kernel rounds. Included behind
// model.cuh.

#define DYNAMIC_SHARED(name) char* name = emulated::this_program().memory

inline u32 shared_address(const void* there) {
  return (u32)((const char*)there - emulated::this_program().memory);
}
inline char* shared_pointer(u32 address) { return emulated::this_program().memory + address; }

inline u32 pack(float low, float high) { return to_bfloat16(low, high); }

inline void multiply(float (&sums)[4], const u32* a, u32 b0, u32 b1) {
  emulated::multiply(sums, a, b0, b1, [](u32 word, int half) { return half ? high_of(word) : low_of(word); });
}

inline void load_matrices(u32* a, u32 address) {
  u32 mine[6] = {address};
  const auto& lanes = emulated::exchange_in_warp(mine);
  int lane = threadIdx.x % 32;
  for (int matrix = 0; matrix < 4; matrix++)
    a[matrix] = *(u32*)shared_pointer(lanes[matrix * 8 + lane / 4][0] + lane % 4 * 4);
}

inline void load_transposed(u32* a, u32 address) {
  u32 mine[6] = {address};
  const auto& lanes = emulated::exchange_in_warp(mine);
  int lane = threadIdx.x % 32;
  auto cell = [&](int row) { return (u32) * (unsigned short*)shared_pointer(lanes[row][0] + lane / 4 * 2); };
  for (int matrix = 0; matrix < 4; matrix++) {
    int row = matrix * 8 + lane % 4 * 2;
    a[matrix] = cell(row) | cell(row + 1) << 16;
  }
}

inline float divide(float a, float b) { return a / b; }
inline float exp_fast(float x) { return expf(x); }
inline float inverse_root(float x) { return 1.0f / sqrtf(x); }

inline u64 now_ns() { return 0; }
inline u32 now_cycles() {
  emulated::yield();
  return (u32)emulated::turn * 1000;
}

inline void store_word(u64* there, u64 word) {
  emulated::later(3, [=] { *there = word, emulated::num_stores++; });
}

inline void load_words(const u64* words, u64& first, u64& second) {
  emulated::current->is_polling = true;
  emulated::yield();
  emulated::current->is_polling = false;
  emulated::current->num_stores_seen = emulated::num_stores;
  first = words[0], second = words[1];
}

inline void wait_for_kernels_before() {}
inline void fence_copies() {}

template <int ID, int NUM_THREADS>
void synchronize() {
  emulated::this_program().barriers[ID].wait(NUM_THREADS);
}

inline void synchronize_workers() { synchronize<1, kWorkers>(); }

// --- barriers of shared memory: of one arrival ----------------------------------------------------------------------

struct Barrier {
  unsigned short phase;
  short num_pending;
  int num_bytes;

  void end_phase_if_over() {
    if (num_pending == 0 && num_bytes == 0) phase++, num_pending = 1, emulated::num_events++;
    if (num_pending < 0) emulated::fail("a barrier had more arrivals than it waits for");
  }
};

inline Barrier& barrier_at(u32 address) { return *(Barrier*)shared_pointer(address); }
inline void begin_barrier(u64& barrier) { *(Barrier*)&barrier = {0, 1, 0}; }

inline void wait_for(u32 barrier, u32 phase) {
  while ((barrier_at(barrier).phase & 1) == (phase & 1)) emulated::yield();
}

inline void arrive(u32 barrier) {
  barrier_at(barrier).num_pending--;
  barrier_at(barrier).end_phase_if_over();
}

inline void expect(u32 barrier, u32 num_bytes) {
  barrier_at(barrier).num_bytes += num_bytes;
  arrive(barrier);
}

// Of a matrix of bfloat16: address, rows, columns, rows of a load, boxes of a load.
inline void load_box(u32 there, const TensorMap& map, int row, int box, u32 barrier, u64) {
  u64 words[5];
  std::memcpy(words, map.words, sizeof words);
  char* to = shared_pointer(there);
  Barrier* counted_by = &barrier_at(barrier);
  emulated::later(20, [=] {
    int num_bytes = 0;
    for (u64 b = 0; b < words[4]; b++)
      for (u64 r = 0; r < words[3]; r++)
        for (int part = 0; part < 8; part++, num_bytes += 16) {
          char* cell = to + (b * words[3] + r) * 128 + (part ^ r % 8) * 16;
          if (row + r >= words[1]) std::memset(cell, 0, 16);
          else std::memcpy(cell, (char*)words[0] + ((row + r) * words[2] + (box + b) * 64) * 2 + part * 16, 16);
        }
    counted_by->num_bytes -= num_bytes;
    counted_by->end_phase_if_over();
  });
}

constexpr u64 kEvictNormal = 0, kEvictFirst = 0;
