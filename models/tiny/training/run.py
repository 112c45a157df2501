"""Common parts of all trainers: a budget of time, the learning rate over it, averaged weights, a state that is resumed.

A state is small enough to travel: the averaged weights in float16 and Adam's second moments, factored into rows and
columns (arXiv:1804.04235). Who resumes begins from those; without its second moments a resumed run diverged.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import torch
import torch._dynamo
from torch import nn

_SAVE_EVERY_S: Final = 45.0
_REPORT_EVERY_S: Final = 10.0
_WARM_UP_STEPS: Final = 300
_PATIENCE: Final = 8  # judgements in a row that are worse than the best
_LAST_RATE: Final = 0.03  # of the highest


def parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="a folder of shards")
    parser.add_argument("--state", type=Path, required=True, help="a folder: one file a stage")
    parser.add_argument("--minutes", type=float, required=True, help="of this stage, all its runs together")
    parser.add_argument("--until", type=float, default=math.inf, help="stop then (seconds since 1970), to be resumed")
    parser.add_argument(
        "--device", type=torch.device, default=torch.device("cuda" if torch.cuda.is_available() else "cpu")
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=1e9, help="of each voice, at most")
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--batch-share", type=float, default=1.0, help="of the batch: less for a trial on a CPU")
    return parser


Velocity = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, options: argparse.Namespace) -> Function:
    """On a GPU, as far as torch.compile can; what it cannot runs as it is."""
    if options.device.type != "cuda":
        return function
    torch._dynamo.config.suppress_errors = True
    return cast(Function, torch.compile(function, dynamic=False))


def low_precision(options: argparse.Namespace) -> torch.autocast:
    return torch.autocast(options.device.type, torch.bfloat16, enabled=options.device.type == "cuda")


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
    ) -> None:
        self.name = name
        self.model = model
        self._path: Path = options.state / f"{name}.pt"
        self._options = options
        self._rate, self._average, self._clip = rate, average, clip
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        is_cuda = options.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(self._parameters, lr=rate, betas=betas, weight_decay=decay, fused=is_cuda)
        self.num_steps = 0
        self.num_skipped = torch.zeros((), device=options.device)
        self._elapsed_before_s = 0.0
        self.averaged = [parameter.detach().clone() for parameter in self._parameters]
        self._started = time.monotonic()
        self._sums: dict[str, torch.Tensor] = {}
        self._num_reported = 0
        self._best = math.inf
        self._num_worse = 0
        if self._path.exists():
            self._resume()

    @property
    def elapsed_s(self) -> float:
        return self._elapsed_before_s + time.monotonic() - self._started

    @property
    def progress(self) -> float:
        """0 to 1 over the stage's time."""
        minutes: float = self._options.minutes
        return min(self.elapsed_s / (60 * minutes), 1.0)

    def steps(self) -> Iterator[int]:
        self._started = time.monotonic()
        first, last_save, last_report = self.num_steps, time.monotonic(), time.monotonic()
        while not self._is_over():
            yield self.num_steps
            now = time.monotonic()
            if now - last_report > _REPORT_EVERY_S:
                self.report()
                last_report = now
            if now - last_save > _SAVE_EVERY_S and not self._num_worse:
                self.save()
                last_save = now
        self.report()
        if not self._num_worse:
            self.save()
        print(f"{self.name}: {self.num_steps - first} steps, stopped at {self.progress:.0%}", flush=True)

    def _is_over(self) -> bool:
        is_late = self.progress >= 1 or time.time() >= self._options.until
        return is_late or self.num_steps >= self._options.max_steps or self._num_worse == _PATIENCE

    def judge(self, loss: float) -> None:
        """Judges the held-out part. While its loss grows nothing is saved, and then the run stops: the model learns by
        heart."""
        self._num_worse = 0 if loss < self._best else self._num_worse + 1
        self._best = min(loss, self._best)
        print(f"{self.name}: held out {loss:.4f}, at best {self._best:.4f}", flush=True)
        if not self._num_worse:
            self.save()

    def update(self, losses: Mapping[str, torch.Tensor]) -> None:
        """One step down the sum of the losses; one that is not finite changes nothing."""
        loss = torch.stack(tuple(losses.values())).sum()
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        norm = nn.utils.clip_grad_norm_(self._parameters, self._clip)
        is_finite = torch.isfinite(norm)
        self.num_skipped += ~is_finite
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate_now()
        self.optimizer.step()
        weight = 1 - min(self._average, (self.num_steps + 1) / (self.num_steps + 10))
        torch._foreach_lerp_(self.averaged, [parameter.data for parameter in self._parameters], weight)
        self.num_steps += 1
        for name, value in losses.items():
            self._sums[name] = self._sums.get(name, 0) + value.detach()
        self._num_reported += 1

    def _rate_now(self) -> float:
        warm = min((self.num_steps + 1) / _WARM_UP_STEPS, 1.0)
        return self._rate * warm * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * self.progress)))

    def report(self) -> None:
        if self._num_reported:
            text = "  ".join(f"{name} {float(total) / self._num_reported:.4f}" for name, total in self._sums.items())
            print(
                f"{self.name} {self.elapsed_s:6.0f} s {self.num_steps:6} steps  {text}  "
                f"skipped {int(self.num_skipped)}",
                flush=True,
            )
        self._sums, self._num_reported = {}, 0

    def averaged_state(self) -> dict[str, torch.Tensor]:
        names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        return dict(zip(names, self.averaged, strict=True))

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        state: dict[str, Any] = {
            "averaged": {name: tensor.half().cpu() for name, tensor in self.averaged_state().items()},
            "moments": [
                _factored(self.optimizer.state[p]["exp_avg_sq"]) for p in self._parameters if p in self.optimizer.state
            ],
            "steps": self.num_steps,
            "elapsed_s": self.elapsed_s,
        }
        partial = self._path.with_suffix(".partial")
        torch.save(state, partial)
        partial.rename(self._path)

    def _resume(self) -> None:
        state = torch.load(self._path, weights_only=True)
        averaged = state["averaged"]
        for (name, parameter), mean in zip(self.averaged_state_parameters(), self.averaged, strict=True):
            parameter.data.copy_(averaged[name])
            mean.copy_(averaged[name])
        self.num_steps, self._elapsed_before_s = state["steps"], state["elapsed_s"]
        for parameter, moment in zip(self._parameters, state["moments"], strict=False):
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(self.num_steps), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": _unfactored(moment, parameter),
            }
        print(f"{self.name}: resumed after {self.num_steps} steps, {self.progress:.0%}", flush=True)

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


def averaged_weights(state: Path, name: str) -> dict[str, torch.Tensor]:
    """Averaged weights of a stage, float32."""
    averaged = torch.load(state / f"{name}.pt", weights_only=True, map_location="cpu")["averaged"]
    return {key: tensor.float() for key, tensor in averaged.items()}
