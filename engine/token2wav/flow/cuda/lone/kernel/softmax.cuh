// A warp's softmax over the keys that it has, and what becomes of all warps'.

struct Found {  // by a warp
  u32 means[kQueries][kPitch];  // of values, by their weights: float16
  float highest[kQueries], total[kQueries];
};

// A warp's running softmax (arXiv:2205.14135) of sixteen queries; base 2. This lane: queries g and g + 8.
struct Softmax {
  u32 queries[4][4];
  float highest[2], total[2];  // total: of this lane's keys
  float sums[8][4];            // column n of tile c: channel 8n + c

  __device__ __forceinline__ void begin(Asked& asked, const Turns& turns) {
    asked.rotate(turns);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      queries[i][0] = asked.low.half(2 * i), queries[i][2] = asked.low.half(2 * i + 1);
      queries[i][1] = asked.high.half(2 * i), queries[i][3] = asked.high.half(2 * i + 1);
    }
  }

  __device__ __forceinline__ void clear() {
    highest[0] = highest[1] = kNothingYet, total[0] = total[1] = 0.0f;
#pragma unroll
    for (int c = 0; c < 8; c++) sums[c][0] = sums[c][1] = sums[c][2] = sums[c][3] = 0.0f;
  }

  // Scores of TILES times eight keys, of which so many are keys, to weights: in pairs of keys, of each tile for both
  // queries.
  template <int TILES>
  __device__ __forceinline__ void weigh(float (&scores)[TILES][4], int num_keys, u32 (&weights)[TILES][2]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float high = __uint_as_float(0xFF800000u);  // minus infinity
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; j++) {
          if (8 * i + 2 * t + j % 2 >= num_keys) scores[i][j] = __uint_as_float(0xFF800000u);
          high = fmaxf(high, scores[i][j]);
        }
      high = fmaxf(high, partner(high, 1));
      high = fmaxf(high, partner(high, 2));
      high = fmaxf(highest[half], high * kLog2E);
      float shrink = exp2_fast(highest[half] - high);
      highest[half] = high;
      total[half] *= shrink;
#pragma unroll
      for (int c = 0; c < 8; c++) sums[c][2 * half] *= shrink, sums[c][2 * half + 1] *= shrink;
#pragma unroll
      for (int i = 0; i < TILES; i++) {
        float first = exp2_fast(scores[i][2 * half] * kLog2E - high);
        float second = exp2_fast(scores[i][2 * half + 1] * kLog2E - high);
        total[half] += first + second;
        weights[i][half] = to_float16(first, second);
      }
    }
  }

  __device__ __forceinline__ void attend(const PastBlock& block) {
    float scores[kTiles][4] = {};
#pragma unroll
    for (int step = 0; step < 4; step++)
#pragma unroll
      for (int i = 0; i < kTiles; i++)
        multiply(scores[i], queries[step], block.keys[i][2 * step], block.keys[i][2 * step + 1]);
    u32 weights[kTiles][2];
    weigh(scores, kWhole, weights);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool is_last = 2 * i + 1 == kTiles;  // then eight keys are missing
      const u32 a[4] = {weights[2 * i][0], weights[2 * i][1], is_last ? 0 : weights[(2 * i + 1) % kTiles][0],
                        is_last ? 0 : weights[(2 * i + 1) % kTiles][1]};
      const uint2(&values)[4] = block.values[i];
#pragma unroll
      for (int c = 0; c < 8; c += 2) {
        u32 which = c % 4 ? 0x7362 : 0x5140;  // of both keys channels c and c + 1
        u32 low = permute(c < 4 ? values[0].x : values[0].y, c < 4 ? values[1].x : values[1].y, which);
        u32 high = permute(c < 4 ? values[2].x : values[2].y, c < 4 ? values[3].x : values[3].y, which);
        multiply(sums[c], a, from_float8(low), from_float8(high));
        multiply(sums[c + 1], a, from_float8(low >> 16), from_float8(high >> 16));
      }
    }
  }

  // Sixteen keys of the new block, of which so many are keys: keys[i] is 8i + g, values those of 2t, + 1, + 8, + 9.
  __device__ __forceinline__ void attend(const Line (&keys)[2], const uint4 (&values)[4], int num_keys) {
    float scores[2][4] = {};
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int step = 0; step < 4; step++)
        multiply(scores[i], queries[step], keys[i].half(2 * step), keys[i].half(2 * step + 1));
    u32 weights[2][2];
    weigh(scores, num_keys, weights);
    const u32 a[4] = {weights[0][0], weights[0][1], weights[1][0], weights[1][1]};
#pragma unroll
    for (int c = 0; c < 8; c++)
      multiply(sums[c], a, of_both(values[0], values[1], c), of_both(values[2], values[3], c));
  }

  // Channel c of eight, of two keys.
  static __device__ __forceinline__ u32 of_both(const uint4& first, const uint4& second, int c) {
    const u32 a[4] = {first.x, first.y, first.z, first.w}, b[4] = {second.x, second.y, second.z, second.w};
    return in_float16(permute(a[c / 2], b[c / 2], c % 2 ? 0x7632 : 0x5410));
  }

  __device__ __forceinline__ void tell(Found& found) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int query = g + 8 * half;
      total[half] += partner(total[half], 1);
      total[half] += partner(total[half], 2);
      if (t == 0) found.highest[query] = highest[half], found.total[query] = total[half];
      float scale = total[half] > 0.0f ? inverse(total[half]) : 0.0f;
      uint4* there = (uint4*)&found.means[query][8 * t];
#pragma unroll
      for (int i = 0; i < 2; i++) {  // channels 16t + 8i .. + 7: column 2t + i of all tiles
        int column = 2 * half + i;
        there[i] = {to_float16(scale * sums[0][column], scale * sums[1][column]),
                    to_float16(scale * sums[2][column], scale * sums[3][column]),
                    to_float16(scale * sums[4][column], scale * sums[5][column]),
                    to_float16(scale * sums[6][column], scale * sums[7][column])};
      }
    }
  }
};

// Four channels of a query, of the warps that have keys: of so many finished blocks, and of the new one.
__device__ __forceinline__ float4 merged(const Found* found, int num_finished, int query, int channel) {
  float highest = kNothingYet, total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; warp++)
    if (warp < num_finished || warp >= kFirstShareWarp) highest = fmaxf(highest, found[warp].highest[query]);
  float4 sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int warp = 0; warp < kWarps; warp++) {
    if (warp >= num_finished && warp < kFirstShareWarp) continue;
    float weight = found[warp].total[query] * exp2_fast(found[warp].highest[query] - highest);
    uint2 its = *(const uint2*)&found[warp].means[query][channel / 2];
    total += weight;
    sums.x += weight * low_half_of(its.x), sums.y += weight * high_half_of(its.x);
    sums.z += weight * low_half_of(its.y), sums.w += weight * high_half_of(its.y);
  }
  float scale = inverse(total);
  return {sums.x * scale, sums.y * scale, sums.z * scale, sums.w * scale};
}
