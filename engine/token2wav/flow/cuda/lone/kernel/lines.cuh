// Queries, keys and values in registers: of the finished blocks from the pool, of the new one from qkv.

// Of the batch's numbers those of this program's row. None changes within an Euler step, so nothing is waited for; all
// are asked for at once.
struct Row {
  int num_frames, num_finished, first_frame;
  int first_line;    // of this half
  i64 block, step;
  const i64* table;  // of finished blocks
  i64 first_past;    // of this warp, if there is one

  __device__ __forceinline__ Row(const Arguments& args) {
    const i64* cells = args.rows + (i64)blockIdx.y * args.row_width;
    table = cells + args.table;
    i64 frames = load_here(cells + kNumFrames), finished = load_here(cells + kNumFinished);
    i64 position = load_here(cells + kFirstFrame), start = load_here(cells + kStart);
    block = load_here(cells + kBlock), step = load_here(args.step);
    first_past = load_here(table + min((int)threadIdx.x / 32, args.table_width - 1));
    num_frames = (int)frames, num_finished = (int)finished, first_frame = (int)position;
    first_line = blockIdx.x / args.num_heads * args.num_lines + (int)start;
  }
};

struct Turns {  // cosine and sine of each frame's angles, where head 0 is attended
  float2 of[kWhole][kChannels / 2 + 1];
};

struct Place {  // of a head's keys and values
  const Arguments& args;
  i64 step;
  int head_of_both;  // of all heads of both halves

  __device__ __forceinline__ u8* keys(i64 block) const {
    i64 heads = 2 * args.num_heads;
    return args.pool + (((block * args.num_steps + step) * args.depth + args.layer) * 2 * heads + head_of_both) * kSize;
  }
  __device__ __forceinline__ i64 to_values() const { return 2 * args.num_heads * kSize; }

  static constexpr int kSize = kWhole * kChannels;
};

// Of pairs of bfloat16, a word each.
__device__ __forceinline__ u32 in_float16(u32 pair) { return to_float16(low_of(pair), high_of(pair)); }
__device__ __forceinline__ u32 in_float8(u32 first, u32 second) {
  return to_float8(low_of(first), high_of(first)) | to_float8(low_of(second), high_of(second)) << 16;
}

// Channels 16t .. 16t + 15 of a line, in pairs; of head 0 rotated: upstream rotates before it splits heads, and only
// as many channels as one head has.
struct Line {
  u32 pairs[8];  // bfloat16

  __device__ __forceinline__ void load(const u32* line) {
    uint4 low = load_fresh(line), high = load_fresh(line + 4);
    pairs[0] = low.x, pairs[1] = low.y, pairs[2] = low.z, pairs[3] = low.w;
    pairs[4] = high.x, pairs[5] = high.y, pairs[6] = high.z, pairs[7] = high.w;
  }

  __device__ __forceinline__ void rotate(const Turns& turns, int frame) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float2 turn = turns.of[frame][threadIdx.x % 4 * 8 + i];
      float even = low_of(pairs[i]), odd = high_of(pairs[i]);
      pairs[i] = to_bfloat16(even * turn.x - odd * turn.y, odd * turn.x + even * turn.y);
    }
  }

  __device__ __forceinline__ u32 half(int i) const { return in_float16(pairs[i]); }
  __device__ __forceinline__ u32 eight(int i) const { return in_float8(pairs[2 * i], pairs[2 * i + 1]); }
};

// A finished block's keys and values as they are in the pool: of key 8i + g channels 16t .. 16t + 15, a word a step of
// sixteen channels; of keys 16i + 2t, + 1, + 8, + 9 channels 8g .. 8g + 7.
struct PastBlock {
  uint4 raw_keys[kTiles];
  uint2 values[4][4];
  u32 keys[kTiles][8];  // in float16, a pair a word

  __device__ __forceinline__ void load(const Place& place, i64 block) {
    const u8 *its_keys = place.keys(block), *its_values = its_keys + place.to_values();
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
      int key = 8 * i + g;
      raw_keys[i] = *(const uint4*)(its_keys + (key < kWhole ? key : 0) * kChannels + 16 * t);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int key = 16 * i + 2 * t + j % 2 + j / 2 * 8;
        values[i][j] = {0, 0};  // what has a weight of 0 is multiplied too
        if (key < kWhole) values[i][j] = *(const uint2*)(its_values + key * kChannels + 8 * g);
      }
  }

  // Here and nowhere else, which is while queries are on their way.
  __device__ __forceinline__ void widen_keys() {
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
      const u32 words[4] = {raw_keys[i].x, raw_keys[i].y, raw_keys[i].z, raw_keys[i].w};
#pragma unroll
      for (int step = 0; step < 4; step++) {
        keys[i][2 * step] = from_float8_here(words[step]);
        keys[i][2 * step + 1] = from_float8_here(words[step] >> 16);
      }
    }
  }
};

// Of this program's queries those of this lane.
struct Asked {
  Line low, high;
  const u32* line;  // the row's first, of this head
  int pitch;        // of lines, in words
  int num_frames, head;

  __device__ __forceinline__ Asked(const Arguments& args, const Row& row) {
    head = blockIdx.x % args.num_heads, num_frames = row.num_frames;
    pitch = 3 * args.num_heads * (kChannels / 2);
    line = args.qkv + (i64)row.first_line * pitch + head * (kChannels / 2);
  }

  __device__ __forceinline__ int frame(int i) const {
    return min((int)blockIdx.z * kQueries + (int)threadIdx.x % 32 / 4 + 8 * i, num_frames - 1);
  }

  __device__ __forceinline__ void load() {
    low.load(line + frame(0) * pitch + threadIdx.x % 4 * 8);
    high.load(line + frame(1) * pitch + threadIdx.x % 4 * 8);
  }

  __device__ __forceinline__ void rotate(const Turns& turns) {
    if (head > 0) return;
    low.rotate(turns, frame(0));
    high.rotate(turns, frame(1));
  }
};

// A share of the new block: sixteen keys, from qkv; whole blocks' go to the pool, too.
struct Share {
  Line keys[2];
  uint4 values[4];
  int first;  // of its keys

  __device__ __forceinline__ void load(const Arguments& args, const Asked& asked) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, pitch = asked.pitch, num_frames = asked.num_frames;
    const u32* its_keys = asked.line + args.num_heads * (kChannels / 2);
    const u32* its_values = its_keys + args.num_heads * (kChannels / 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int key = first + 8 * i + g;
      keys[i].load(its_keys + (key < num_frames ? key : 0) * pitch + 8 * t);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int key = first + 2 * t + j % 2 + j / 2 * 8;
      values[j] = {0, 0, 0, 0};
      if (key < num_frames) values[j] = load_fresh(its_values + key * pitch + 4 * g);
    }
  }

  __device__ __forceinline__ void rotate(const Asked& asked, const Turns& turns) {
    if (asked.head > 0) return;
#pragma unroll
    for (int i = 0; i < 2; i++)
      keys[i].rotate(turns, min(first + 8 * i + (int)threadIdx.x % 32 / 4, asked.num_frames - 1));
  }

  __device__ __forceinline__ void keep(const Place& place, i64 block) const {
    u8 *pool_keys = place.keys(block), *pool_values = pool_keys + place.to_values();
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int key = first + 8 * i + g;
      const Line& its = keys[i];
      if (key >= kWhole) continue;
      *(uint4*)(pool_keys + key * kChannels + 16 * t) = {its.eight(0), its.eight(1), its.eight(2), its.eight(3)};
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int key = first + 2 * t + j % 2 + j / 2 * 8;
      const uint4& its = values[j];
      uint2 word = {in_float8(its.x, its.y), in_float8(its.z, its.w)};
      if (key < kWhole) *(uint2*)(pool_values + key * kChannels + 8 * g) = word;
    }
  }
};
