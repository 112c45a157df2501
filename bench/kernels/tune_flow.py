"""Which tiles of the flow's kernels are fastest on this GPU: the source of the choices in cuda/fused_ops.py.

python -m bench.kernels.tune_flow
"""

from dataclasses import astuple

import torch
from triton.runtime.errors import OutOfResources

from bench.kernels.flow import begin
from bench.kernels.flow_model import CONTEXTS, FULL_SIZE, FlowFixture
from bench.kernels.timing import DEVICE, captured_us
from engine import units
from engine.token2wav.flow.cuda import fused_ops
from engine.token2wav.flow.cuda.config import FlowCudaConfig
from engine.token2wav.flow.cuda.fused_ops import AttendTile, LinearTile
from engine.token2wav.flow.cuda.solver import CudaSolver
from engine.token2wav.flow.cuda.tensors import FlowTensors, flow_tensors

BATCHES = (1, 2, 4, 8, 32)
ATTEND_TILES = [
    AttendTile(64, 2, 4),
    AttendTile(64, 2, 4, max_registers=128),
    AttendTile(64, 3, 4),
    AttendTile(128, 2, 4),
    AttendTile(128, 3, 4),
    AttendTile(128, 2, 8),
]
LINEAR_TILES = [
    LinearTile(lines, outs, depth, num_stages, num_warps)
    for lines, outs, depth, num_stages, num_warps in (
        (64, 16, 128, 6, 4),
        (64, 32, 128, 3, 4),
        (64, 32, 128, 4, 4),
        (64, 32, 128, 5, 4),
        (64, 32, 256, 3, 4),
        (64, 64, 128, 4, 4),
        (64, 64, 64, 6, 4),
        (128, 32, 128, 4, 4),
        (128, 32, 128, 4, 8),
        (128, 64, 128, 3, 8),
        (128, 64, 64, 4, 4),
        (128, 128, 64, 4, 8),
    )
]


def tune_attention(fixture: FlowFixture, tensors: FlowTensors) -> None:
    solver = CudaSolver(fixture.model, fixture.pool, FlowCudaConfig(num_lanes=1, use_graphs=False))
    for context in CONTEXTS:
        print(f"attend, context {context}: us by tile (keys, stages, warps, registers) and B={BATCHES}")
        for tile in ATTEND_TILES:
            times = [attend_us(solver, fixture, tensors, tile, num_rows, context) for num_rows in BATCHES]
            print(
                f"  {astuple(tile)!s:20}" + "".join(f"{t:9.2f}" for t in times),
                flush=True,
            )


def attend_us(
    solver: CudaSolver, fixture: FlowFixture, tensors: FlowTensors, tile: AttendTile, num_rows: int, context: int
) -> float:
    solve = begin(solver, fixture, num_rows, context, units.FRAMES_PER_BLOCK)
    width = 3 * FULL_SIZE.estimator.dim
    qkv = torch.randn(2 * num_rows * units.FRAMES_PER_BLOCK, width, device=DEVICE).bfloat16()

    def work() -> None:
        for layer in range(FULL_SIZE.estimator.depth):
            fused_ops.attend(tensors, solve.buffers, qkv, layer, tile=tile)

    try:
        return captured_us(work) / FULL_SIZE.estimator.depth
    except OutOfResources:
        return float("nan")
    finally:
        solve.release()


def tune_linear(tensors: FlowTensors) -> None:
    batches = BATCHES[:4]
    shapes = {
        "qkv": [(layer.qkv_weight, layer.qkv_bias) for layer in tensors.layers],
        "out": [(layer.attn_out_weight, layer.attn_out_bias) for layer in tensors.layers],
        "ff in": [(layer.ff_in_weight, layer.ff_in_bias) for layer in tensors.layers],
        "ff out": [(layer.ff_out_weight, layer.ff_out_bias) for layer in tensors.layers],
    }
    for name, weights in shapes.items():
        print(f"{name}: us by tile (lines, outs, depth, stages, warps) and B={batches}; without overlap at B=1")
        inputs = [
            torch.randn(2 * b * units.FRAMES_PER_BLOCK, weights[0][0].shape[1], device=DEVICE).bfloat16()
            for b in batches
        ]
        cublas = [linear_us(None, x, weights) for x in inputs]
        print("  cuBLAS                  " + "".join(f"{t:9.2f}" for t in cublas))
        for tile in LINEAR_TILES:
            times = [linear_us(tile, x, weights) for x in inputs] + [linear_us(tile, inputs[0], weights, is_pdl=False)]
            print(f"  {astuple(tile)!s:24}" + "".join(f"{t:9.2f}" for t in times), flush=True)


def linear_us(
    tile: LinearTile | None,
    x: torch.Tensor,
    weights: list[tuple[torch.Tensor, torch.Tensor]],
    *,
    is_pdl: bool = True,
) -> float:
    def work() -> None:
        for weight, bias in weights:
            if tile is None:
                torch.nn.functional.linear(x, weight, bias)
            else:
                fused_ops.launch_linear(x, weight, bias, tile=tile, has_gelu=False, is_pdl=is_pdl)

    try:
        return captured_us(work) / len(weights)
    except OutOfResources:
        return float("nan")


@torch.inference_mode()
def main() -> None:
    fixture = FlowFixture()
    tensors = flow_tensors(fixture.model, fixture.pool, is_pdl=True)
    tune_attention(fixture, tensors)
    tune_linear(tensors)


if __name__ == "__main__":
    main()
