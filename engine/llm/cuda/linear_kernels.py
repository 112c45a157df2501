"""Triton kernels of the decoder's four matrix products and of the head, each with what follows it fused in.

One order of summation per weight, whatever the number of lines: a line's result depends on that line alone, so a
sequence draws the same tokens alone, in any batch and beside any prefill. Rows are independent in every kernel here.
That holds for other tiles too: tensor cores add the products of one output in ascending order of k whatever the tile
(the tiles in config.TileTable give the same bits on an H200: tests/gpu), and launches turn off the
fusion of multiplications and additions, which the compiler would choose differently for different tiles.
IS_PDL: the kernel before may still run (programmatic dependent launch). What was there before that one began, weights
above all, may be read at once, everything else behind `wait_for_inputs`; then all kernels before are done. See
ahead_kernels for products of few lines. Only the CUDA path imports this module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

# Columns of the residual whose squares are summed by one writer: divides every `block_n` of `out` and `down`.
SQUARES_COLUMNS = tl.constexpr(32)


@triton.jit
def wait_for_inputs(IS_PDL: tl.constexpr):
    """And let the next kernel begin."""
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def accumulate(
    x_ptr,
    lines,
    is_line,
    w_ptr,
    first_col,
    first_k,
    WIDTH: tl.constexpr,
    NUM_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """x[lines, first_k : first_k + NUM_K] @ w[first_col : + BLOCK_N, the same].T -> [BLOCK_M, BLOCK_N] float32.

    x [., WIDTH] and w [., WIDTH] row-major. One chain of additions over k in ascending order per output.
    """
    cols = first_col + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + lines[:, None] * WIDTH + (first_k + ks)[None, :]
    w_ptrs = w_ptr + cols[None, :] * WIDTH + (first_k + ks)[:, None]
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.range(0, NUM_K, BLOCK_K, num_stages=NUM_STAGES):
        if NUM_K % BLOCK_K == 0:
            x = tl.load(x_ptrs, mask=is_line[:, None], other=0.0)
            w = tl.load(w_ptrs)
        else:
            is_k = ks < NUM_K - k
            x = tl.load(x_ptrs, mask=is_line[:, None] & is_k[None, :], other=0.0)
            w = tl.load(w_ptrs, mask=is_k[:, None], other=0.0)
        sums = tl.dot(x, w, sums, input_precision="ieee")
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    return sums


@triton.jit
def load_squares(squares_ptr, lines, is_line, SQUARES_STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """Tuple of [BLOCK_M] float32: the partial sums of squares that the writers of the residual's lines left."""
    parts = ()
    for part in tl.static_range((WIDTH + SQUARES_COLUMNS - 1) // SQUARES_COLUMNS):
        square = tl.load(squares_ptr + part * SQUARES_STRIDE + lines, mask=is_line, other=0.0)
        parts = parts + (square,)  # type: ignore[assignment]  # noqa: RUF005 - Triton knows no *parts
    return parts


@triton.jit
def inverse_rms(parts, WIDTH: tl.constexpr, EPS):
    """[BLOCK_M] float32 from `load_squares`. One after the other: a reduction's order would depend on the tile."""
    total = parts[0]
    for part in tl.static_range(1, (WIDTH + SQUARES_COLUMNS - 1) // SQUARES_COLUMNS):
        total += parts[part]
    return tl.rsqrt(total / WIDTH + EPS)


@triton.jit
def sum_neighbours(x, NUM_LINES: tl.constexpr, NUM_COLUMNS: tl.constexpr):
    """[NUM_LINES, NUM_COLUMNS] -> half as many columns; repeated, a sum whose order no tile can change."""
    even, odd = tl.split(tl.reshape(x, [NUM_LINES, NUM_COLUMNS // 2, 2]))
    return even + odd


@triton.jit
def sum_squares(x, NUM_LINES: tl.constexpr, NUM_COLUMNS: tl.constexpr):
    """[NUM_LINES, NUM_COLUMNS] -> [NUM_LINES, NUM_COLUMNS / SQUARES_COLUMNS]."""
    x = sum_neighbours(x * x, NUM_LINES, NUM_COLUMNS)
    x = sum_neighbours(x, NUM_LINES, NUM_COLUMNS // 2)
    x = sum_neighbours(x, NUM_LINES, NUM_COLUMNS // 4)
    x = sum_neighbours(x, NUM_LINES, NUM_COLUMNS // 8)
    return sum_neighbours(x, NUM_LINES, NUM_COLUMNS // 16)


@triton.jit
def embed(
    lines_ptr,
    table_ptr,
    last_token_ptr,
    residual_ptr,
    x_ptr,
    squares_ptr,
    FIRST_SPEECH_ROW: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SQUARES_STRIDE: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """One line: its table row, or where that is negative its slot's last token, to the residual. Grid (lines,)."""
    if IS_PDL:
        tl.extra.cuda.gdc_launch_dependents()
    line = tl.program_id(0)
    table_row = tl.load(lines_ptr + line * 4)
    if table_row < 0:
        table_row = FIRST_SPEECH_ROW + tl.load(last_token_ptr + tl.load(lines_ptr + line * 4 + 1))
    channels = tl.arange(0, BLOCK)
    is_channel = channels < WIDTH
    offsets = line * WIDTH + channels
    value = tl.load(table_ptr + table_row.to(tl.int64) * WIDTH + channels, mask=is_channel, other=0.0).to(tl.float32)
    tl.store(residual_ptr + offsets, value, mask=is_channel)
    tl.store(x_ptr + offsets, value.to(x_ptr.dtype.element_ty), mask=is_channel)
    parts = tl.arange(0, NUM_PARTS)
    is_part = parts * SQUARES_COLUMNS < WIDTH
    tl.store(
        squares_ptr + parts * SQUARES_STRIDE + line, tl.where(parts == 0, tl.sum(value * value, 0), 0.0), mask=is_part
    )


@triton.jit(do_not_specialize=["num_lines"])
def project_qkv(
    x_ptr,
    squares_ptr,
    w_ptr,
    bias_ptr,
    lines_ptr,
    rotary_ptr,
    query_ptr,
    cache_ptr,
    num_lines,
    EPS,
    slot_stride,
    part_stride,
    WIDTH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    MAX_POSITIONS: tl.constexpr,
    SQUARES_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """RMSNorm, q/k/v with bias, rotation; queries to `query` [., heads * dim], keys and values into the cache.

    Grid (line tiles, column tiles). The norm's weight is folded into w; its scale is applied behind the product.
    `cache_ptr` is the layer's: [2, slots, kv_heads, MAX_POSITIONS, HEAD_DIM]. `rotary` [positions, dim / 2, 2] holds
    cosine and sine; a pair's two channels are neighbours (model.py's order of q and k channels).
    """
    first_col = tl.program_id(1) * BLOCK_N
    lines = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_line = lines < num_lines
    cols = first_col + tl.arange(0, BLOCK_N)
    # Asked for before the product, these are there behind it.
    bias = tl.load(bias_ptr + cols)
    slots = tl.load(lines_ptr + lines * 4 + 1, mask=is_line, other=0)
    positions = tl.load(lines_ptr + lines * 4 + 2, mask=is_line, other=0)
    wait_for_inputs(IS_PDL)
    squares = load_squares(squares_ptr, lines, is_line, SQUARES_STRIDE, WIDTH)
    sums = accumulate(x_ptr, lines, is_line, w_ptr, first_col, 0, WIDTH, WIDTH, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES)
    qkv = sums * inverse_rms(squares, WIDTH, EPS)[:, None] + bias[None, :]

    QUERY_WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    KEY_WIDTH: tl.constexpr = NUM_KV_HEADS * HEAD_DIM
    pairs = first_col // 2 + tl.arange(0, BLOCK_N // 2)
    is_rotated = (is_line[:, None]) & (pairs < (QUERY_WIDTH + KEY_WIDTH) // 2)[None, :]
    rotary = rotary_ptr + positions[:, None] * HEAD_DIM + (pairs % (HEAD_DIM // 2) * 2)[None, :]
    cosine = tl.load(rotary, mask=is_rotated, other=1.0)
    sine = tl.load(rotary + 1, mask=is_rotated, other=0.0)
    even, odd = tl.split(tl.reshape(qkv, [BLOCK_M, BLOCK_N // 2, 2]))
    turned = tl.join(even * cosine - odd * sine, even * sine + odd * cosine)
    qkv = tl.reshape(turned, [BLOCK_M, BLOCK_N]).to(query_ptr.dtype.element_ty)

    is_query = is_line[:, None] & (cols < QUERY_WIDTH)[None, :]
    tl.store(query_ptr + lines[:, None] * QUERY_WIDTH + cols[None, :], qkv, mask=is_query)
    if first_col + BLOCK_N > QUERY_WIDTH:
        kv_cols = cols - QUERY_WIDTH
        places = (kv_cols // KEY_WIDTH) * part_stride + (kv_cols % KEY_WIDTH // HEAD_DIM) * (MAX_POSITIONS * HEAD_DIM)
        places += kv_cols % HEAD_DIM
        starts = slots.to(tl.int64) * slot_stride + positions * HEAD_DIM
        is_kv = is_line[:, None] & ((kv_cols >= 0) & (kv_cols < 2 * KEY_WIDTH))[None, :]
        tl.store(cache_ptr + starts[:, None] + places[None, :], qkv, mask=is_kv)


@triton.jit(do_not_specialize=["num_lines"])
def project_gate_up(
    x_ptr,
    squares_ptr,
    w_ptr,
    inner_ptr,
    num_lines,
    EPS,
    WIDTH: tl.constexpr,
    INNER: tl.constexpr,
    SQUARES_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """RMSNorm, then silu(gate) * up -> `inner` [., INNER]; w has gate 0, up 0, gate 1, ... As `project_qkv`."""
    first_col = tl.program_id(1) * BLOCK_N
    lines = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_line = lines < num_lines
    wait_for_inputs(IS_PDL)
    squares = load_squares(squares_ptr, lines, is_line, SQUARES_STRIDE, WIDTH)
    sums = accumulate(x_ptr, lines, is_line, w_ptr, first_col, 0, WIDTH, WIDTH, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES)
    scale = inverse_rms(squares, WIDTH, EPS)
    gate, up = tl.split(tl.reshape(sums * scale[:, None], [BLOCK_M, BLOCK_N // 2, 2]))
    value = (gate / (1.0 + tl.exp(-gate)) * up).to(inner_ptr.dtype.element_ty)
    channels = first_col // 2 + tl.arange(0, BLOCK_N // 2)
    is_stored = is_line[:, None] & (channels < INNER)[None, :]
    tl.store(inner_ptr + lines[:, None] * INNER + channels[None, :], value, mask=is_stored)


@triton.jit(do_not_specialize=["num_lines"])
def project_residual(
    x_ptr,
    w_ptr,
    residual_ptr,
    y_ptr,
    squares_ptr,
    partials_ptr,
    arrivals_ptr,
    num_lines,
    WIDTH: tl.constexpr,
    OUT: tl.constexpr,
    SQUARES_STRIDE: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """residual [., OUT] += x @ w.T; a copy in the activations' dtype to `y`; sums of squares, one per column tile.

    Grid (line tiles, column tiles, splits). A product cut along k is summed in the order of its parts by whichever
    program comes last, so that the sum does not depend on who that is. `partials` [line tiles, column tiles, splits,
    BLOCK_M, BLOCK_N] float32; `arrivals` [line tiles, column tiles] int32, 0 before and after.
    """
    first_col = tl.program_id(1) * BLOCK_N
    split = tl.program_id(2)
    NUM_K: tl.constexpr = WIDTH // NUM_SPLITS
    lines = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_line = lines < num_lines
    cols = first_col + tl.arange(0, BLOCK_N)
    is_stored = is_line[:, None] & (cols < OUT)[None, :]
    offsets = lines[:, None] * OUT + cols[None, :]
    wait_for_inputs(IS_PDL)
    if NUM_SPLITS == 1:  # else the last to come loads it: to load it in all of them is slower (H200)
        residual = tl.load(residual_ptr + offsets, mask=is_stored, other=0.0)
    sums = accumulate(
        x_ptr, lines, is_line, w_ptr, first_col, split * NUM_K, WIDTH, NUM_K, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES
    )
    is_last = True
    if NUM_SPLITS > 1:
        tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        within = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        parts_ptr = partials_ptr + tile * (NUM_SPLITS * BLOCK_M * BLOCK_N) + within
        tl.store(parts_ptr + split * (BLOCK_M * BLOCK_N), sums, mask=is_line[:, None])
        tl.debug_barrier()  # all threads' stores before the one thread that says so
        is_last = tl.atomic_add(arrivals_ptr + tile, 1, sem="acq_rel", scope="gpu") == NUM_SPLITS - 1
        if is_last:
            tl.store(arrivals_ptr + tile, 0)
            sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            for part in tl.static_range(NUM_SPLITS):
                # .cg: another program wrote this; the first-level cache may be stale.
                sums += tl.load(
                    parts_ptr + part * (BLOCK_M * BLOCK_N), mask=is_line[:, None], other=0.0, cache_modifier=".cg"
                )
    if is_last:
        if NUM_SPLITS > 1:
            residual = tl.load(residual_ptr + offsets, mask=is_stored, other=0.0)
        value = sums + residual
        tl.store(residual_ptr + offsets, value, mask=is_stored)
        tl.store(y_ptr + offsets, value.to(y_ptr.dtype.element_ty), mask=is_stored)
        first_part = tl.program_id(1) * (BLOCK_N // SQUARES_COLUMNS)
        parts = first_part + tl.arange(0, BLOCK_N // SQUARES_COLUMNS)
        is_part = is_line[:, None] & (parts * SQUARES_COLUMNS < OUT)[None, :]
        squares = squares_ptr + parts[None, :] * SQUARES_STRIDE + lines[:, None]
        tl.store(squares, sum_squares(value, BLOCK_M, BLOCK_N), mask=is_part)


@triton.jit(do_not_specialize=["num_samples"])
def project_scores(
    x_ptr,
    squares_ptr,
    w_ptr,
    bias_ptr,
    samples_ptr,
    scores_ptr,
    num_samples,
    EPS,
    WIDTH: tl.constexpr,
    SCORES_STRIDE: tl.constexpr,
    SQUARES_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """Final RMSNorm and head of the lines that the samples name -> `scores` [samples, SCORES_STRIDE] float32.

    `bias_ptr` is None where the head has none.
    """
    first_col = tl.program_id(1) * BLOCK_N
    samples = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    is_sample = samples < num_samples
    # Sample i's record lies before those of the samples that precede it, 8 words each (packing.py).
    lines = tl.load(samples_ptr - (samples + 1) * 8, mask=is_sample, other=0)
    wait_for_inputs(IS_PDL)
    squares = load_squares(squares_ptr, lines, is_sample, SQUARES_STRIDE, WIDTH)
    sums = accumulate(x_ptr, lines, is_sample, w_ptr, first_col, 0, WIDTH, WIDTH, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES)
    cols = first_col + tl.arange(0, BLOCK_N)
    values = sums * inverse_rms(squares, WIDTH, EPS)[:, None]
    if bias_ptr is not None:
        values += tl.load(bias_ptr + cols)[None, :]
    scores = scores_ptr + samples[:, None] * SCORES_STRIDE + cols[None, :]
    tl.store(scores, values, mask=is_sample[:, None] & (cols < SCORES_STRIDE)[None, :])
