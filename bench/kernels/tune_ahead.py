"""Which of the flow's tiles with weights ahead make ten Euler steps fastest on this GPU (a Hopper: docs/adr/0013).

Each is tried for one product in whole steps, with the others as they are: back to back, as tune_flow times products,
nothing shows of what overlaps with the kernels around it.

python -m voicegate.bench.kernels.tune_ahead
"""

from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Final

import torch

from voicegate.bench.kernels.flow import captured_steps_ms
from voicegate.bench.kernels.flow_model import FlowFixture
from voicegate.engine.token2wav.flow.cuda import fused_linear
from voicegate.engine.token2wav.flow.cuda.fused_linear import AheadTile, Few
from voicegate.engine.token2wav.flow.cuda.ops import STEP_OPS, StepOps

FRAMES: Final = (32, 50, 100, 150, 200, 300)
CONTEXT: Final = 300  # frames


@dataclass(frozen=True, slots=True)
class Product:
    width_in: int
    width_out: int
    tiles: tuple[AheadTile, ...]

    def few(self, few: Few, tile: AheadTile | None) -> Few:
        """With this tile for the product, or with none; for the others as before."""

        def tile_of(num_lines: int, width_in: int, width_out: int) -> AheadTile | None:
            if (width_in, width_out) == (self.width_in, self.width_out):
                return tile
            return few.ahead_tile_of(num_lines, width_in, width_out)

        return replace(few, ahead_tile_of=tile_of)


PRODUCTS: Final = {
    "qkv": Product(
        1024, 3072, (AheadTile(32, 64, 4), AheadTile(64, 64, 4), AheadTile(64, 64, 8), AheadTile(64, 128, 4))
    ),
    "ff in, gelu": Product(
        1024, 2048, (AheadTile(16, 64, 16), AheadTile(32, 128, 8), AheadTile(64, 64, 8), AheadTile(64, 128, 4))
    ),
    "out": Product(
        1024, 1024, (AheadTile(64, 64, 4, 4), AheadTile(32, 64, 8, 2), AheadTile(64, 64, 8, 2), AheadTile(32, 128, 8))
    ),
    "ff out": Product(
        2048,
        1024,
        (AheadTile(32, 64, 4, 4), AheadTile(64, 64, 4, 4), AheadTile(32, 128, 8, 2), AheadTile(64, 64, 8, 2)),
    ),
}


def step_ops(product: Product, tile: AheadTile | None) -> StepOps:
    few, of_update = (product.few(each, tile) for each in (fused_linear.FEW, fused_linear.FEW_OF_UPDATE))
    return replace(
        STEP_OPS,
        linear=partial(fused_linear.linear, few=few),
        widen=partial(fused_linear.widen, few=few),
        update=partial(fused_linear.linear, few=of_update),
    )


@torch.inference_mode()
def main() -> None:
    fixture = FlowFixture(kv_dtype=torch.float8_e4m3fn)
    print(f"ten Euler steps at {CONTEXT} frames of context, ms by tile (outs, depth, stages, parts); frames={FRAMES}")
    as_it_is = [captured_steps_ms(fixture, STEP_OPS, num_frames, CONTEXT) for num_frames in FRAMES]
    print(f"{'as it is':20}" + "".join(f"{time:8.2f}" for time in as_it_is), flush=True)
    for name, product in PRODUCTS.items():
        print(name)
        for tile in (None, *product.tiles):
            times = [captured_steps_ms(fixture, step_ops(product, tile), num_frames, CONTEXT) for num_frames in FRAMES]
            label = "none" if tile is None else str(astuple(tile))
            print(f"  {label:18}" + "".join(f"{time:8.2f}" for time in times), flush=True)


if __name__ == "__main__":
    main()
