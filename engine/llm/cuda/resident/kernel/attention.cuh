// Attention of the line over its slot's cached keys and values, by a program for each key head.

constexpr int kTileKeys = DECODE_KEYS, kTiles = MAX_KEYS / kTileKeys;
constexpr int kTileTurns = kTileKeys / 8 / kWarps;  // a warp's slices of eight keys of a tile
constexpr int kTileSteps = kTileKeys / 16;
constexpr int kBoxKeys = 64;  // of a tensor map of the cache
constexpr int kQueryPitch = HEAD_DIM / 2 + 4, kWeightPitch = MAX_KEYS / 2 + 4;  // words: ldmatrix without conflicts

struct AttentionShared {  // of the programs that attend, instead of slots
  u32 keys[MAX_KEYS * HEAD_DIM / 2];  // sixteens of bytes swizzled over eight keys, as the tensor map has them
  u32 values[MAX_KEYS * HEAD_DIM / 2];
  u32 query[8 * kQueryPitch];
  u32 own_key[HEAD_DIM / 2], own_value[HEAD_DIM / 2];
  float highest[kTiles][8][kWarps];  // of a tile and head, by warp
  u32 weights[8 * kWeightPitch];     // of heads, in pairs of keys
};

// One key head's queries over the keys before this line's, by a whole program; attention_kernels._attend_line's order.
// A head is a row of the products' first operand, and again a row that nobody reads: eight more.
struct Attention {
  const Arguments& args;
  AttentionShared& shared;
  u32 barrier;
  int kv_head, num_keys, num_tiles;  // before the line's own

  __device__ __forceinline__ void begin() {
    num_keys = args.line[2];
    num_tiles = num_keys > 0 ? (num_keys + kTileKeys - 1) / kTileKeys : 1;
    clear_values(num_tiles * kTileKeys);
    synchronize_workers();
    ask_for_context(0);
  }

  // Those beyond the keys are multiplied too, with weights of 0: of what is not a number that would not be 0.
  __device__ __forceinline__ void clear_values(int end) {
    for (int i = num_keys * (HEAD_DIM / 2) + threadIdx.x; i < end * (HEAD_DIM / 2); i += kWorkers) shared.values[i] = 0;
    fence_copies();
  }

  __device__ __forceinline__ void ask_for_context(int layer) {
    int num_boxes = (num_keys + kBoxKeys - 1) / kBoxKeys;
    if (threadIdx.x >= 32 || num_boxes == 0 || layer >= LAYERS) return;
    if (threadIdx.x == 0) expect(barrier, 2 * num_boxes * (kBoxKeys * 2 * HEAD_DIM));
    __syncwarp();
    int part = threadIdx.x % 2, box = threadIdx.x / 2;
    if (box >= num_boxes) return;
    u64 place = layer * args.layer_stride + part * args.part_stride + args.line[1] * args.slot_stride;
    int row = (int)(place / HEAD_DIM) + kv_head * MAX_POSITIONS + box * kBoxKeys;
    u32* there = (part ? shared.values : shared.keys) + box * (kBoxKeys * HEAD_DIM / 2);
    load_box(shared_address(there), args.cache_map, row, 0, barrier, kEvictNormal);
  }

  __device__ __forceinline__ void wait_for_context(int layer) {
    if (num_keys == 0) return;
    wait_for(barrier, layer);
    clear_values((num_keys + kBoxKeys - 1) / kBoxKeys * kBoxKeys);
  }

  // Threads of the first words poll queries, those behind them the own key, then the own value.
  __device__ __forceinline__ void receive_query(const u64* exchange, u32 flag) {
    constexpr int kHeadWords = kGroup * HEAD_DIM / 2;
    int index = 2 * threadIdx.x, own_index = index - kHeadWords;
    if (own_index >= HEAD_DIM) return;
    bool is_query = own_index < 0, is_value = own_index >= HEAD_DIM / 2;
    int within = is_query ? index : own_index % (HEAD_DIM / 2);
    const u64* words = exchange + kQkv + within +
                       (is_query ? kv_head * kHeadWords : kQueries + is_value * kKeys + kv_head * (HEAD_DIM / 2));
    u64 low, high, since_ns = 0;
    u32 looks = 0;
    do {
      load_words(words, low, high);
      if ((++looks & 0xFFFF) == 0) check_time(since_ns);
    } while ((u32)(low >> 32) != flag || (u32)(high >> 32) != flag);
    u32* there = is_query ? shared.query + within / (HEAD_DIM / 2) * kQueryPitch + within % (HEAD_DIM / 2)
                          : (is_value ? shared.own_value : shared.own_key) + within;
    there[0] = (u32)low;
    there[1] = (u32)high;
  }

  // This warp's slices of two tiles.
  __device__ __forceinline__ void load_keys(u32 (&keys)[2 * kTileTurns][HEAD_DIM / 8], int first_tile) const {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int turn = 0; turn < 2 * kTileTurns; turn++) {
      u32 row = shared_address(shared.keys) + ((first_tile * kTileTurns + turn) * kWarps + warp) * (16 * HEAD_DIM) +
                lane % 8 * (2 * HEAD_DIM);
      load_matrices(&keys[turn][0], row + (lane / 8 ^ lane % 8) * 16);
      load_matrices(&keys[turn][4], row + ((lane / 8 + 4) ^ lane % 8) * 16);
    }
  }

  // This warp's eight channels of a tile.
  __device__ __forceinline__ void load_values(u32 (&values)[kTileSteps][2], int tile) const {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 row = shared_address(shared.values) + (tile * kTileKeys + lane) * (2 * HEAD_DIM) + (warp ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < kTileSteps; i += 2)
      load_transposed(&values[i][0], row + i * (32 * HEAD_DIM));  // and the next step's
  }

  // Scores of two tiles' slices, and each tile's highest of this warp to shared memory.
  __device__ __forceinline__ void score(float (&scores)[kTiles * kTileTurns][2], const u32 (&query)[HEAD_DIM / 16][4],
                                        const u32 (&keys)[2 * kTileTurns][HEAD_DIM / 8], int first_tile) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = lane / 4;
    float sums[2 * kTileTurns][4] = {};
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++)
#pragma unroll
      for (int turn = 0; turn < 2 * kTileTurns; turn++)
        multiply(sums[turn], query[step], keys[turn][2 * step], keys[turn][2 * step + 1]);
    float highest[2 * kTileTurns];
#pragma unroll
    for (int turn = 0; turn < 2 * kTileTurns; turn++) {
      int slice = first_tile * kTileTurns + turn, key = (slice * kWarps + warp) * 8 + lane % 4 * 2;
      float minus_infinity = __uint_as_float(0xFF800000u);
      scores[slice][0] = key < num_keys ? __fmul_rn(sums[turn][0], SCALE) : minus_infinity;
      scores[slice][1] = key + 1 < num_keys ? __fmul_rn(sums[turn][1], SCALE) : minus_infinity;
      highest[turn] = fmaxf(scores[slice][0], scores[slice][1]);
    }
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      float high = fmaxf(highest[tile * kTileTurns], highest[tile * kTileTurns + 1]);
      high = fmaxf(high, partner(high, 1));
      high = fmaxf(high, partner(high, 2));
      if (lane % 4 == 0) shared.highest[first_tile + tile][head][warp] = high;
    }
  }

  __device__ __forceinline__ float highest_of(int tile) const {
    const float4* by_warp = (const float4*)shared.highest[tile][threadIdx.x % 32 / 4];
    float4 a = by_warp[0], b = by_warp[1];
    return fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
  }

  __device__ __forceinline__ void run(u64* exchange, u32 flag) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int head = lane / 4;
    static_assert(kTileTurns == 2 && kWarps == 8 && kTiles == 4, "so the code below is cut");
    u32 keys[2][2 * kTileTurns][HEAD_DIM / 8];
    load_keys(keys[0], 0);
    receive_query(exchange, flag);
    synchronize_workers();

    u32 query[HEAD_DIM / 16][4], own_key[HEAD_DIM / 8];
    u32 query_row = shared_address(shared.query) + lane % 8 * (4 * kQueryPitch) + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++) load_matrices(query[step], query_row + step * 32);
    load_matrices(&own_key[0], shared_address(shared.own_key) + lane / 8 * 16);  // every row the own key
    load_matrices(&own_key[4], shared_address(shared.own_key) + lane / 8 * 16 + 64);
    if (num_tiles > 2) load_keys(keys[1], 2);
    float scores[kTiles * kTileTurns][2], own[4] = {};
    score(scores, query, keys[0], 0);
    if (num_tiles > 2) score(scores, query, keys[1], 2);
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++)
      multiply(own, query[step], own_key[2 * step], own_key[2 * step + 1]);
    float highest = __fmul_rn(own[0], SCALE), shrink[kTiles];
    synchronize_workers();

#pragma unroll
    for (int tile = 0; tile < kTiles; tile++) {
      if (tile >= num_tiles) break;
      float higher = fmaxf(highest, highest_of(tile));
      shrink[tile] = exp2_fast(__fsub_rn(highest, higher));
      highest = higher;
#pragma unroll
      for (int slice = tile * kTileTurns; slice < (tile + 1) * kTileTurns; slice++)
        shared.weights[head * kWeightPitch + (slice * kWarps + warp) * 4 + lane % 4] =
            pack(exp2_fast(__fsub_rn(scores[slice][0], highest)), exp2_fast(__fsub_rn(scores[slice][1], highest)));
    }
    u32 values[kTiles + 1][kTileSteps][2];  // of two tiles at a time
    load_values(values[0], 0);
    synchronize_workers();

    u32 own_value = shared.own_value[warp * 4 + lane % 4];
    float sums[4] = {low_of(own_value), high_of(own_value), 0.0f, 0.0f}, total[4] = {1.0f, 1.0f, 0.0f, 0.0f};
    u32 weights_row = shared_address(shared.weights) + lane % 8 * (4 * kWeightPitch) + lane / 16 * 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; tile++) {
      if (tile >= num_tiles) break;
      u32 weights[kTileSteps][4];
#pragma unroll
      for (int i = 0; i < kTileSteps; i++) load_matrices(weights[i], weights_row + (tile * kTileSteps + i) * 32);
      if (tile + 1 < num_tiles) load_values(values[tile + 1], tile + 1);
      sums[0] = __fmul_rn(sums[0], shrink[tile]), sums[1] = __fmul_rn(sums[1], shrink[tile]);
      total[0] = __fmul_rn(total[0], shrink[tile]);
#pragma unroll
      for (int i = 0; i < kTileSteps; i++) {
        constexpr u32 kOnes = 0x3F803F80u;
        multiply(sums, weights[i], values[tile][i][0], values[tile][i][1]);
        multiply(total, weights[i], kOnes, kOnes);
      }
    }
    if (head < kGroup)
      send(exchange + kAttended + (kv_head * kGroup + head) * (HEAD_DIM / 2) + warp * 4 + lane % 4,
           pack(divide(sums[0], total[0]), divide(sums[1], total[0])), flag);
  }
};

__device__ __noinline__ void attend(const Arguments& args, AttentionShared& shared, u32 barrier, int kv_head,
                                    u32 first_flag) {
  Attention attention{args, shared, barrier, kv_head};
  attention.begin();
  for (int layer = 0; layer < LAYERS; layer++) {
    attention.wait_for_context(layer);
    attention.run(args.exchange + (layer & 1) * kExchangeWords, first_flag + layer);
    synchronize_workers();  // everybody has read it
    attention.ask_for_context(layer + 1);
  }
}
