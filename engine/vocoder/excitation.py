"""The vocoder's excitation noise: upstream's uniform table, drawn again instead of stored. Knows no weights.

Upstream draws the table once, when its objects are built, after a fixed seed; every utterance reads it from row 0.
"""

import math
from collections.abc import Iterator
from typing import Final

import torch

MAX_ROWS: Final = 7_200_000  # of upstream's table: one row a sample, 300 s
NUM_COLUMNS: Final = 9  # the fundamental and eight overtones

# Draws from the seeded generator between the seed and the table, in upstream's order: the flow's noise buffer,
# then the default initialisers of layers whose values are later overwritten by the checkpoint. The sizes are the
# released model's, whatever model is loaded: the noise is not learnt, so there is one table for all.
_FLOW_NOISE: Final = (1, 80, 15_000)
_NORMAL_INITIALISED: Final = (6561, 80)  # the flow's token embedding
_UNIFORM_INITIALISED: Final = (
    *((80, 192), (80,)),  # the flow's speaker projection
    *((512, 80, 4), (512,)),  # f0 predictor: first convolution, four more, classifier
    *((512, 512, 3), (512,)) * 4,
    *((1, 512), (1,)),
)
_INITIAL_PHASE: Final = (1, NUM_COLUMNS)  # drawn, but without effect on any sample


def upstream_excitation(num_rows: int, *, rows_per_block: int = 65_536) -> Iterator[torch.Tensor]:
    """The table's first `num_rows` rows in blocks [n, 9], n <= rows_per_block. Leaves torch's global RNG alone."""
    if not 0 <= num_rows <= MAX_ROWS:
        raise ValueError(f"{num_rows} excitation rows were asked for; upstream's table has {MAX_ROWS}")
    generator = torch.Generator().manual_seed(0)
    torch.randn(_FLOW_NOISE, generator=generator)
    torch.empty(_NORMAL_INITIALISED).normal_(generator=generator)
    for shape in _UNIFORM_INITIALISED:
        torch.rand(math.prod(shape), generator=generator)
    torch.rand(_INITIAL_PHASE, generator=generator)
    # Uniform draws are serial: drawing the table block by block gives the same rows as drawing it whole.
    for start in range(0, num_rows, rows_per_block):
        yield torch.rand(min(rows_per_block, num_rows - start), NUM_COLUMNS, generator=generator)


def project(blocks: Iterator[torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
    """Rows [n, 9] and the source's merge weights [9] -> one number a sample: all that synthesis needs of a row."""
    projected = [block @ weight for block in blocks]
    return torch.cat(projected) if projected else weight.new_zeros(0)
