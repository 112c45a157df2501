"""Gluon kernel of the estimator's products of few lines, which has its weights before its inputs are there.

An Euler step of one stream's block is a chain of 180 kernels that wait for one another, and a product of few lines
would spend most of its time on the way to its weights. This one begins while the kernel before still runs, asks for all
its weights, and only then waits (device/cuda/copies_ahead.py). Needs Hopper's tensor cores (wgmma).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from voicegate.engine.device.cuda.copies_ahead import ask_for, copied_rows, let_next_begin, wait_for_inputs
from voicegate.engine.flow.cuda.linear_kernels import gelu


@gluon.jit(do_not_specialize=["num_lines"])
def linear_ahead_kernel(
    x_ptr,  # [lines, K]
    weight_ptr,  # [N, K]
    bias_ptr,  # [N]
    out_ptr,  # [parts, lines, N]: to be summed
    num_lines,
    WIDTH_IN: gl.constexpr,
    WIDTH_OUT: gl.constexpr,
    HAS_GELU: gl.constexpr,
    NUM_PARTS: gl.constexpr,
    BLOCK_L: gl.constexpr,  # 64, a wgmma's
    BLOCK_O: gl.constexpr,
    BLOCK_K: gl.constexpr,
    NUM_STAGES: gl.constexpr,
):
    """As linear_kernels.linear_kernel. NUM_STAGES: blocks of inputs that are asked for ahead."""
    WIDTH: gl.constexpr = WIDTH_IN // NUM_PARTS
    NUM_BLOCKS: gl.constexpr = WIDTH // BLOCK_K
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_O, 16])
    SWIZZLED: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    part = gl.program_id(2)
    first_line, first_out = gl.program_id(1) * BLOCK_L, gl.program_id(0) * BLOCK_O

    copied_outs = copied_rows(first_out, BLOCK_O, BLOCK_K)
    weights = ask_for(weight_ptr, copied_outs, part * WIDTH, WIDTH_IN, BLOCK_O, NUM_BLOCKS, BLOCK_K, SWIZZLED)
    outs = first_out + gl.arange(0, BLOCK_O, layout=gl.SliceLayout(0, SUMS))
    bias = gl.load(bias_ptr + outs).to(gl.float32)
    copied_lines = copied_rows(first_line, BLOCK_L, BLOCK_K)
    ks = part * WIDTH + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, copied_lines.type.layout.parent))
    x_ptrs = x_ptr + copied_lines[:, None] * WIDTH_IN + ks[None, :]
    is_copied = (copied_lines < num_lines)[:, None]

    wait_for_inputs()
    let_next_begin()
    inputs = ()
    for block in gl.static_range(NUM_STAGES):
        there = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [BLOCK_L, BLOCK_K], SWIZZLED)
        async_copy.async_copy_global_to_shared(there, x_ptrs + block * BLOCK_K, mask=is_copied)
        async_copy.commit_group()
        inputs = inputs + (there,)  # type: ignore[assignment]  # noqa: RUF005 - Triton knows no *inputs
    sums = gl.zeros([BLOCK_L, BLOCK_O], gl.float32, layout=SUMS)
    for block in gl.static_range(NUM_BLOCKS):
        async_copy.wait_group(min(NUM_STAGES - 1, NUM_BLOCKS - 1 - block))
        hopper.fence_async_shared()
        sums = hopper.warpgroup_mma(inputs[block % NUM_STAGES], weights[block].permute([1, 0]), sums, is_async=True)
        if block + NUM_STAGES < NUM_BLOCKS:
            sums = hopper.warpgroup_mma_wait(0, deps=[sums])  # it has read what is written now
            next_ptrs = x_ptrs + (block + NUM_STAGES) * BLOCK_K
            async_copy.async_copy_global_to_shared(inputs[block % NUM_STAGES], next_ptrs, mask=is_copied)
            async_copy.commit_group()
    sums = hopper.warpgroup_mma_wait(0, deps=[sums])

    sums += gl.where(part == 0, bias, 0.0)[None, :]
    if HAS_GELU:
        sums = gelu(sums)
    lines = first_line + gl.arange(0, BLOCK_L, layout=gl.SliceLayout(1, SUMS))
    out = out_ptr + (part * num_lines + lines[:, None]) * WIDTH_OUT + outs[None, :]
    gl.store(out, sums.to(out_ptr.dtype.element_ty), mask=(lines < num_lines)[:, None])
