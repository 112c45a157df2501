// What follows a product: a row's sum is in the lanes that four divides, lane / 4 and lane / 4 + 8 of the 16.

__device__ __forceinline__ float inverse_rms(float total, float epsilon) {
  return inverse_root(__fadd_rn(divide(total, (float)HIDDEN), epsilon));
}

// What a warp's rows of queries, keys and values need behind the product; known before it.
struct QkvRows {
  float cosine[2], sine[2], bias[2];
  u64 place[2];  // in the cache of layer 0
  int first;

  __device__ __forceinline__ void begin(const Arguments& args, int granule) {
    int position = args.line[2];
    first = granule * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = first + half * 8, channel = row - HIDDEN, within = channel % (KV_HEADS * HEAD_DIM);
      bool is_turned = row < HIDDEN + KV_HEADS * HEAD_DIM;
      const float* turn = args.rotary + (u64)position * HEAD_DIM + row / 2 % (HEAD_DIM / 2) * 2;
      cosine[half] = is_turned ? turn[0] : 1.0f;
      sine[half] = is_turned ? turn[1] : 0.0f;
      place[half] = channel / (KV_HEADS * HEAD_DIM) * args.part_stride + args.line[1] * args.slot_stride +
                    (u64)(within / HEAD_DIM) * (MAX_POSITIONS * HEAD_DIM) + (u64)position * HEAD_DIM +
                    within % HEAD_DIM;
    }
    load_bias(args, 0);
  }

  __device__ __forceinline__ void load_bias(const Arguments& args, int layer) {
    const float* biases = args.qkv_bias + layer * QKV_ROWS;
    bias[0] = biases[first], bias[1] = biases[first + 8];
  }

  // Rotated, to the exchange, and keys and values to the cache.
  __device__ __forceinline__ void finish(const Arguments& args, const float (&sums)[4], float total, int layer,
                                         u64* exchange, u32 flag) const {
    u32 lane = threadIdx.x % 32;
    float scale = inverse_rms(total, args.epsilon);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float value = __fadd_rn(__fmul_rn(sums[2 * half], scale), bias[half]);
      float odd = partner(value, 4);  // in lanes of even rows, which alone go on
      u32 word = pack(__fsub_rn(__fmul_rn(value, cosine[half]), __fmul_rn(odd, sine[half])),
                      __fadd_rn(__fmul_rn(value, sine[half]), __fmul_rn(odd, cosine[half])));
      int row = first + half * 8;
      if (lane % 8 == 0) {
        send(exchange + kQkv + row / 2, word, flag);
        if (row >= HIDDEN) *(u32*)(args.cache + 2 * (place[half] + layer * args.layer_stride)) = word;
      }
    }
  }
};

// Added to the residual, for those who read it next: values in pairs, and the sum of the 16 squares.
__device__ __forceinline__ void finish_residual(OutShared& shared, float low, float high, int granule, u64* words,
                                                u32 flag) {
  u32 lane = threadIdx.x % 32;
  float values[2] = {__fadd_rn(low, shared.residual[lane / 4]), __fadd_rn(high, shared.residual[lane / 4 + 8])};
  float squares[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float other = partner(values[half], 4);
    if (lane % 8 == 0) send(words + granule * 8 + half * 4 + lane / 8, pack(values[half], other), flag);
    float square = __fmul_rn(values[half], values[half]);
    square = __fadd_rn(square, partner(square, 4));
    square = __fadd_rn(square, partner(square, 8));
    squares[half] = __fadd_rn(square, partner(square, 16));
  }
  if (lane == 0) send(words + HIDDEN / 2 + granule, __float_as_uint(__fadd_rn(squares[0], squares[1])), flag);
  if (lane % 4 == 0) {
    shared.residual[lane / 4] = values[0];
    shared.residual[lane / 4 + 8] = values[1];
  }
}

// silu(gate) * up; rows are gate 0, up 0, gate 1, ...
__device__ __forceinline__ void finish_gate_up(const Arguments& args, const float (&sums)[4], float total, int granule,
                                               u64* exchange, u32 flag) {
  u32 lane = threadIdx.x % 32;
  float scale = inverse_rms(total, args.epsilon);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float gate = __fmul_rn(sums[2 * half], scale);
    float up = partner(gate, 4);
    float value = __fmul_rn(divide(gate, __fadd_rn(1.0f, exp_fast(__fsub_rn(0.0f, gate)))), up);
    float next = partner(value, 8);
    if (lane % 16 == 0) send(exchange + kInner + granule * 4 + half * 2 + lane / 16, pack(value, next), flag);
  }
}
