/* A decode step of a small speech LLM in one call: one new position of each of some sequences, in one thread.
 *
 * torch needs some 240 operations for it, and they cost more than the products (docs/adr/0018). Only what
 * engine/llm/torch/model.py computes is computed here, from the same float16 weights and with float32 sums.
 *
 * A row's result does not depend on the other rows, bit for bit: each sum is made in one order, whatever the rows are
 * that share a weight. So no product is fused but where FMA says so (-ffp-contract=off).
 *
 * This file includes itself once for each width of vectors; one library serves all processors. No libm, no threads.
 */
#ifndef LANES

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* engine/llm/cpu/decoder.py has the same fields in the same order. */
struct model {
    int64_t layers, hidden, inner, heads, kv_heads, head_dim, speech_rows, slots, max_positions;
    const uint16_t *weights; /* float16; of each layer qkv, out, gate and up, down, each [out, in]; then the head */
    const float *vectors;    /* of each layer norm, bias of qkv, norm; then the last norm, and the head's bias */
    const float *rotary;     /* [positions, head_dim / 2, 2]: cosine and sine */
    float *cache;            /* [layers, 2, slots, kv_heads, max_positions, head_dim], as KvCache.data */
    float *scratch;          /* _scratch_floats of decoder.py says how many */
    float eps, score_scale;
};

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED(k, count) _Pragma("GCC unroll 4") for (int k = 0; k < count; k++)
#define LOAD OP(loadu_ps)
#define STORE OP(storeu_ps)
#define ALL OP(set1_ps)
#define FMA OP(fmadd_ps)

#define LANES 16
#define ROWS 4 /* inputs that share a weight while it is in a register: 4 * ROWS sums, of 32 registers */
#define V __m512
#define OF(name) name##_avx512
#define OP(name) _mm512_##name
#define TARGET __attribute__((target("avx512f,avx2,fma,f16c")))
#define WIDEN(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
TARGET INLINE __m128 folded_avx512(__m512 v) /* lane i of four: the sum of lanes i, i + 4, i + 8, ... */
{
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), high);
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}
#include "decode.c"

#undef LANES
#undef ROWS
#undef V
#undef OF
#undef OP
#undef TARGET
#undef WIDEN
#define LANES 8
#define ROWS 2 /* of 16 registers */
#define V __m256
#define OF(name) name##_avx2
#define OP(name) _mm256_##name
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define WIDEN(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
TARGET INLINE __m128 folded_avx2(__m256 v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
#include "decode.c"

#else /* once for each width */

/* The sums of four vectors' lanes. Together they take a third of what they would take one by one. */
TARGET INLINE __m128 OF(sums)(V a, V b, V c, V d)
{
    const V ab = OP(unpacklo_ps)(a, b) + OP(unpackhi_ps)(a, b);
    const V cd = OP(unpacklo_ps)(c, d) + OP(unpackhi_ps)(c, d);
    return OF(folded)(OP(shuffle_ps)(ab, cd, 0x44) + OP(shuffle_ps)(ab, cd, 0xEE));
}

TARGET INLINE float OF(sum)(V v)
{
    return _mm_cvtss_f32(OF(sums)(v, v, v, v));
}

/* e^x to 2 ulp: 2^n by the exponent's bits, and Cephes' polynomial for the rest. Beyond +-80 as at +-80: no number
 * that comes of it is so small that it would be slow. */
TARGET INLINE V OF(exponential)(V x)
{
    x = OP(min_ps)(OP(max_ps)(x, ALL(-80.0f)), ALL(80.0f));
    const V n = OP(cvtepi32_ps)(OP(cvtps_epi32)(x * ALL(1.44269504f)));
    const V power = (V)OP(slli_epi32)(OP(cvtps_epi32)(n + ALL(127.0f)), 23);
    const V r = FMA(n, ALL(2.12194440e-4f), FMA(n, ALL(-0.693359375f), x)); /* ln 2 in two parts */
    V p = FMA(ALL(1.9875691500e-4f), r, ALL(1.3981999507e-3f));
    p = FMA(p, r, ALL(8.3334519073e-3f));
    p = FMA(p, r, ALL(4.1665795894e-2f));
    p = FMA(p, r, ALL(1.6666665459e-1f));
    p = FMA(p, r, ALL(5.0000001201e-1f));
    return FMA(p, r * r, r + ALL(1.0f)) * power;
}

/* Four weight rows with `rows` inputs (a constant where it is called). */
TARGET INLINE void OF(tile)(const uint16_t *const weights[4], const float *x, int64_t in, const int rows,
                            float sums[ROWS][4])
{
    V all[ROWS][4];
    UNROLLED(row, rows) UNROLLED(k, 4) all[row][k] = ALL(0.0f);
    for (int64_t i = 0; i < in; i += LANES) {
        const V w[4] = {WIDEN(weights[0] + i), WIDEN(weights[1] + i), WIDEN(weights[2] + i), WIDEN(weights[3] + i)};
        UNROLLED(row, rows)
        {
            const V v = LOAD(x + row * in + i);
            UNROLLED(k, 4) all[row][k] = FMA(w[k], v, all[row][k]);
        }
    }
    UNROLLED(row, rows) _mm_storeu_ps(sums[row], OF(sums)(all[row][0], all[row][1], all[row][2], all[row][3]));
}

/* to[rows, out] = x[rows, in] * weights[out, in] + added; `added` may be NULL, or `to`, and has rows `stride` apart.
 * Each weight is read from memory once for all rows. */
TARGET static void OF(multiply)(const uint16_t *weights, const float *x, int64_t rows, int64_t in, int64_t out,
                                const float *added, int64_t stride, float *to)
{
    for (int64_t o = 0; o < out; o += 4) {
        const uint16_t *four[4];
        const int64_t num = out - o < 4 ? out - o : 4;
        UNROLLED(k, 4) four[k] = weights + (o + (k < num ? k : num - 1)) * in;
        for (int64_t first = 0; first < rows; first += ROWS) {
            float sums[ROWS][4];
            const float *inputs = x + first * in;
            const int64_t left = rows - first < ROWS ? rows - first : ROWS;
            switch (left) {
            case 1: OF(tile)(four, inputs, in, 1, sums); break;
            case 2: OF(tile)(four, inputs, in, 2, sums); break;
#if ROWS > 2
            case 3: OF(tile)(four, inputs, in, 3, sums); break;
            default: OF(tile)(four, inputs, in, 4, sums);
#endif
            }
            for (int64_t row = 0; row < left; row++)
                for (int64_t k = 0; k < num; k++)
                    to[(first + row) * out + o + k] =
                        sums[row][k] + (added ? added[(first + row) * stride + o + k] : 0.0f);
        }
    }
}

/* to = x / sqrt(mean(x^2) + eps) * weight, of each row; `to` may be `x`. */
TARGET static void OF(normalise)(const float *x, const float *weight, int64_t rows, int64_t width, float eps, float *to)
{
    for (const float *end = x + rows * width; x < end; x += width, to += width) {
        V squares = ALL(0.0f);
        for (int64_t i = 0; i < width; i += LANES)
            squares = FMA(LOAD(x + i), LOAD(x + i), squares);
        const __m128 mean = _mm_set_ss(OF(sum)(squares) / (float)width + eps);
        const V scale = ALL(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
        for (int64_t i = 0; i < width; i += LANES)
            STORE(to + i, LOAD(x + i) * scale * LOAD(weight + i));
    }
}

/* scores[count] -> softmax of m->score_scale times them; there is 0 up to the next multiple of LANES. */
TARGET static void OF(weigh)(const struct model *m, float *scores, int64_t count)
{
    const int64_t padded = (count + LANES - 1) / LANES * LANES;
    for (int64_t at = count; at < padded; at++)
        scores[at] = scores[0];
    float lanes[LANES], most = scores[0];
    V greatest = ALL(most), total = ALL(0.0f);
    for (int64_t at = 0; at < padded; at += LANES)
        greatest = OP(max_ps)(greatest, LOAD(scores + at));
    STORE(lanes, greatest);
    for (int lane = 0; lane < LANES; lane++)
        most = lanes[lane] > most ? lanes[lane] : most;
    for (int64_t at = 0; at < padded; at += LANES)
        STORE(scores + at, OF(exponential)((LOAD(scores + at) - ALL(most)) * ALL(m->score_scale)));
    memset(scores + count, 0, (padded - count) * sizeof(float));
    for (int64_t at = 0; at < padded; at += LANES)
        total = total + LOAD(scores + at);
    const V scale = ALL(1.0f / OF(sum)(total));
    for (int64_t at = 0; at < padded; at += LANES)
        STORE(scores + at, LOAD(scores + at) * scale);
}

/* The heads that share a key head. query and to [group, head_dim]; keys and values [count, head_dim]; scores
 * [group, count rounded up to LANES]. Four positions at a time; behind the last one it is there again, and weighs 0. */
TARGET static void OF(attend)(const struct model *m, const float *query, const float *keys, const float *values,
                              int64_t count, float *scores, float *to)
{
    const int64_t group = m->heads / m->kv_heads, dim = m->head_dim, padded = (count + LANES - 1) / LANES * LANES;
    int64_t four[4];
    for (int64_t at = 0; at < count; at += 4) {
        UNROLLED(k, 4) four[k] = (at + k < count ? at + k : count - 1) * dim;
        for (int64_t head = 0; head < group; head++) {
            V a = ALL(0.0f), b = a, c = a, d = a;
            for (int64_t i = 0; i < dim; i += LANES) {
                const V q = LOAD(query + head * dim + i);
                a = FMA(q, LOAD(keys + four[0] + i), a);
                b = FMA(q, LOAD(keys + four[1] + i), b);
                c = FMA(q, LOAD(keys + four[2] + i), c);
                d = FMA(q, LOAD(keys + four[3] + i), d);
            }
            _mm_storeu_ps(scores + head * padded + at, OF(sums)(a, b, c, d));
        }
    }
    for (int64_t head = 0; head < group; head++)
        OF(weigh)(m, scores + head * padded, count);
    memset(to, 0, group * dim * sizeof(float));
    for (int64_t at = 0; at < count; at += 4) {
        UNROLLED(k, 4) four[k] = (at + k < count ? at + k : count - 1) * dim;
        for (int64_t head = 0; head < group; head++) {
            const float *w = scores + head * padded + at;
            const V a = ALL(w[0]), b = ALL(w[1]), c = ALL(w[2]), d = ALL(w[3]);
            for (int64_t i = 0; i < dim; i += LANES) {
                V sum = FMA(a, LOAD(values + four[0] + i), LOAD(to + head * dim + i));
                sum = FMA(b, LOAD(values + four[1] + i), sum);
                sum = FMA(c, LOAD(values + four[2] + i), sum);
                STORE(to + head * dim + i, FMA(d, LOAD(values + four[3] + i), sum));
            }
        }
    }
}

/* One row of a layer: turn queries and keys, store keys and values, attend. qkv [heads + 2 kv_heads, head_dim]. */
TARGET static void OF(attend_row)(const struct model *m, int64_t layer, int64_t slot, int64_t position, float *qkv,
                                  float *scores, float *to)
{
    const int64_t dim = m->head_dim, group = m->heads / m->kv_heads, of_head = m->max_positions * dim;
    const float *turn = m->rotary + position * dim;
    for (float *head = qkv, *end = qkv + (m->heads + m->kv_heads) * dim; head < end; head += dim)
        for (int64_t i = 0; i < dim; i += 2) {
            const float even = head[i], odd = head[i + 1];
            head[i] = even * turn[i] - odd * turn[i + 1];
            head[i + 1] = even * turn[i + 1] + odd * turn[i];
        }
    float *keys = m->cache + (layer * 2 * m->slots + slot) * m->kv_heads * of_head;
    float *values = keys + m->slots * m->kv_heads * of_head;
    const float *new_keys = qkv + m->heads * dim, *new_values = new_keys + m->kv_heads * dim;
    for (int64_t head = 0; head < m->kv_heads; head++, keys += of_head, values += of_head) {
        memcpy(keys + position * dim, new_keys + head * dim, dim * sizeof(float));
        memcpy(values + position * dim, new_values + head * dim, dim * sizeof(float));
        OF(attend)(m, qkv + head * group * dim, keys, values, position + 1, scores, to + head * group * dim);
    }
}

/* embeddings and hidden [rows, hidden]; row r is position positions[r] of slot slots[r]. `hidden` is behind the last
 * norm. */
TARGET void OF(decode)(const struct model *m, int64_t rows, const float *embeddings, const int64_t *slots,
                       const int64_t *positions, float *hidden)
{
    const int64_t width = m->hidden, inner = m->inner, query = m->heads * m->head_dim;
    const int64_t qkv = query + 2 * m->kv_heads * m->head_dim;
    float *normed = m->scratch, *narrow = normed + rows * width;
    float *wide = narrow + rows * (query > inner ? query : inner);
    float *scores = wide + rows * (qkv > 2 * inner ? qkv : 2 * inner);
    const uint16_t *weights = m->weights;
    const float *vectors = m->vectors;
    memcpy(hidden, embeddings, rows * width * sizeof(float));
    for (int64_t layer = 0; layer < m->layers; layer++) {
        OF(normalise)(hidden, vectors, rows, width, m->eps, normed);
        OF(multiply)(weights, normed, rows, width, qkv, vectors + width, 0, wide);
        for (int64_t row = 0; row < rows; row++)
            OF(attend_row)(m, layer, slots[row], positions[row], wide + row * qkv, scores, narrow + row * query);
        weights += qkv * width, vectors += width + qkv;
        OF(multiply)(weights, narrow, rows, query, width, hidden, width, hidden);
        weights += width * query;
        OF(normalise)(hidden, vectors, rows, width, m->eps, normed);
        vectors += width;
        OF(multiply)(weights, normed, rows, width, 2 * inner, 0, 0, wide);
        weights += 2 * inner * width;
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < inner; i += LANES) { /* SiLU of the gate, times up */
                const V gate = LOAD(wide + row * 2 * inner + i), up = LOAD(wide + row * 2 * inner + inner + i);
                STORE(narrow + row * inner + i, gate / (ALL(1.0f) + OF(exponential)(ALL(0.0f) - gate)) * up);
            }
        OF(multiply)(weights, narrow, rows, inner, width, hidden, width, hidden);
        weights += width * inner;
    }
    OF(normalise)(hidden, vectors, rows, width, m->eps, hidden);
}

/* hidden [rows, hidden] -> scores [rows, speech_rows]. The head is the last of the weights and of the vectors. */
TARGET void OF(score)(const struct model *m, int64_t rows, const float *hidden, float *scores)
{
    const int64_t width = m->hidden, query = m->heads * m->head_dim;
    const int64_t qkv = query + 2 * m->kv_heads * m->head_dim;
    const uint16_t *head = m->weights + m->layers * width * (qkv + query + 3 * m->inner);
    const float *bias = m->vectors + m->layers * (2 * width + qkv) + width;
    OF(multiply)(head, hidden, rows, width, m->speech_rows, bias, 0, scores);
}

#endif
