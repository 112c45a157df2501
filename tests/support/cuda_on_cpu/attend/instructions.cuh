// Stands in for the kernel's file of this name: its programs on a CPU. See ../decode_step. Arithmetic is float32,
// rounded where the kernel rounds. Included behind model.cuh.

#define DYNAMIC_SHARED(name) char* name = emulated::this_program().memory

inline u32 bits_of(_Float16 value) {
  u16 bits;
  std::memcpy(&bits, &value, 2);
  return bits;
}

inline u32 to_float16(float low, float high) { return bits_of((_Float16)low) | bits_of((_Float16)high) << 16; }

inline float low_half_of(u32 word) {
  u16 bits = (u16)word;
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return (float)value;
}

inline float high_half_of(u32 word) { return low_half_of(word >> 16); }

// e4m3: a sign, four bits of exponent with a bias of 7, three of mantissa; no infinity.
inline float of_float8(u32 byte) {
  int exponent = byte >> 3 & 15, mantissa = byte & 7;
  float value = exponent ? std::ldexp(8.0f + mantissa, exponent - 10) : std::ldexp((float)mantissa, -9);
  if ((byte & 0x7F) == 0x7F) value = NAN;
  return byte & 0x80 ? -value : value;
}

inline u32 float8_of(float value) {  // to nearest, ties to even, saturating
  u32 sign = std::signbit(value) ? 0x80 : 0;
  float size = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7F;
  if (size >= 448.0f) return sign | 0x7E;
  int exponent = size < 0.015625f ? -6 : std::ilogb(size);
  float steps = std::nearbyint(std::ldexp(size, 3 - exponent));  // of an eighth of the power of two
  return sign | std::min((u32)((exponent + 6) * 8 + (int)steps), 0x7Eu);
}

inline u32 to_float8(float low, float high) { return float8_of(low) | float8_of(high) << 8; }
inline u32 from_float8(u32 word) { return to_float16(of_float8(word & 0xFF), of_float8(word >> 8 & 0xFF)); }
inline u32 from_float8_here(u32 word) { return from_float8(word); }

inline u32 permute(u32 a, u32 b, u32 which) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  u32 word = 0;
  for (int i = 0; i < 4; i++) word |= (u32)(both >> (which >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return word;
}

inline void multiply(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  emulated::multiply(sums, a, b0, b1, [](u32 word, int half) { return half ? high_half_of(word) : low_half_of(word); });
}

inline float inverse(float x) { return 1.0f / x; }

inline uint4 load_fresh(const u32* there) {
  uint4 words = {there[0], there[1], there[2], there[3]};
  emulated::yield_some(10);
  return words;
}

inline i64 load_here(const i64* there) { return *there; }

inline void wait_for_kernels_before() {
  while (!emulated::has_front_ended) emulated::yield();
}

inline void let_next_begin() {
  if (!emulated::has_front_ended) emulated::fail("the next kernel may begin before the one in front has ended");
}
