"""Bound the attention of the flow while it is trained.

Twice the flow diverged near step 10,000. The largest singular values of the first block's queries and keys had grown
from 2 and 4 to 10. Its largest scores had grown from 21 to 27,000, so each place attended to one other place alone.
A bound on the singular values bounds the scores (arXiv:2303.06296). Upstream's format has no norm that would do it.
"""

from typing import Final

import torch
from torch import nn
from torch.nn import functional

# Before the divergence all blocks had 2.0 to 3.9.
_LARGEST_SINGULAR_VALUE: Final = 4.0


class BoundedAttention:
    """Call `hold` after each step: one turn of the power iteration, for all matrices at once."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = [
            weight for name, weight in model.named_parameters() if name.endswith(("to_q.weight", "to_k.weight"))
        ]
        columns = self._weights[0].shape[1]
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(len(self._weights), columns, 1, generator=generator)
        self._right = functional.normalize(start, dim=1).to(self._weights[0].device)

    @torch.no_grad()
    def hold(self) -> None:
        weights = torch.stack([weight.data for weight in self._weights])
        left = functional.normalize(weights @ self._right, dim=1)
        turned = weights.transpose(1, 2) @ left
        self._right = functional.normalize(turned, dim=1)
        shrink = (_LARGEST_SINGULAR_VALUE / turned.norm(dim=1)[:, 0]).clamp(max=1.0)
        torch._foreach_mul_([weight.data for weight in self._weights], list(shrink.unbind()))
