"""A stand-in for what is asked of vLLM 0.26: an AsyncLLM on the caller's event loop, which steps all requests together.

Requests are submitted when they are first iterated, and aborted when that is cancelled. Logits processors see a batch
that is condensed when a request leaves, by moves, as in vLLM. A model of the test's gives logits over the vocabulary.
"""

import asyncio
import importlib
import importlib.metadata
import math
import sys
import threading
from abc import ABC
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from types import ModuleType
from typing import Any

import pytest
import torch

# All ids so far -> logits over the merged vocabulary [rows] float32
Model = Callable[[Sequence[int]], torch.Tensor]

_KNOWN_ARGUMENTS = {
    "model",
    "skip_tokenizer_init",
    "dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "enforce_eager",
    "async_scheduling",
    "logits_processors",
    "worker_extension_cls",
    "disable_log_stats",
}


class EngineDeadError(Exception):
    pass


class EngineGenerateError(Exception):
    pass


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1


class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


class LogitsProcessor(ABC):  # noqa: B024 - as the package's
    pass


@dataclass(frozen=True)
class BatchUpdate:
    batch_size: int
    removed: Sequence[int]
    added: Sequence[tuple[int, Any, list[int] | None, list[int]]]
    moved: Sequence[tuple[int, int, MoveDirectionality]]


@dataclass
class SamplingParams:
    max_tokens: int
    stop_token_ids: list[int]
    temperature: float
    detokenize: bool
    output_kind: RequestOutputKind
    top_p: float = 1.0
    top_k: int = 0
    extra_args: dict[str, Any] | None = None


@dataclass(frozen=True)
class CompletionOutput:
    token_ids: list[int]
    finish_reason: str | None


@dataclass(frozen=True)
class RequestOutput:
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int | None


@dataclass(eq=False)
class Behaviour:
    """Behaviour that a test may choose, also while it runs."""

    model: Model
    refuses: Callable[[Sequence[int]], str | None] = lambda _: None
    breaks_with: Exception | None = None  # whatever is asked of it next
    num_steps: float = math.inf  # that it takes before it falls silent
    version: str = "0.26.0"


@dataclass(eq=False)
class _Request:
    request_id: str
    prompt: list[int]
    params: SamplingParams
    num_cached: int
    queue: "asyncio.Queue[RequestOutput | Exception]" = field(default_factory=asyncio.Queue)
    generated: list[int] = field(default_factory=list)


class AsyncLLM:
    def __init__(self, behaviour: Behaviour, arguments: dict[str, Any]) -> None:
        unknown = arguments.keys() - _KNOWN_ARGUMENTS
        if unknown:
            raise TypeError(f"AsyncEngineArgs got unexpected arguments {sorted(unknown)}")
        if not 0 < arguments["gpu_memory_utilization"] < 1 or arguments["max_num_seqs"] < 1:
            raise ValueError("no room for a cache")
        self.arguments = arguments
        self.behaviour = behaviour
        self.is_shut_down = False
        self.aborted: list[str] = []
        self.prompts: list[list[int]] = []
        self.params: list[SamplingParams] = []
        self._batch: list[_Request] = []
        self._stepping: asyncio.Task[None] | None = None
        self._stored: list[list[int]] = []
        self._added: list[_Request] = []
        self._processors = []
        for named in arguments["logits_processors"] or ():
            module, _, name = named.partition(":")
            self._processors.append(getattr(importlib.import_module(module), name)(None, torch.device("cpu"), False))

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[RequestOutput]:
        assert prompt.keys() == {"prompt_token_ids"}
        ids = prompt["prompt_token_ids"]
        assert all(type(id_) is int for id_ in ids)
        assert sampling_params.output_kind is RequestOutputKind.DELTA
        self.prompts.append(ids)
        self.params.append(sampling_params)
        if self.behaviour.breaks_with is not None:
            raise self.behaviour.breaks_with
        if (refusal := self.behaviour.refuses(ids)) is not None:
            raise ValueError(refusal)
        if len(ids) + 1 > self.arguments["max_model_len"]:
            raise ValueError(f"the prompt has {len(ids)} tokens, max_model_len is {self.arguments['max_model_len']}")
        request = _Request(request_id, list(ids), sampling_params, self._num_cached(ids))
        self._batch.append(request)
        self._added.append(request)
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.get_running_loop().create_task(self._run())
        try:
            while True:
                output = await request.queue.get()
                if isinstance(output, Exception):
                    raise output
                yield output
                if output.finished:
                    return
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.append(request_id)
            self._leave(request)
            raise

    def shutdown(self) -> None:
        self.is_shut_down = True

    # --- its engine -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._batch:
            await asyncio.sleep(0)
            if not self._batch:
                return
            if self.behaviour.num_steps < 1:
                await asyncio.sleep(0.01)
                continue
            self.behaviour.num_steps -= 1
            if self.behaviour.breaks_with is not None:
                for request in self._batch:
                    request.queue.put_nowait(self.behaviour.breaks_with)
                self._batch.clear()
                return
            self._step()

    def _step(self) -> None:
        added = [
            (self._batch.index(each), each.params, each.prompt, each.generated)
            for each in self._added
            if each in self._batch
        ]
        self._added = []
        if added:
            self._tell(BatchUpdate(len(self._batch), (), added, ()))
        logits = torch.stack([self.behaviour.model(each.prompt + each.generated) for each in self._batch])
        for processor in self._processors:
            logits = processor.apply(logits)
        for row, request in list(enumerate(self._batch)):
            self._advance(request, self._draw(logits[row], request.params))

    def _advance(self, request: _Request, id_: int) -> None:
        request.generated.append(id_)
        reason = None
        if id_ in request.params.stop_token_ids:
            reason = "stop"
        elif (
            len(request.generated) == request.params.max_tokens
            or len(request.prompt) + len(request.generated) >= self.arguments["max_model_len"]
        ):
            reason = "length"
        request.queue.put_nowait(
            RequestOutput([CompletionOutput([id_], reason)], reason is not None, request.num_cached)
        )
        if reason is not None:
            self._leave(request)

    def _leave(self, request: _Request) -> None:
        """The last one of the batch moves to its place."""
        if request not in self._batch:
            return
        index, last = self._batch.index(request), len(self._batch) - 1
        self._stored.append(request.prompt + request.generated)
        if request in self._added:  # no processor was told of it
            self._added.remove(request)
            self._batch.remove(request)
            return
        mover = self._batch[last]
        if mover in self._added:  # it will be told of at its place
            self._batch[index] = mover
            self._batch.pop()
            self._tell(BatchUpdate(last, [index], (), ()))
            return
        self._batch[index] = mover
        self._batch.pop()
        moved = [(last, index, MoveDirectionality.UNIDIRECTIONAL)] if index != last else []
        self._tell(BatchUpdate(last, [index], (), moved))

    def _tell(self, update: BatchUpdate) -> None:
        for processor in self._processors:
            processor.update_state(update)

    def _num_cached(self, ids: list[int]) -> int:
        if not self.arguments["enable_prefix_caching"]:
            return 0

        def common(stored: list[int]) -> int:
            pairs = list(zip(stored, ids[:-1], strict=False))
            return next((place for place, (one, other) in enumerate(pairs) if one != other), len(pairs))

        return max(map(common, self._stored), default=0)

    @staticmethod
    def _draw(logits: torch.Tensor, params: SamplingParams) -> int:
        scores, ids = (logits / params.temperature).topk(params.top_k or len(logits))
        weights = scores.softmax(-1)
        weights[weights.cumsum(-1) - weights >= params.top_p] = 0
        return int(ids[torch.multinomial(weights, 1)])


class Standin:
    """The package, installed for a while: its engines are made by the code under test."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.llms: list[AsyncLLM] = []

    def from_engine_args(self, arguments: dict[str, Any]) -> AsyncLLM:
        assert threading.current_thread().name != "vLLM"
        self.llms.append(AsyncLLM(self.behaviour, arguments))
        return self.llms[-1]


@contextmanager
def installed(behaviour: Behaviour) -> Iterator[Standin]:
    """`import vllm` gives the stand-in."""
    standin = Standin(behaviour)
    modules = {
        "vllm": {},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": dict},
        "vllm.sampling_params": {"SamplingParams": SamplingParams, "RequestOutputKind": RequestOutputKind},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": standin},
        "vllm.v1.engine.exceptions": {
            "EngineDeadError": EngineDeadError,
            "EngineGenerateError": EngineGenerateError,
        },
        "vllm.v1.sample": {},
        "vllm.v1.sample.logits_processor": {
            "BatchUpdate": BatchUpdate,
            "LogitsProcessor": LogitsProcessor,
            "MoveDirectionality": MoveDirectionality,
        },
    }
    real_version = importlib.metadata.version
    with pytest.MonkeyPatch.context() as patch:
        for name, members in modules.items():
            module = ModuleType(name)
            module.__dict__.update(members)
            patch.setitem(sys.modules, name, module)
        patch.delitem(sys.modules, "voicegate.engine.backends.vllm.ras_processor", raising=False)
        patch.setattr(
            importlib.metadata,
            "version",
            lambda name: behaviour.version if name == "vllm" else real_version(name),
        )
        yield standin
