// Sizes, what the host gives, and who has which part. Macros and structures: arguments.py and plan.py have them too.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int kWarps = 8, kWorkers = 32 * kWarps, kThreads = kWorkers + 32;  // and a warp that fetches
constexpr int kPollers = kWorkers - 32;  // all warps but the first, whose weights come last
constexpr int kBox = 64, kBoxBytes = 2 * 16 * kBox;  // of a tensor map: inputs, times 16 rows
constexpr int kShortSteps = HIDDEN / 16, kLongSteps = INNER / SPLITS / 16;  // of 16 inputs
constexpr int kShortSlot = 32 * HIDDEN, kLongSlot = 32 * (INNER / SPLITS);  // bytes of 16 rows
constexpr int kShortLane = 2 * kShortSteps + 4, kLongLane = 2 * kLongSteps + 4;  // words a lane of an operand
constexpr int kGranules = HIDDEN / 16;  // of rows of `out` and `down`
constexpr int kQueries = HIDDEN / 2, kKeys = KV_HEADS * HEAD_DIM / 2;  // in words
constexpr int kGroup = HIDDEN / HEAD_DIM / KV_HEADS;  // heads of a key head

enum Kind { kNone, kQkvRows, kOutRows, kGateUpRows, kDownRows, kHeadRows };

struct Plan {      // of a warp
  int first_kind;  // what its slot holds first in a layer: kNone, kQkvRows, kOutRows or kDownRows
  int first;       // which 16 rows of it; of kDownRows times SPLITS, plus the split
  int gate_up;     // then these 16 rows of gate and up, or -1
  int head;        // and after all layers these of the head, or -1
  int offset;      // of its slot in shared memory, in bytes
};

struct Fetch {
  int warp;  // whose slot
  int kind, rows;
  int nth, per_layer;  // which filling of the slot it is in a layer, and of how many
  int offset;
};

struct alignas(64) TensorMap {  // CUtensorMap
  u64 words[16];
};

struct Arguments {
  TensorMap maps[5];       // by kind - 1: all layers' rows, one behind the other's
  TensorMap cache_map;     // of all rows of `cache`
  const float* qkv_bias;   // [LAYERS, QKV_ROWS]
  const float* head_bias;  // or null
  const Plan* plans;       // [programs, kWarps]
  const Fetch* fetches;    // [programs, 32]: 16 of each layer, and 16 after all layers
  const int* line;         // table row, slot, position, number
  const float* rotary;     // [positions, HEAD_DIM / 2, 2]
  char* cache;             // [LAYERS, 2, slots, KV_HEADS, MAX_POSITIONS, HEAD_DIM]
  const u32* x;            // what embed has left of the line
  const float* squares;    // [HIDDEN / 32] of SQUARES_STRIDE
  const float* residual;
  float* scores;
  u64* exchange;                                // [2, kExchangeWords]
  u32* epoch;                                   // the flag before this launch's first
  u64 layer_stride, part_stride, slot_stride;  // of the cache, in numbers
  float epsilon;
};

struct Shared {  // of every program, in front of the slots
  u64 full[kWarps], empty[kWarps];  // barriers of the slots
  float squares[kGranules];         // sums of 16
  alignas(16) u32 x[4 * kShortLane];
};

struct OutShared {  // of the programs of `out` and `down`, behind the slots
  float parts[SPLITS][16];
  float residual[16];
  u32 attended[4 * kShortLane];
  u32 inner[SPLITS][4 * kLongLane];
};

constexpr int kFixedBytes = (sizeof(Shared) + 1023) / 1024 * 1024;  // tensor maps swizzle within 1024
constexpr int kOutShared = kFixedBytes + 2 * kShortSlot + SPLITS * kLongSlot;
