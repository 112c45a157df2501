"""Common parts of Gluon kernels that begin early, and ask for their weights before their inputs are there.

They are launched with programmatic dependent launch, so that they begin while the kernel before still runs, and copy
asynchronously into shared memory. In Gluon, because Triton has no asynchronous copy outside of a pipelined loop. Only
the CUDA path imports this module (Triton is optional). Needs compute capability 9.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

# Copies of 16 bytes, swizzled over eight rows, as ldmatrix reads without conflicts.
IN_16_BYTES = gl.constexpr(gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))


@gluon.jit
def let_next_begin():
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def wait_for_inputs():
    """All kernels before are done behind it."""
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def ask_for(
    ptr,
    rows,
    first_k,
    WIDTH: gl.constexpr,
    NUM_ROWS: gl.constexpr,
    NUM_PARTS: gl.constexpr,
    BLOCK_K: gl.constexpr,
    LAYOUT: gl.constexpr = IN_16_BYTES,
):
    """ptr[rows, first_k : + NUM_PARTS * BLOCK_K], row-major [., WIDTH], on its way to shared memory: its parts.

    `rows` [NUM_ROWS]: `copied_rows`, or others in its layout. `LAYOUT`: there.
    """
    ks = first_k + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, rows.type.layout.parent))
    ptrs = ptr + rows[:, None] * WIDTH + ks[None, :]
    parts = ()
    for part in gl.static_range(NUM_PARTS):
        there = gl.allocate_shared_memory(ptr.dtype.element_ty, [NUM_ROWS, BLOCK_K], LAYOUT)
        async_copy.async_copy_global_to_shared(there, ptrs + part * BLOCK_K)
        parts = parts + (there,)  # type: ignore[assignment]  # noqa: RUF005 - Triton knows no *parts
    async_copy.commit_group()
    return parts


@gluon.jit
def copied_rows(first_row, NUM_ROWS: gl.constexpr, BLOCK_K: gl.constexpr):
    """first_row : + NUM_ROWS as `ask_for` takes them: a thread copies 16 bytes of a row at a time."""
    copying: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_K, BLOCK_K // 8], [gl.num_warps(), 1], [1, 0])
    return first_row + gl.arange(0, NUM_ROWS, layout=gl.SliceLayout(1, copying))
