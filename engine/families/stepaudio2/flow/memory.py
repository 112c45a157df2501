"""Memory of this flow's streams: keys and values, a place for each frame, handed out in blocks.

A frame leaves keys and values of every (Euler step, estimator layer, CFG half) and encoder layer. Blocks are fixed
once their chunk is done, so a prompt's can be shared; in which order a stream's frames lie is the stream's own.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.config import StepAudio2FlowConfig
from voicegate.engine.flow.block_ledger import BlockLedger

# Lower -> less of a stream's last block is empty; higher -> fewer blocks to keep account of. A whole number of tokens.
FRAMES_PER_BLOCK: Final = 10
CFG_HALVES: Final = 2

Places = npt.NDArray[np.int64]  # of frames in the memory


class FlowMemory(BlockLedger):
    """Virtual memory on a CPU until touched."""

    def __init__(
        self,
        config: StepAudio2FlowConfig,
        *,
        num_blocks: int,
        device: torch.device,
        dtype: torch.dtype,
        kv_dtype: torch.dtype | None = None,
        poison: bool = False,
    ) -> None:
        """`kv_dtype` of the estimator's keys and values, by default `dtype`; the encoder's, a fiftieth, are of `dtype`.

        float8_e4m3fn needs no scale: keys are normed, and its range is 2**-6 to 448.
        """
        super().__init__(num_blocks)
        # One block more than is handed out: where padding reads and writes. Zeros, so that nothing there is NaN.
        self.scratch = num_blocks * FRAMES_PER_BLOCK
        self.num_places = self.scratch + FRAMES_PER_BLOCK
        estimator, encoder = config.estimator, config.encoder
        heads = (2, encoder.num_heads, encoder.head_dim)
        num_token_places = self.num_places // units.FRAMES_PER_TOKEN
        steps = (estimator.depth, config.num_euler_steps, self.num_places)
        # Per layer and step one frame after the other: whatever places a stream has, a row is one piece of memory.
        shape = (*steps, 2, CFG_HALVES, estimator.num_heads, estimator.head_dim)
        self.estimator = torch.empty(shape, device=device, dtype=kv_dtype or dtype)
        self.tokens = torch.empty(encoder.num_layers, num_token_places, *heads, device=device, dtype=dtype)
        self.frames = torch.empty(encoder.num_up_layers, self.num_places, *heads, device=device, dtype=dtype)
        self._poison = poison
        for block in range(num_blocks) if poison else ():
            self._fill(block, torch.nan)
        self._fill(num_blocks, 0.0)

    def places_of(self, blocks: Sequence[int]) -> Places:
        """Places of their frames, in order."""
        starts = np.asarray(blocks, dtype=np.int64)[:, None] * FRAMES_PER_BLOCK
        places: Places = (starts + np.arange(FRAMES_PER_BLOCK)).reshape(-1)
        return places

    def _freed(self, block: int) -> None:
        if self._poison:
            self._fill(block, torch.nan)

    def _fill(self, block: int, value: float) -> None:
        """Tests: whoever reads a free block gets NaN in every frame that depends on it."""
        start = block * FRAMES_PER_BLOCK
        # Through a tensor: torch does not fill float8.
        filling = torch.tensor(value, device=self.estimator.device).to(self.estimator.dtype)
        as_bits(self.estimator)[:, :, start : start + FRAMES_PER_BLOCK] = as_bits(filling)
        self.frames[:, start : start + FRAMES_PER_BLOCK] = value
        first, end = token_place(start), token_place(start + FRAMES_PER_BLOCK)
        self.tokens[:, first:end] = value


def token_place(frame_place: int) -> int:
    """The place of a token by that of its first frame."""
    return frame_place // units.FRAMES_PER_TOKEN


def as_bits(tensor: torch.Tensor) -> torch.Tensor:
    """This memory; with float8 its bytes, which torch can index."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def num_blocks(num_frames: int) -> int:
    """Blocks that hold so many frames."""
    return -(-num_frames // FRAMES_PER_BLOCK)


def num_token_blocks(num_tokens: int) -> int:
    """Blocks that hold the frames of so many speech tokens."""
    return num_blocks(num_tokens * units.FRAMES_PER_TOKEN)


def bytes_per_block(config: StepAudio2FlowConfig, *, dtype: torch.dtype, kv_dtype: torch.dtype | None = None) -> int:
    """Cost of one block: a fifth of a second of speech or of prompt."""
    estimator, encoder = config.estimator, config.encoder
    tokens_per_block = FRAMES_PER_BLOCK // units.FRAMES_PER_TOKEN
    channels = CFG_HALVES * estimator.num_heads * estimator.head_dim
    estimated = FRAMES_PER_BLOCK * config.num_euler_steps * estimator.depth * channels
    encoded = (FRAMES_PER_BLOCK * encoder.num_up_layers + tokens_per_block * encoder.num_layers) * encoder.dim
    return 2 * ((kv_dtype or dtype).itemsize * estimated + dtype.itemsize * encoded)
