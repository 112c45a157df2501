// What the host gives, sizes, and who has which part. Macros and structures: arguments.py has them too.

typedef unsigned int u32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;

struct Arguments {
  const u32* qkv;        // [C, L, 3, H, 64] bfloat16
  u32* out;              // [C, L, H, 64] bfloat16
  u8* pool;              // [blocks, steps, depth, 2, C * H, 50, 64] e4m3
  const float* cosines;  // [frames, 32]
  const float* sines;
  const i64* step;
  const i64* rows;
  int layer, num_lines, num_heads, num_steps, depth, row_width, table, table_width;
};

constexpr int kWarps = NUM_WARPS, kThreads = 32 * kWarps;
constexpr int kShareKeys = 16, kFirstShareWarp = 8;        // of the new block; these warps have few finished ones
constexpr int kQueries = QUERIES, kChannels = HEAD_DIM, kWhole = FRAMES_PER_BLOCK;
constexpr int kTiles = 7;                                  // of eight keys, of a whole block
constexpr int kPitch = kChannels / 2 + 4;                  // words of a row in shared memory
constexpr float kLog2E = 1.4426950408889634f, kNothingYet = -1e30f;

static_assert(kQueries == 16 && kChannels == 64, "lanes are laid out for them");
static_assert(kTiles * 8 >= kWhole && kWhole > (kTiles - 1) * 8, "a block is so many tiles");
static_assert((kWarps - kFirstShareWarp) * kShareKeys >= kWhole, "a key of the new block would be nobody's");

enum Column { kBlock = 0, kNumFrames = 2, kNumFinished = 3, kFirstFrame = 4, kStart = 5 };  // buffers.py's
