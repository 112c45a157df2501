"""Memory for what goes in and out of engines that run one after the other: all lie in the largest one's place."""

from collections.abc import Collection, Iterable

import torch

from voicegate.engine.backends.tensorrt.library import ALIGNMENT_BYTES, LoadedEngine, TensorrtError, TensorSpec


class SharedTensors:
    """By group: a tensor of its own name, or all that are named `group.0`, `group.1`, ..., which are of one shape."""

    def __init__(self, engines: Iterable[LoadedEngine], groups: Collection[str], device: torch.device) -> None:
        """Zeros. Of each of the engines; raises TensorrtError where one lacks a group or has it of another type."""
        known = list(engines)
        self.scratch = torch.empty(
            max(1, *(engine.scratch_bytes for engine in known)), dtype=torch.uint8, device=device
        )
        self._memory: dict[str, torch.Tensor] = {}
        for group in groups:
            found = [_members(engine, group) for engine in known]
            dtypes = {spec.dtype for members in found for spec in members.values()}
            if len(dtypes) != 1:
                raise TensorrtError(f"{group} is of {len(dtypes)} types in these engines")
            size = max(len(members) * _stride(next(iter(members.values()))) for members in found)
            self._memory[group] = torch.zeros(size, dtype=dtypes.pop(), device=device)

    def of(self, engine: LoadedEngine, group: str) -> torch.Tensor:
        """One of the engines' part of it: [tensors of the group, *their shape]."""
        members = _members(engine, group)
        spec = next(iter(members.values()))
        stride = _stride(spec)
        places = self._memory[group][: len(members) * stride].view(len(members), stride)
        return places[:, : torch.Size(spec.shape).numel()].view(len(members), *spec.shape)

    def bindings(self, engine: LoadedEngine) -> dict[str, torch.Tensor]:
        """Bindings of all groups, by the engine's names."""
        bound: dict[str, torch.Tensor] = {}
        for group in self._memory:
            bound |= zip(_members(engine, group), self.of(engine, group), strict=True)
        return bound


def _members(engine: LoadedEngine, group: str) -> dict[str, TensorSpec]:
    """In the order of their numbers. Raises TensorrtError where there is none."""
    found = {name: spec for name, spec in engine.tensors.items() if name.partition(".")[0] == group}
    if not found:
        raise TensorrtError(f"the engine has no {group}")
    return dict(sorted(found.items(), key=lambda entry: int(entry[0].partition(".")[2] or 0)))


def _stride(spec: TensorSpec) -> int:
    """Numbers from one tensor of a group to the next."""
    step = ALIGNMENT_BYTES // spec.dtype.itemsize
    return -(-torch.Size(spec.shape).numel() // step) * step
