"""Common parts of all trainers: a budget of time, the learning rate over it, averaged weights, a state that is resumed.

A state is small enough to travel: the averaged weights in float16 and Adam's second moments, factored into rows and
columns (arXiv:1804.04235). A resumed run begins from those; without its second moments it diverged.

The time that a state has had belongs to its highest rate. With another `--rate` the time begins anew: so a finished
stage is trained on, or fine-tuned.
"""

import argparse
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import nn

_SAVE_EVERY_S: Final = 45.0
_REPORT_EVERY_S: Final = 10.0
_WARM_UP_STEPS, _WARM_UP_STEPS_RESUMED = 300, 50  # a state has no first moments; one of `states_of` none at all
_GROWN_TIMES: Final = 1.5  # a watched loss, over its lowest mean between two reports: the run has diverged
# For a loss that diverges slowly. The flow's reports vary by 1.2 %: at 1.02 a plateau of 60 reports was taken for a
# divergence in three cases of four.
TIGHT: Final = 1.05
_PATIENT_REPORTS: Final = 6  # in a row that are not good: it diverges slowly
_FEWEST_STEPS: Final = 50  # a report over fewer is noise: a resumed run's first one is over a step or two
# The held-out loss over its best: more of it is learning by heart. A state that goes on at a higher rate first loses a
# part of what it learnt: 1 % in the seventh run, 2 in the sixth.
_BY_HEART: Final = 1.05
_LAST_RATE: Final = 0.03  # of the highest
_STEPS_AHEAD: Final = 16  # at most, of Python before the GPU: else the time is not what it seems


def parser(description: str | None, *, num_corpora: Literal["+"] | None = None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    told = "a folder of shards" if num_corpora is None else "folders of shards, files of `codes`"
    parser.add_argument("--corpus", type=Path, required=True, nargs=num_corpora, help=told)
    parser.add_argument("--state", type=Path, required=True, help="a folder: one file a stage")
    parser.add_argument(
        "--minutes",
        type=float,
        help="of this stage at one --rate, all its runs together: the rate falls over them, from the highest to 3 %%. "
        "More minutes than before for the same state raise its rate again. Without: until --until",
    )
    parser.add_argument("--until", type=float, default=math.inf, help="stop then (seconds since 1970), to be resumed")
    parser.add_argument(
        "--rate",
        type=float,
        help="the highest learning rate; without it the stage's own. A state that had another begins its time anew. "
        "A trained LLM was fine-tuned at 6e-5; at a rate near its own it first loses a part of what it learnt",
    )
    parser.add_argument(
        "--device", type=torch.device, default=torch.device("cuda" if torch.cuda.is_available() else "cpu")
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=1e9, help="of each voice, at most")
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--batch-share", type=float, default=1.0, help="of the batch: less for a trial on a CPU")
    parser.add_argument("--no-graphs", action="store_true", help="each kernel started by Python, which is slower")
    parser.add_argument(
        "--bfloat16", action=argparse.BooleanOptionalAction, help="products in bfloat16 (default: on a GPU)"
    )
    return parser


Losses = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Good:
    num_steps: int
    averaged: list[torch.Tensor]
    moments: list[torch.Tensor]  # the optimizer's second, of the parameters that it has


class Run:
    """Iterate `steps()`: each is one call of `update(loss)`."""

    def __init__(
        self,
        name: str,
        model: nn.Module,
        options: argparse.Namespace,
        *,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.98),
        decay: float = 0.01,
        average: float = 0.999,
        clip: float = 1.0,
        watched: str | None = None,
        tolerance: float = _GROWN_TIMES,
        saved_beside: Sequence["Run"] = (),
    ) -> None:
        """`watched`: a loss that must not grow. Where it does by half, the run goes back, and on at half the rate.

        A report within `tolerance` times the lowest is good. Only good ones are saved; after six that are not, the run
        goes back too.
        """
        self.name = name
        self.model = model
        self._path: Path = options.state / f"{name}.pt"
        self._options = options
        self._highest_rate = rate if options.rate is None else options.rate
        self._rate, self._average, self._clip = self._highest_rate, average, clip
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        is_cuda = options.device.type == "cuda"
        self._rate_in_use = torch.tensor(self._rate, device=options.device)
        self.optimizer = torch.optim.AdamW(
            self._parameters, lr=self._rate_in_use, betas=betas, weight_decay=decay, fused=is_cuda, capturable=is_cuda
        )
        self.num_steps = self.num_steps_before = 0
        self.num_skipped = torch.zeros((), device=options.device)
        self._elapsed_before_s = 0.0
        self.averaged = [parameter.detach().clone() for parameter in self._parameters]
        self._started = time.monotonic()
        self._sums: dict[str, torch.Tensor] = {}
        self._num_reported = 0
        self._best = self._judged = math.inf  # losses of the held-out part
        self._is_told_to_stop = False
        self._saved_beside = saved_beside
        self._watched, self._lowest, self._tolerance = watched, math.inf, tolerance
        self._num_not_good = 0
        self._good: _Good | None = None
        self._has_moments = False
        self._whole_s = self._time_in_all_s()
        if self._path.exists():
            self._resume(rate)

    @property
    def elapsed_s(self) -> float:
        return self._elapsed_before_s + time.monotonic() - self._started

    def _time_in_all_s(self) -> float:
        if self._options.minutes is not None:
            return 60.0 * float(self._options.minutes)
        if math.isinf(self._options.until):
            raise SystemExit(f"{self.name}: how long? --minutes or --until")
        return max(self._elapsed_before_s + float(self._options.until) - time.time(), 1.0)

    @property
    def progress(self) -> float:
        """0 to 1 over the stage's time."""
        return min(self.elapsed_s / self._whole_s, 1.0)

    def steps(self) -> Iterator[int]:
        """SIGTERM ends them early, and what was reached is saved."""
        before = signal.signal(signal.SIGTERM, self._stop)
        self._started, self._whole_s = time.monotonic(), self._time_in_all_s()
        first, last_save, last_report = self.num_steps, time.monotonic(), time.monotonic()
        while not self._is_over():
            yield self.num_steps
            if self._options.device.type == "cuda" and self.num_steps % _STEPS_AHEAD == 0:
                torch.cuda.synchronize()
            now = time.monotonic()
            if now - last_report > _REPORT_EVERY_S:
                self.report()
                last_report = now
            if now - last_save > _SAVE_EVERY_S and self._judged <= self._best:
                self.save()
                last_save = now
        self.report()
        if self._judged <= self._best:
            self.save()
        signal.signal(signal.SIGTERM, before)
        print(f"{self.name}: {self.num_steps - first} steps, stopped at {self.progress:.0%}", flush=True)

    def _stop(self, number: int, frame: object) -> None:
        self._is_told_to_stop = True

    def _is_over(self) -> bool:
        is_late = self.progress >= 1 or time.time() >= self._options.until or self._is_told_to_stop
        return is_late or self.num_steps >= self._options.max_steps or self._judged > _BY_HEART * self._best

    def judge(self, loss: float) -> None:
        """Judges the held-out part. While its loss is worse than at best nothing is saved; far worse, and the run
        stops: the model learns by heart."""
        is_better = loss < self._best
        self._judged, self._best = loss, min(loss, self._best)
        print(f"{self.name}: held out {loss:.4f}, at best {self._best:.4f}", flush=True)
        if is_better:
            self._good = None
            self.save()

    def update(self, losses: Losses) -> None:
        """One step down the sum of the losses; one that is not finite changes nothing."""
        self.set_rate()
        self.descend(losses)
        self.account(losses)

    def set_rate(self) -> None:
        num_warm = _WARM_UP_STEPS_RESUMED if self._has_moments else _WARM_UP_STEPS
        warm = min((self.num_steps - self.num_steps_before + 1) / num_warm, 1.0)
        self._rate_in_use.fill_(warm * self._rate_now())

    def descend(self, losses: Losses) -> None:
        self.descend_by(self.gradients(losses))

    def gradients(self, losses: Losses, *, keep: bool = False) -> tuple[torch.Tensor | None, ...]:
        """With `keep` another run goes down through the same values."""
        loss = torch.stack(tuple(losses.values())).sum()
        return torch.autograd.grad(loss, self._parameters, retain_graph=keep, allow_unused=True)

    def descend_by(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        norm = nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self.num_skipped += ~torch.isfinite(norm)
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        self.optimizer.step()

    def account(self, losses: Losses) -> None:
        weight = 1 - min(self._average, (self.num_steps + 1) / (self.num_steps + 10))
        torch._foreach_lerp_(self.averaged, [parameter.data for parameter in self._parameters], weight)
        self.num_steps += 1
        for name, value in losses.items():
            self._sums[name] = self._sums.get(name, 0) + value.detach()
        self._num_reported += 1

    def _rate_now(self) -> float:
        return self._rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * self.progress)))

    def report(self) -> None:
        if not self._num_reported:
            return
        means = {name: float(total) / self._num_reported for name, total in self._sums.items()}
        text = "  ".join(f"{name} {mean:.4f}" for name, mean in means.items())
        told = f"{self.elapsed_s:6.0f} s {self.num_steps:6} steps  {text}  skipped {int(self.num_skipped)}"
        print(f"{self.name} {told}", flush=True)
        if self._watched is not None and self._num_reported >= _FEWEST_STEPS:
            self._watch(means[self._watched])
        self._sums, self._num_reported = {}, 0

    def _watch(self, mean: float) -> None:
        if mean <= self._tolerance * self._lowest:
            self._lowest = min(mean, self._lowest)
            self._good, self._num_not_good = self._reached(), 0
            return
        self._num_not_good += 1
        is_over = not mean <= _GROWN_TIMES * self._lowest or self._num_not_good == _PATIENT_REPORTS
        if is_over and self._good is not None:
            self._num_not_good = 0
            self._go_back(self._good)

    def _reached(self) -> "_Good":
        moments = [self.optimizer.state[p]["exp_avg_sq"] for p in self._parameters if p in self.optimizer.state]
        return _Good(self.num_steps, [each.clone() for each in self.averaged], [each.clone() for each in moments])

    @torch.no_grad()
    def _go_back(self, good: "_Good") -> None:
        """To the averaged weights of the last report that was well: a run that has diverged does not come back."""
        for parameter, mean, weights in zip(self._parameters, self.averaged, good.averaged, strict=True):
            parameter.copy_(weights)
            mean.copy_(weights)
        trained = [self.optimizer.state[p] for p in self._parameters if p in self.optimizer.state]
        for state, moment in zip(trained, good.moments, strict=True):
            state["exp_avg"].zero_()
            state["exp_avg_sq"].copy_(moment)
        self._rate /= 2
        print(f"{self.name}: diverged; back to step {good.num_steps}, at half the rate", flush=True)

    def save(self) -> None:
        """Save the last good report of a watched run; else the present state."""
        good = self._good or self._reached()
        names = [name for name, _ in self.averaged_state_parameters()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        state: dict[str, Any] = {
            "averaged": {name: tensor.half().cpu() for name, tensor in zip(names, good.averaged, strict=True)},
            "moments": [_factored(moment) for moment in good.moments],
            "steps": good.num_steps,
            "elapsed_s": self.elapsed_s,
            "highest_rate": self._highest_rate,
        }
        partial = self._path.with_suffix(".partial")
        torch.save(state, partial)
        partial.rename(self._path)
        for each in self._saved_beside:
            each.save()

    def _resume(self, own_rate: float) -> None:
        state = torch.load(self._path, weights_only=True)
        averaged = state["averaged"]
        for (name, parameter), mean in zip(self.averaged_state_parameters(), self.averaged, strict=True):
            parameter.data.copy_(averaged[name])
            mean.copy_(averaged[name])
        self.num_steps = self.num_steps_before = state["steps"]
        had = state.get("highest_rate", own_rate)
        self._elapsed_before_s = state["elapsed_s"] if had == self._highest_rate else 0.0
        self._whole_s = self._time_in_all_s()
        self._has_moments = bool(state["moments"])
        for parameter, moment in zip(self._parameters, state["moments"], strict=False):
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(self.num_steps), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": _unfactored(moment, parameter),
            }
        torch.manual_seed(self._options.seed + self.num_steps)
        told = f"{self.progress:.0%} of its time" if had == self._highest_rate else "its time anew"
        print(f"{self.name}: resumed after {self.num_steps} steps, {told}, rate {self._rate_now():.1e}", flush=True)

    def averaged_state_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]


def _factored(moment: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if moment.dim() < 2:
        return (moment.cpu(),)
    flat = moment.flatten(1)
    return flat.mean(1).cpu(), flat.mean(0).cpu()


def _unfactored(factors: tuple[torch.Tensor, ...], like: torch.Tensor) -> torch.Tensor:
    parts = [factor.to(like.device) for factor in factors]
    if len(parts) == 1:
        return parts[0].clone()
    rows, columns = parts
    return (rows[:, None] * columns / rows.mean().clamp(min=1e-30)).reshape(like.shape).contiguous()


def save_weights(state: Path, name: str, weights: Mapping[str, torch.Tensor]) -> None:
    """A stage's state that had one step and no moments: it is warmed up as a new one is."""
    state.mkdir(parents=True, exist_ok=True)
    kept = {key: each.contiguous() for key, each in weights.items()}
    torch.save({"averaged": kept, "moments": [], "steps": 1, "elapsed_s": 0.0}, state / f"{name}.pt")


def averaged_weights(state: Path, name: str) -> dict[str, torch.Tensor]:
    """Averaged weights of a stage, float32."""
    averaged = torch.load(state / f"{name}.pt", weights_only=True, map_location="cpu")["averaged"]
    return {key: tensor.float() for key, tensor in averaged.items()}
