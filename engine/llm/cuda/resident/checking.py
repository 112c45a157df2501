"""Whether a resident step gives the bits of all others, on this device and by this compiler: looked at before use.

That it does rests on what Triton makes of attention_kernels and linear_kernels, and on what tensor cores do. Another
version of either may differ; then lone lines go as all others do, and the log says so.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from voicegate.engine.llm.cuda.packing import USE_LAST_TOKEN

if TYPE_CHECKING:
    from voicegate.engine.llm.cuda.body import DecoderBody

# Before the line's own: none, one, and what ends within a key tile, at its end, and behind it.
_POSITIONS: Final = (0, 1, 77, 128, 200, 300, 511)


def first_difference(body: "DecoderBody") -> int | None:
    """The least position at which it gives other scores or keys; None where all are equal. Waits for the device.

    Nobody may use the body meanwhile: it works on the padding's slot, whose context is filled with random numbers.
    """
    slot = body.padding_slot
    context = body.cache[:, :, slot]
    numbers = torch.randn(
        context.shape, generator=torch.Generator(context.device).manual_seed(0), device=context.device
    )
    for position in _POSITIONS:
        if position >= context.shape[3]:
            break
        found = []
        for feed in (_feed_alone, _feed_as_others):
            context.copy_(numbers)
            _fill_work(body, slot, position)
            feed(body)
            found.append((body.scores[0, : body.config.num_speech_rows].clone(), context[:, :, :, position].clone()))
        (scores, stored), (other_scores, other_stored) = found
        if not (torch.equal(scores, other_scores) and torch.equal(stored, other_stored)):
            return position
    return None


def _feed_alone(body: "DecoderBody") -> None:
    body.feed_alone()


def _feed_as_others(body: "DecoderBody") -> None:
    body.run(1)
    body.score(1)


def _fill_work(body: "DecoderBody", slot: int, position: int) -> None:
    words = np.zeros(body.layout.num_words, np.int32)
    body.layout.pad(words, padding_slot=slot)
    body.layout.lines(words, 1)[0] = USE_LAST_TOKEN, slot, position, 0
    body.work.copy_(torch.from_numpy(words))
