"""Triton kernel of the estimator's products, x @ weight.T + bias, of few lines. See fused_linear.

Lines are frames, of both CFG halves. Only the CUDA path imports this module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from voicegate.engine.flow.cuda.attention_kernels import LOG2_E


@triton.jit
def gelu(x):
    """Its tanh form, of float32: x * (1 + tanh(u)) / 2 = x * sigmoid(2u)."""
    twice = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    return x / (1 + tl.exp2(-LOG2_E * twice))


@triton.jit
def prefetch_rows(weight_ptr, rows, STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """Ask for the first WIDTH weights of rows [., STRIDE] in L2 while the kernel before is still running."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [
            weight_ptr + rows * STRIDE,
            tl.full(rows.shape, WIDTH * (weight_ptr.dtype.element_ty.primitive_bitwidth // 8), tl.int32),
        ],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit(do_not_specialize=["num_lines"])
def linear_kernel(
    x_ptr,  # [lines, K]
    weight_ptr,  # [N, K]
    bias_ptr,  # [N]
    out_ptr,  # [parts, lines, N]: to be summed
    num_lines,
    WIDTH_IN: tl.constexpr,
    WIDTH_OUT: tl.constexpr,
    HAS_GELU: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """Linear, and GELU's tanh form, where cuBLAS is bound by latency.

    A program: BLOCK_L lines, BLOCK_O outputs, K / parts inputs; all widths are multiples of the blocks. Parts are for
    products so small that most of the GPU would be idle.
    """
    width: tl.constexpr = WIDTH_IN // NUM_PARTS
    part = tl.program_id(2)
    lines = tl.program_id(1) * BLOCK_L + tl.arange(0, BLOCK_L)
    outs = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    ks = part * width + tl.arange(0, BLOCK_K)
    is_line = lines < num_lines
    if IS_PDL:
        prefetch_rows(weight_ptr + part * width, outs, WIDTH_IN, width)
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    x = x_ptr + lines[:, None] * WIDTH_IN + ks[None, :]
    weight = weight_ptr + outs[None, :] * WIDTH_IN + ks[:, None]
    sums = tl.zeros([BLOCK_L, BLOCK_O], tl.float32)
    for first in tl.range(0, width, BLOCK_K, num_stages=NUM_STAGES):
        inputs = tl.load(x + first, mask=is_line[:, None], other=0.0)
        sums = tl.dot(inputs, tl.load(weight + first), sums, input_precision="ieee")
    bias = tl.load(bias_ptr + outs).to(tl.float32)
    sums += tl.where(part == 0, bias, 0.0)[None, :]
    if HAS_GELU:
        sums = gelu(sums)
    out = out_ptr + (part * num_lines + lines[:, None]) * WIDTH_OUT + outs[None, :]
    tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=is_line[:, None])
