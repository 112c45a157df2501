"""The shape of an engine of the flow's Euler step, its name, and which ones are built. Nothing of torch or TensorRT."""

from dataclasses import dataclass
from typing import Final

from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK

# Version of step_graph.py: engines of another are stale.
GRAPH_VERSION: Final = "1"
# Added to the score of a place where there is nothing: exp of it is 0 in every dtype, and float16 holds it.
NEVER: Final = -1e4


@dataclass(frozen=True, slots=True)
class FlowShape:
    num_rows: int
    num_frames: int  # of each row's new block
    context_frames: int  # of finished blocks, at most

    @property
    def name(self) -> str:
        return f"flow_step_{self.num_rows}x{self.num_frames}_behind_{self.context_frames}"

    @property
    def num_lines(self) -> int:
        return self.num_rows * self.num_frames


# One block or two, of which our kernels' time is mostly launches: more rows wait for products, which are NVIDIA's in
# both, and each row's context is copied (docs/adr/0016). Behind 5, 10 and 20 s of prompt and speech. More -> less of a
# copy is padding, but each engine has the estimator's weights: 0.38 GB at the released size.
ENGINE_SHAPES: Final = tuple(
    FlowShape(num_rows, FRAMES_PER_BLOCK, context) for num_rows in (1, 2) for context in (250, 500, 1_000)
)
