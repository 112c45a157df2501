// Activations on their way from program to program: words of eight bytes, four of data, four that say of which layer.

// Twice: for even layers and for odd ones. A layer's readers are through before its second successor's writers begin,
// since everybody has a part in every layer that the rest of it waits for.
constexpr int kInput = 0, kInputWords = HIDDEN / 2 + kGranules;  // values in pairs, then sums of 16 squares
constexpr int kQkv = kInput + kInputWords, kQkvWords = kQueries + 2 * kKeys;
constexpr int kAttended = kQkv + kQkvWords, kAttendedWords = HIDDEN / 2;
constexpr int kMiddle = kAttended + kAttendedWords, kMiddleWords = kInputWords;
constexpr int kInner = kMiddle + kMiddleWords, kInnerWords = INNER / 2;
constexpr int kExchangeWords = kInner + kInnerWords;

__device__ __forceinline__ void send(u64* word, u32 data, u32 flag) {
  store_word(word, (u64)flag << 32 | data);
}

// Trap where others have not sent for so long that they never will: an error, and no GPU that hangs.
__device__ __noinline__ void check_time(u64& since_ns) {
  u64 now = now_ns();
  if (since_ns == 0) since_ns = now;
  if (now - since_ns > 10'000'000'000ull) __trap();
}

// words[0 : NUM_WORDS], an even number, to put(index, data): by the pollers.
template <int NUM_WORDS, typename Put>
__device__ __forceinline__ void receive(const u64* words, u32 flag, Put put) {
  constexpr int PAIRS = (NUM_WORDS / 2 + kPollers - 1) / kPollers;
  int poller = (int)threadIdx.x - (kWorkers - kPollers);
  if (poller < 0) return;
  u64 low[PAIRS], high[PAIRS], since_ns = 0;
  bool is_all;
  u32 looks = 0;
  do {
    is_all = true;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      int index = 2 * (poller + i * kPollers);
      low[i] = high[i] = (u64)flag << 32;
      if (index < NUM_WORDS) load_words(words + index, low[i], high[i]);
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) is_all &= (u32)(low[i] >> 32) == flag && (u32)(high[i] >> 32) == flag;
    if ((++looks & 0xFFFF) == 0) check_time(since_ns);
  } while (!is_all);
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    int index = 2 * (poller + i * kPollers);
    if (index < NUM_WORDS) {
      put(index, (u32)low[i]);
      put(index + 1, (u32)high[i]);
    }
  }
}

// Where word `index` of a row of pairs lies among the fragments of m16n8k16's second operand.
template <int LANE_WORDS>
__device__ __forceinline__ int fragment_place(int index) {
  return (index & 3) * LANE_WORDS + (index >> 3) * 2 + ((index >> 2) & 1);
}

__device__ __forceinline__ void receive_input(Shared& shared, const u64* words, u32 flag) {
  receive<kInputWords>(words, flag, [&](int index, u32 data) {
    if (index < HIDDEN / 2) shared.x[fragment_place<kShortLane>(index)] = data;
    else shared.squares[index - HIDDEN / 2] = __uint_as_float(data);
  });
}
