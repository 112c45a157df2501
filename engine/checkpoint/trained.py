"""Training's wrappings around weights, taken off: wrappers, prefixes, bookkeeping, a discriminator.

Sources: upstream's `save_model` (epoch and step beside the tensors; DeepSpeed's own file), its `HiFiGan` (generator and
discriminator in one), and what DDP, FSDP, torch.compile, Lightning and PEFT put before a name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.engine.checkpoint.conversion import CheckpointError

# Modules around a module, anywhere in a name. No tensor of either family has them in its own.
_WRAPPING: Final = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_ADAPTER: Final = frozenset({"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "base_layer"})
_PEFT: Final = "base_model.model."
_GENERATOR: Final = "generator."
_DISCRIMINATOR: Final = "discriminator."
# State dicts beside the model's: of GAN training, and of DeepSpeed where a part of the model was frozen.
_BESIDE: Final = frozenset({"discriminator", "frozen_param_fragments"})
# torch before 2.0 wrote a weight norm's gain and direction so.
_OLD_WEIGHT_NORM: Final[Mapping[str, str]] = {
    ".weight_g": ".parametrizations.weight.original0",
    ".weight_v": ".parametrizations.weight.original1",
}
_MAX_DEPTH: Final = 3  # of mappings in mappings
_MAX_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class Weights:
    state: Mapping[str, torch.Tensor]  # by upstream's names
    remarks: tuple[str, ...] = ()  # a line for each kind of thing that was left out


def plain_weights(loaded: Mapping[str, Any], path: Path, part: str) -> Weights:
    """The state dict in what a training program saved of `part`. Raises CheckpointError."""
    inner, trail = _state_dict_in(loaded, path)
    tensors = {name: value for name, value in inner.items() if isinstance(value, torch.Tensor)}
    remarks = [f"its weights are taken from {' > '.join(map(repr, trail))}"] if trail else []
    left_out = sorted({*(loaded.keys() - set(trail) if trail else ()), *(inner.keys() - tensors.keys())})
    if left_out:
        remarks.append(f"left out, since it is no weight: {_listed(left_out)}")
    _refuse_adapter(tensors, path)
    tensors = _renamed(tensors, _without_wrapping, path)
    if part == "vocoder":
        tensors = _generator(tensors, path, remarks)
    tensors, fronts = _without_common_front(tensors)
    if fronts:
        remarks.append(f"left out of all names: {fronts}")
    if part == "vocoder":
        tensors = _renamed(tensors, _as_parametrized, path)
    return Weights(tensors, tuple(f"{path.name}: {remark}" for remark in remarks))


def plain_merged(tensors: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """Likewise for an LLM in Hugging Face's layout, all of whose own names may begin with `model.`."""
    _refuse_adapter(tensors, path)
    return _renamed(tensors, lambda name: _without_wrapping(name).removeprefix(_PEFT), path)


def _renamed(
    tensors: Mapping[str, torch.Tensor], new_name: Callable[[str], str], path: Path
) -> dict[str, torch.Tensor]:
    """Raises CheckpointError where two get one name."""
    state: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if (changed := new_name(name)) in state:
            raise CheckpointError(f"{path} has {changed} twice, once as {name}: save the state dict of one model")
        state[changed] = tensor
    return state


def _without_wrapping(name: str) -> str:
    return ".".join(component for component in name.split(".") if component not in _WRAPPING)


def _state_dict_in(loaded: Mapping[str, Any], path: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The mapping that holds the model's tensors, and the keys that lead to it. Raises CheckpointError."""
    found = {trail: inner for trail, inner in _state_dicts(loaded, ()) if not _BESIDE.intersection(trail)}
    if len(found) > 1 and () not in found:
        names = ", ".join(" > ".join(map(repr, trail)) for trail in found)
        raise CheckpointError(f"{path} holds several state dicts ({names}): save the one to speak with by itself")
    trail = () if () in found else next(iter(found), ())
    return found.get(trail, loaded), trail


def _state_dicts(loaded: Any, trail: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Mappings with tensors whose names have a dot: an optimizer's have none."""
    if not isinstance(loaded, Mapping) or not all(isinstance(key, str) for key in loaded):
        return
    if any(isinstance(value, torch.Tensor) and "." in key for key, value in loaded.items()):
        yield trail, loaded
    elif len(trail) < _MAX_DEPTH:
        for key, value in loaded.items():
            yield from _state_dicts(value, (*trail, key))


def _refuse_adapter(names: Iterable[str], path: Path) -> None:
    adapter = next((name for name in names if _ADAPTER.intersection(name.split("."))), None)
    if adapter is not None:
        raise CheckpointError(
            f"{path} holds a LoRA adapter ({adapter}): merge it into the weights (PEFT's merge_and_unload()) and save "
            "the model's state dict"
        )


def _generator(tensors: Mapping[str, torch.Tensor], path: Path, remarks: list[str]) -> dict[str, torch.Tensor]:
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(_DISCRIMINATOR)}
    if len(kept) < len(tensors):
        remarks.append("the generator's weights are taken, the discriminator's left out")
    return _renamed(kept, lambda name: name.removeprefix(_GENERATOR), path)


def _without_common_front(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], str]:
    """No part's own names all begin with one module: such a one was put around the model."""
    fronts = ""
    while len(tensors) > 1:
        first, *others = {name.partition(".")[0] for name in tensors}
        if others or first in tensors:
            break
        fronts += f"{first}."
        tensors = {name.removeprefix(f"{first}."): tensor for name, tensor in tensors.items()}
    return tensors, fronts


def _as_parametrized(name: str) -> str:
    for old, new in _OLD_WEIGHT_NORM.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _listed(names: list[str]) -> str:
    if len(names) <= _MAX_NAMED + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_MAX_NAMED])} and {len(names) - _MAX_NAMED} others"
