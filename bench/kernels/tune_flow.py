"""Which tiles of the flow's kernels are fastest on this GPU, and which batches cost least a frame.

The first is what cuda/fused_attention and fused_linear choose by, the second one of what cuda/config's buckets go by:
docs/adr/0013 has the others.

python -m voicegate.bench.kernels.tune_flow
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from triton.runtime.errors import OutOfResources

from voicegate.bench.kernels.flow import begin
from voicegate.bench.kernels.flow_model import CONTEXTS, FULL_SIZE, FlowFixture
from voicegate.bench.kernels.timing import DEVICE, captured_us
from voicegate.engine.token2wav.flow.block_pool import CFG_HALVES
from voicegate.engine.token2wav.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.token2wav.flow.cuda import fused_attention, fused_linear
from voicegate.engine.token2wav.flow.cuda.config import FlowCudaConfig
from voicegate.engine.token2wav.flow.cuda.fused_attention import AttendTile
from voicegate.engine.token2wav.flow.cuda.fused_linear import LinearTile
from voicegate.engine.token2wav.flow.cuda.solver import CudaSolver
from voicegate.engine.token2wav.flow.cuda.tensors import FlowTensors, flow_tensors
from voicegate.engine.token2wav.flow.estimator import EstimatorLayer

BATCHES = (1, 2, 4, 8, 34)  # buckets
ATTEND_TILES = [
    AttendTile(splits, prefetch, num_stages, 4, max_registers)
    for splits, prefetch, num_stages, max_registers in (
        (1, 0, 1, 128),
        (1, 0, 2, 128),
        (1, 0, 3, 128),
        (1, 0, 4, 128),
        (1, 2, 3, 128),
        (1, 0, 5, None),
        (2, 0, 3, None),
        (2, 4, 5, None),
        (4, 0, 3, None),
        (4, 2, 3, None),
    )
]
BUCKETS = tuple(range(100, 4_401, 50))  # frames
LINEAR_BATCHES = (1, 2, 4)
LINEAR_TILES = [LinearTile(64, 64, 64, 6, 4), LinearTile(64, 64, 128, 4, 4), LinearTile(128, 64, 64, 6, 8)]
SPLIT_TILES = [
    LinearTile(lines, 64, depth, num_stages, 4, num_parts=4)
    for lines, depth, num_stages in ((64, 64, 4), (64, 64, 8), (64, 128, 4), (128, 64, 4), (128, 64, 6))
]


def tune_attention(fixture: FlowFixture, tensors: FlowTensors) -> None:
    """By the context's dtype: behind float8 tiles are converted first, and take half the shared memory."""
    solver = CudaSolver(fixture.model, fixture.pool, FlowCudaConfig(max_batches=1, has_graphs=False))
    print(f"attend in {fixture.pool.keys_values.dtype}: us by tile (splits, prefetch, stages, warps, registers)")
    for context in CONTEXTS:
        print(f"  context {context}: B={BATCHES}")
        for tile in ATTEND_TILES:
            times = [attend_us(solver, fixture, tensors, tile, num_rows, context) for num_rows in BATCHES]
            print(
                f"  {astuple(tile)!s:24}" + "".join(f"{t:9.2f}" for t in times),
                flush=True,
            )


def attend_us(
    solver: CudaSolver, fixture: FlowFixture, tensors: FlowTensors, tile: AttendTile, num_rows: int, context: int
) -> float:
    solve = begin(solver, fixture, num_rows, context)
    width = 3 * FULL_SIZE.estimator.dim
    num_lines = 2 * solve.view.num_lines  # of the bucket
    qkv = torch.randn(num_lines, width, device=DEVICE).bfloat16()

    def work() -> None:
        for layer in range(FULL_SIZE.estimator.depth):
            fused_attention.attend(tensors, solve.view, qkv, layer, tile=tile)

    try:
        return captured_us(work) / FULL_SIZE.estimator.depth
    except OutOfResources:
        return float("nan")
    finally:
        solve.release()


Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def tune_linear(tensors: FlowTensors) -> None:
    layers = tensors.layers
    lines = [2 * batch * FRAMES_PER_BLOCK for batch in LINEAR_BATCHES]
    tune_product("qkv", [(layer.qkv_weight, layer.qkv_bias) for layer in layers], lines)
    tune_product("ff in, gelu", [(layer.ff_in_weight, layer.ff_in_bias) for layer in layers], lines, has_gelu=True)
    tune_product("out", [(layer.attn_out_weight, layer.attn_out_bias) for layer in layers], lines, has_parts=True)
    tune_product("ff out", [(layer.ff_out_weight, layer.ff_out_bias) for layer in layers], lines, has_parts=True)


def tune_product(
    name: str,
    weights: Sequence[tuple[torch.Tensor, torch.Tensor]],
    lines: Sequence[int],
    *,
    tiles: Sequence[LinearTile] = (*LINEAR_TILES, *SPLIT_TILES),
    has_gelu: bool = False,
    has_parts: bool = False,
) -> None:
    cublas = partial(torch._addmm_activation, use_gelu=True) if has_gelu else torch.addmm
    products: dict[str, Product] = {"cuBLAS": lambda x, weight, bias: cublas(bias, x, weight.t())}
    for tile in tiles if has_parts else [tile for tile in tiles if tile.num_parts == 1]:
        products[str(astuple(tile))] = partial(fused_linear.launch_linear, tile=tile, has_gelu=has_gelu, is_pdl=True)
    print(f"{name}: us by tile (lines, outs, depth, stages, warps, parts) and lines={lines}")
    width = weights[0][0].shape[1]
    inputs = [torch.randn(num_lines, width, device=DEVICE).bfloat16() for num_lines in lines]
    for label, product in products.items():
        print(f"  {label:24}" + "".join(f"{product_us(product, x, weights):9.2f}" for x in inputs), flush=True)


def product_us(product: Product, x: torch.Tensor, weights: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    def work() -> None:
        for weight, bias in weights:
            product(x, weight, bias)

    try:
        return captured_us(work) / len(weights)
    except OutOfResources:
        return float("nan")


def tune_buckets(layers: Sequence[EstimatorLayer]) -> None:
    """cuBLAS's time is a staircase: a batch that begins another wave of tiles may take longer than a larger one.

    Printed are the batches than which no larger one is faster.
    """
    print("frames: us of a layer's products by torch, ns a frame")
    fastest_us = float("inf")
    kept: list[str] = []
    for num_frames in reversed(BUCKETS):
        time_us = layer_products_us(layers, num_frames)
        if time_us < fastest_us:
            fastest_us = time_us
            kept.append(f"{num_frames:>6}: {time_us:6.1f} {1000 * time_us / num_frames:6.1f}")
    print("\n".join(reversed(kept)), flush=True)


def layer_products_us(layers: Sequence[EstimatorLayer], num_frames: int) -> float:
    num_lines, dim = CFG_HALVES * num_frames, FULL_SIZE.estimator.dim
    narrow, wide = (torch.randn(num_lines, n * dim, device=DEVICE).bfloat16() for n in (1, 2))

    def work() -> None:
        for layer in layers:
            F.linear(narrow, layer.qkv_weight, layer.qkv_bias)
            F.linear(narrow, layer.attn_out_weight, layer.attn_out_bias)
            torch._addmm_activation(layer.ff_in_bias, narrow, layer.ff_in_weight.t(), use_gelu=True)
            F.linear(wide, layer.ff_out_weight, layer.ff_out_bias)

    return captured_us(work) / len(layers)


@torch.inference_mode()
def main() -> None:
    fixture = FlowFixture(kv_dtype=torch.float8_e4m3fn)
    tune_attention(fixture, flow_tensors(fixture.model, fixture.pool, is_pdl=True))
    del fixture  # both contexts are too large for one GPU
    fixture = FlowFixture()
    tensors = flow_tensors(fixture.model, fixture.pool, is_pdl=True)
    tune_attention(fixture, tensors)
    tune_linear(tensors)
    tune_buckets(fixture.model.estimator.layers)


if __name__ == "__main__":
    main()
