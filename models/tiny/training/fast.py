"""Make a step fast on a GPU: bfloat16, compiled modules, CUDA graphs. On a CPU nothing of it happens unasked."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

import torch
from torch import nn

_STEPS_BEFORE_CAPTURE: Final = 8

Function = TypeVar("Function", bound=Callable[..., Any])
Stepped = TypeVar("Stepped")


def compiled(function: Function, options: argparse.Namespace) -> Function:
    """On a GPU, as far as torch.compile can; what it cannot runs as it is."""
    if options.device.type != "cuda":
        return function
    torch._dynamo.config.suppress_errors = True  # torch imports it when it is asked for: seconds
    torch._dynamo.config.recompile_limit = 64
    return cast(Function, torch.compile(function, dynamic=False))


def compile_each(modules: Iterable[nn.Module], options: argparse.Namespace) -> None:
    """Modules of one class: compiled once for all, in a tenth of the time that the whole network takes."""
    for module in modules:
        module.forward = compiled(module.forward, options)


def captured(step: Callable[[], Stepped], options: argparse.Namespace) -> Callable[[], Stepped]:
    """A step whose thousands of small kernels a GPU starts by itself, as a CUDA graph, after a few steps without.

    All that it does must be the GPU's: no value read, no tensor made from Python's numbers. `--no-graphs` does without.
    """
    if options.device.type != "cuda" or options.no_graphs:
        return step
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    graph: torch.cuda.CUDAGraph | None = None
    num_calls = 0
    stepped: Stepped

    def replayed() -> Stepped:
        nonlocal graph, num_calls, stepped
        num_calls += 1
        if num_calls <= _STEPS_BEFORE_CAPTURE:
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                stepped = step()
            torch.cuda.current_stream().wait_stream(aside)
            return stepped
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                stepped = step()
        graph.replay()
        return stepped

    return replayed


def low_precision(options: argparse.Namespace) -> torch.autocast:
    is_wanted = options.device.type == "cuda" if options.bfloat16 is None else options.bfloat16
    return torch.autocast(options.device.type, torch.bfloat16, enabled=is_wanted)
