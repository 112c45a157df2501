"""The decoder's products for up to eight lines, whose weights are in shared memory before their inputs are there.

A step of few lines is 120 kernels that wait for one another, and each would spend most of its time on the way to its
weights. These kernels begin while the one before still runs (programmatic dependent launch), ask for all their weights
by asynchronous copies, and only then wait; behind the wait there are eight lines to fetch, the products and what
follows them. What they share with the flow's: device/cuda/copies_ahead.py.

Arguments, arithmetic and its order are those of linear_kernels, bit for bit (tests/gpu). Lines beyond `num_lines` are
computed and not stored: the buffers are longer than their lines. Needs compute capability 9.

What is read before the wait must have been done with when this kernel could begin: weights and records always are. A
kernel that lets the next begin before its own wait (attention, `project_residual`) may run while the two before it do.
So `project_residual` finds the residual that the last one left, because `project_qkv` and `project_gate_up` wait first.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from voicegate.engine.device.cuda.copies_ahead import ask_for, copied_rows, let_next_begin, wait_for_inputs
from voicegate.engine.llm.cuda.linear_kernels import SQUARES_COLUMNS


@gluon.jit
def multiply(xs, ws, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, NUM_PARTS: gl.constexpr, CELLS: gl.constexpr):
    """x @ w.T [BLOCK_M, BLOCK_N] float32, in ascending order of k, once all that was asked for is there.

    A warp has eight columns.
    """
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, gl.num_warps()], [16, 8])
    async_copy.wait_group(0)
    sums = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=mma)
    for part in gl.static_range(NUM_PARTS):
        x = xs[part].load(gl.DotOperandLayout(0, mma, 2))
        w = ws[part].permute([1, 0]).load(gl.DotOperandLayout(1, mma, 2))
        sums = mma_v2(x, w, sums, input_precision="ieee")
    return gl.convert_layout(sums, CELLS)


@gluon.jit
def load_squares(squares_ptr, lines, SQUARES_STRIDE: gl.constexpr, WIDTH: gl.constexpr):
    parts = ()
    for part in gl.static_range((WIDTH + SQUARES_COLUMNS - 1) // SQUARES_COLUMNS):
        square = gl.load(squares_ptr + part * SQUARES_STRIDE + lines)
        parts = parts + (square,)  # type: ignore[assignment]  # noqa: RUF005
    return parts


@gluon.jit
def inverse_rms(parts, WIDTH: gl.constexpr, EPS):
    total = parts[0]
    for part in gl.static_range(1, (WIDTH + SQUARES_COLUMNS - 1) // SQUARES_COLUMNS):
        total += parts[part]
    return gl.rsqrt(total / WIDTH + EPS)


@gluon.jit
def sum_neighbours(x, NUM_LINES: gl.constexpr, NUM_COLUMNS: gl.constexpr):
    even, odd = gl.split(gl.reshape(x, [NUM_LINES, NUM_COLUMNS // 2, 2]))
    return even + odd


@gluon.jit(do_not_specialize=["num_lines"])
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
    WIDTH: gl.constexpr,
    NUM_HEADS: gl.constexpr,
    NUM_KV_HEADS: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    MAX_POSITIONS: gl.constexpr,
    SQUARES_STRIDE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
):
    NUM_PARTS: gl.constexpr = WIDTH // BLOCK_K
    CELLS: gl.constexpr = gl.BlockedLayout([1, 2], [8, 4], [1, gl.num_warps()], [1, 0])
    PAIRS: gl.constexpr = gl.BlockedLayout([1, 1], [8, 4], [1, gl.num_warps()], [1, 0])
    QUERY_WIDTH: gl.constexpr = NUM_HEADS * HEAD_DIM
    KEY_WIDTH: gl.constexpr = NUM_KV_HEADS * HEAD_DIM
    first_line, first_col = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    ws = ask_for(w_ptr, copied_rows(first_col, BLOCK_N, BLOCK_K), 0, WIDTH, BLOCK_N, NUM_PARTS, BLOCK_K)
    cols = first_col + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, CELLS))
    bias = gl.load(bias_ptr + cols)
    lines = first_line + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, CELLS))
    is_line = lines < num_lines
    slots = gl.load(lines_ptr + lines * 4 + 1, mask=is_line, other=0)
    positions = gl.load(lines_ptr + lines * 4 + 2, mask=is_line, other=0)
    pairs = first_col // 2 + gl.arange(0, BLOCK_N // 2, layout=gl.SliceLayout(0, PAIRS))
    turned_positions = gl.convert_layout(positions, gl.SliceLayout(1, PAIRS))
    is_rotated = (turned_positions >= 0)[:, None] & (pairs < (QUERY_WIDTH + KEY_WIDTH) // 2)[None, :]
    rotary = rotary_ptr + turned_positions[:, None] * HEAD_DIM + (pairs % (HEAD_DIM // 2) * 2)[None, :]
    cosine = gl.load(rotary, mask=is_rotated, other=1.0)
    sine = gl.load(rotary + 1, mask=is_rotated, other=0.0)

    wait_for_inputs()
    let_next_begin()
    xs = ask_for(x_ptr, copied_rows(first_line, BLOCK_M, BLOCK_K), 0, WIDTH, BLOCK_M, NUM_PARTS, BLOCK_K)
    squares = load_squares(squares_ptr, lines, SQUARES_STRIDE, WIDTH)
    sums = multiply(xs, ws, BLOCK_M, BLOCK_N, NUM_PARTS, CELLS)
    qkv = sums * inverse_rms(squares, WIDTH, EPS)[:, None] + bias[None, :]
    even, odd = gl.split(gl.reshape(qkv, [BLOCK_M, BLOCK_N // 2, 2]))
    even, odd = gl.convert_layout(even, PAIRS), gl.convert_layout(odd, PAIRS)
    turned = gl.join(even * cosine - odd * sine, even * sine + odd * cosine)
    qkv = gl.convert_layout(gl.reshape(turned, [BLOCK_M, BLOCK_N]), CELLS).to(query_ptr.dtype.element_ty)

    is_query = is_line[:, None] & (cols < QUERY_WIDTH)[None, :]
    gl.store(query_ptr + lines[:, None] * QUERY_WIDTH + cols[None, :], qkv, mask=is_query)
    if first_col + BLOCK_N > QUERY_WIDTH:
        kv_cols = cols - QUERY_WIDTH
        places = (kv_cols // KEY_WIDTH) * part_stride + (kv_cols % KEY_WIDTH // HEAD_DIM) * (MAX_POSITIONS * HEAD_DIM)
        places += kv_cols % HEAD_DIM
        starts = slots.to(gl.int64) * slot_stride + positions * HEAD_DIM
        is_kv = is_line[:, None] & ((kv_cols >= 0) & (kv_cols < 2 * KEY_WIDTH))[None, :]
        gl.store(cache_ptr + starts[:, None] + places[None, :], qkv, mask=is_kv)


@gluon.jit(do_not_specialize=["num_lines"])
def project_gate_up(
    x_ptr,
    squares_ptr,
    w_ptr,
    inner_ptr,
    num_lines,
    EPS,
    WIDTH: gl.constexpr,
    INNER: gl.constexpr,
    SQUARES_STRIDE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
):
    NUM_PARTS: gl.constexpr = WIDTH // BLOCK_K
    CELLS: gl.constexpr = gl.BlockedLayout([1, 2], [8, 4], [1, gl.num_warps()], [1, 0])
    PAIRS: gl.constexpr = gl.BlockedLayout([1, 1], [8, 4], [1, gl.num_warps()], [1, 0])
    first_line, first_col = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    ws = ask_for(w_ptr, copied_rows(first_col, BLOCK_N, BLOCK_K), 0, WIDTH, BLOCK_N, NUM_PARTS, BLOCK_K)
    lines = first_line + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, CELLS))

    wait_for_inputs()
    let_next_begin()
    xs = ask_for(x_ptr, copied_rows(first_line, BLOCK_M, BLOCK_K), 0, WIDTH, BLOCK_M, NUM_PARTS, BLOCK_K)
    squares = load_squares(squares_ptr, lines, SQUARES_STRIDE, WIDTH)
    sums = multiply(xs, ws, BLOCK_M, BLOCK_N, NUM_PARTS, CELLS) * inverse_rms(squares, WIDTH, EPS)[:, None]
    gate, up = gl.split(gl.reshape(sums, [BLOCK_M, BLOCK_N // 2, 2]))
    value = gl.convert_layout((gate / (1.0 + gl.exp(-gate)) * up).to(inner_ptr.dtype.element_ty), PAIRS)
    lines = first_line + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, PAIRS))
    channels = first_col // 2 + gl.arange(0, BLOCK_N // 2, layout=gl.SliceLayout(0, PAIRS))
    is_stored = (lines < num_lines)[:, None] & (channels < INNER)[None, :]
    gl.store(inner_ptr + lines[:, None] * INNER + channels[None, :], value, mask=is_stored)


@gluon.jit(do_not_specialize=["num_lines"])
def project_residual(
    x_ptr,
    w_ptr,
    residual_ptr,
    y_ptr,
    squares_ptr,
    partials_ptr,
    arrivals_ptr,
    num_lines,
    WIDTH: gl.constexpr,
    OUT: gl.constexpr,
    SQUARES_STRIDE: gl.constexpr,
    NUM_SPLITS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
):
    NUM_K: gl.constexpr = WIDTH // NUM_SPLITS
    NUM_PARTS: gl.constexpr = NUM_K // BLOCK_K
    CELLS: gl.constexpr = gl.BlockedLayout([1, 2], [8, 4], [1, gl.num_warps()], [1, 0])
    LINES: gl.constexpr = gl.BlockedLayout([1, BLOCK_N], [8, 4], [gl.num_warps(), 1], [1, 0])  # one, a thread's
    gl.static_assert(BLOCK_N == SQUARES_COLUMNS)
    first_line, first_col, split = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N, gl.program_id(2)
    let_next_begin()  # it asks for weights alone before its wait
    ws = ask_for(w_ptr, copied_rows(first_col, BLOCK_N, BLOCK_K), split * NUM_K, WIDTH, BLOCK_N, NUM_PARTS, BLOCK_K)
    places = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, CELLS))
    columns = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, CELLS))
    is_line = first_line + places < num_lines
    is_stored = is_line[:, None] & (first_col + columns < OUT)[None, :]
    offsets = (first_line + places)[:, None] * OUT + (first_col + columns)[None, :]
    residual = gl.load(residual_ptr + offsets, mask=is_stored, other=0.0)

    wait_for_inputs()
    rows = copied_rows(first_line, BLOCK_M, BLOCK_K)
    xs = ask_for(x_ptr, rows, split * NUM_K, WIDTH, BLOCK_M, NUM_PARTS, BLOCK_K)
    sums = multiply(xs, ws, BLOCK_M, BLOCK_N, NUM_PARTS, CELLS)
    is_last = True
    if NUM_SPLITS > 1:
        tile = gl.program_id(0) * gl.num_programs(1) + gl.program_id(1)
        parts_ptr = (
            partials_ptr + tile * (NUM_SPLITS * BLOCK_M * BLOCK_N) + places[:, None] * BLOCK_N + columns[None, :]
        )
        gl.store(parts_ptr + split * (BLOCK_M * BLOCK_N), sums, mask=is_line[:, None])
        gl.thread_barrier()  # all threads' stores before the one thread that says so
        is_last = gl.atomic_add(arrivals_ptr + tile, 1, sem="acq_rel", scope="gpu") == NUM_SPLITS - 1
        if is_last:
            gl.store(arrivals_ptr + tile, 0)
            sums = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=CELLS)
            for part in gl.static_range(NUM_SPLITS):
                part_ptr = parts_ptr + part * (BLOCK_M * BLOCK_N)
                sums += gl.load(part_ptr, mask=is_line[:, None], other=0.0, cache_modifier=".cg")
    if is_last:
        value = sums + residual
        gl.store(residual_ptr + offsets, value, mask=is_stored)
        gl.store(y_ptr + offsets, value.to(y_ptr.dtype.element_ty), mask=is_stored)
        squares = gl.convert_layout(value, LINES)
        squares = sum_neighbours(squares * squares, BLOCK_M, 32)
        squares = sum_neighbours(squares, BLOCK_M, 16)
        squares = sum_neighbours(squares, BLOCK_M, 8)
        squares = sum_neighbours(squares, BLOCK_M, 4)
        squares = sum_neighbours(squares, BLOCK_M, 2)
        lines = first_line + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, squares.type.layout))
        part = gl.program_id(1) + gl.arange(0, 1, layout=gl.SliceLayout(0, squares.type.layout))
        is_part = (lines < num_lines)[:, None] & (part * SQUARES_COLUMNS < OUT)[None, :]
        gl.store(squares_ptr + part[None, :] * SQUARES_STRIDE + lines[:, None], squares, mask=is_part)


@gluon.jit(do_not_specialize=["num_samples"])
def project_scores(
    x_ptr,
    squares_ptr,
    w_ptr,
    bias_ptr,
    samples_ptr,
    scores_ptr,
    num_samples,
    EPS,
    WIDTH: gl.constexpr,
    SCORES_STRIDE: gl.constexpr,
    SQUARES_STRIDE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
):
    NUM_PARTS: gl.constexpr = WIDTH // BLOCK_K
    CELLS: gl.constexpr = gl.BlockedLayout([1, 2], [8, 4], [1, gl.num_warps()], [1, 0])
    first_sample, first_col = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    ws = ask_for(w_ptr, copied_rows(first_col, BLOCK_N, BLOCK_K), 0, WIDTH, BLOCK_N, NUM_PARTS, BLOCK_K)
    samples = first_sample + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, CELLS))
    is_sample = samples < num_samples
    lines = gl.load(samples_ptr - (samples + 1) * 8, mask=is_sample, other=0)
    copied_lines = gl.convert_layout(lines, copied_rows(0, BLOCK_M, BLOCK_K).type.layout)

    wait_for_inputs()
    let_next_begin()
    xs = ask_for(x_ptr, copied_lines, 0, WIDTH, BLOCK_M, NUM_PARTS, BLOCK_K)
    squares = load_squares(squares_ptr, lines, SQUARES_STRIDE, WIDTH)
    sums = multiply(xs, ws, BLOCK_M, BLOCK_N, NUM_PARTS, CELLS)
    values = sums * inverse_rms(squares, WIDTH, EPS)[:, None]
    cols = first_col + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, CELLS))
    if bias_ptr is not None:
        values += gl.load(bias_ptr + cols)[None, :]
    scores = scores_ptr + samples[:, None] * SCORES_STRIDE + cols[None, :]
    gl.store(scores, values, mask=is_sample[:, None] & (cols < SCORES_STRIDE)[None, :])
