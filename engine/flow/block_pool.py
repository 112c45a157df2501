"""The flow's memory of finished blocks: one pool, reference-counted, handed out block by block.

A block is what 50 frames leave behind for later ones: their keys and values at every (Euler step, layer, CFG half),
and the last 30 inputs of both positional convolutions. Blocks are immutable once their batch is done, so a
prompt's can be shared, and a stream's whole state is the list of its blocks.
"""

import torch

from voicegate.engine.flow.block_ledger import BlockLedger
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.estimator import CONV_HISTORY
from voicegate.engine.model.config import EstimatorConfig

CFG_HALVES = 2
NUM_CONVS = 2
_FP8_NAN = 0x7F  # of float8_e4m3fn, which torch does not fill


class BlockPool(BlockLedger):
    """Tensors are virtual memory on a CPU until touched.

    Block-major, so that one block is contiguous: with transparent huge pages a scattered block would touch
    far more memory than it holds.
    """

    def __init__(
        self,
        config: EstimatorConfig,
        *,
        num_steps: int,
        num_blocks: int,
        device: torch.device,
        dtype: torch.dtype,
        kv_dtype: torch.dtype | None = None,
        poison: bool = False,
    ) -> None:
        """`kv_dtype` of keys and values, by default `dtype`; the conv tails are always of `dtype`.

        float8_e4m3fn halves 90 MB per second of context and needs no scale: a trained model's keys stay below 11 and
        its values below 5, and the type's range is 2**-6 to 448.
        """
        super().__init__(num_blocks)
        heads = CFG_HALVES * config.num_heads
        # One block more than is handed out: where the padding rows of a fixed-shape batch write.
        self.scratch = num_blocks
        kv_shape = (num_blocks + 1, num_steps, config.depth, 2, heads, FRAMES_PER_BLOCK, config.head_dim)
        # And one tail more: zeros, the history of a sequence's first block.
        self.before_first = num_blocks + 1
        tail_shape = (num_blocks + 2, num_steps, NUM_CONVS, CFG_HALVES, CONV_HISTORY, config.dim)
        self.keys_values = torch.empty(kv_shape, device=device, dtype=kv_dtype or dtype)
        self.tails = torch.empty(tail_shape, device=device, dtype=dtype)
        self._poison = poison
        for block in range(num_blocks + 1) if poison else ():
            self._fill_with_nan(block)
        self.tails[self.before_first].zero_()

    def _freed(self, block: int) -> None:
        if self._poison:
            self._fill_with_nan(block)

    def _fill_with_nan(self, block: int) -> None:
        """Tests: whoever reads a free block gets NaN in every frame that depends on it."""
        if self.keys_values.dtype == torch.float8_e4m3fn:
            self.keys_values[block].view(torch.uint8).fill_(_FP8_NAN)
        else:
            self.keys_values[block].fill_(torch.nan)
        self.tails[block].fill_(torch.nan)


def bytes_per_block(
    config: EstimatorConfig, *, num_steps: int, dtype: torch.dtype, kv_dtype: torch.dtype | None = None
) -> int:
    """The cost of one block: a second of speech or of prompt."""
    kv = config.depth * 2 * config.num_heads * config.head_dim * FRAMES_PER_BLOCK
    tails = NUM_CONVS * CONV_HISTORY * config.dim
    return num_steps * CFG_HALVES * (kv * (kv_dtype or dtype).itemsize + tails * dtype.itemsize)
