"""Teach the flow to take few, wide steps without guidance: each step is to land where the flow as trained, guided
and in narrow steps, would have got to (progressive distillation, arXiv:2202.00512, and arXiv:2210.03142 for guidance).

    python -m models.tiny.training.distil --corpus corpus --state state --minutes 4 --steps 5
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch.nn import functional

from voicegate.engine.flow.euler import cosine_schedule

from . import fast, run
from .bounded import BoundedAttention
from .flow import Flow, block_mask, loaded, prompts, spread_evenly

_GUIDANCE: Final = 0.7
_NARROW_STEPS: Final = 3  # of the teacher in one of the student's
_FRAMES, _ROWS = 600, 32
_ROLLED_OUT: Final = 0.5  # share of the rows that begin where the student itself would be


Velocity = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = run.parser(__doc__)
    parser.add_argument("--steps", type=int, default=5, help="Euler steps that the flow is to need")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    taught, teacher = Flow().to(options.device), Flow().to(options.device)
    weights = run.averaged_weights(options.state, "flow")
    for each in (taught, teacher):
        each.load_state_dict(weights)
    teacher.requires_grad_(False)
    training = run.Run(
        "distilled_flow", taught, options, rate=2e-4, average=0.998, decay=0.0, watched="loss", tolerance=run.TIGHT
    )
    bounded = BoundedAttention(taught)
    batches = loaded(options.corpus, options.state, options.device, options.hours)
    for each in (taught, teacher):
        fast.compile_each(each.decoder.estimator.transformer_blocks, options)
    student_velocity, teacher_velocity = taught.decoder.estimator, teacher.decoder.estimator
    schedule = cosine_schedule(options.steps)
    edges = torch.tensor([*schedule.times, 1.0], device=options.device)
    mask = block_mask(_FRAMES, options.device, is_streaming=True)
    for _ in training.steps():
        mel, codes, embedding = batches.batch(_FRAMES, max(int(_ROWS * options.batch_share), 2))
        noise, cond = torch.randn_like(mel), prompts(mel)
        step = (spread_evenly(len(mel), options.device) * options.steps).long().clamp(max=options.steps - 1)
        time, width = edges[step], (edges[step + 1] - edges[step])[:, None, None]
        with fast.low_precision(options):
            mu, speaker = taught.conditions(codes, embedding)
            with torch.no_grad():
                x = noise
                for index in range(options.steps - 1):
                    times = edges[index].expand(len(mel))
                    stepped = x + (edges[index + 1] - edges[index]) * student_velocity(
                        x, mu, speaker, cond, times, mask
                    )
                    x = torch.where((index < step)[:, None, None], stepped, x)
                blended = (1 - time[:, None, None]) * noise + time[:, None, None] * mel
                is_rolled = torch.rand(len(mel), 1, 1, device=options.device) < _ROLLED_OUT
                x = torch.where(is_rolled, x, blended)
                told_mu, told_speaker = teacher.conditions(codes, embedding)
                target = _guided(teacher_velocity, x, told_mu, told_speaker, cond, time, width, mask)
            velocity = student_velocity(x, mu, speaker, cond, time, mask)
        training.update({"loss": functional.mse_loss(velocity.float(), (target - x) / width)})
        bounded.hold()


def _guided(
    velocity_of: Velocity,
    x: torch.Tensor,
    mu: torch.Tensor,
    speaker: torch.Tensor,
    cond: torch.Tensor,
    time: torch.Tensor,
    width: torch.Tensor,
    mask: torch.Tensor,
) -> torch.Tensor:
    """Narrow guided steps over `width`; both halves in one batch."""
    twice_mu, twice_cond = (torch.cat((each, torch.zeros_like(each))) for each in (mu, cond))
    twice_speaker = torch.cat((speaker, torch.zeros_like(speaker)))
    for index in range(_NARROW_STEPS):
        now = time + width[:, 0, 0] * index / _NARROW_STEPS
        both = velocity_of(torch.cat((x, x)), twice_mu, twice_speaker, twice_cond, torch.cat((now, now)), mask)
        told, free = both.chunk(2)
        x = x + width / _NARROW_STEPS * ((1 + _GUIDANCE) * told - _GUIDANCE * free)
    return x


if __name__ == "__main__":
    main()
