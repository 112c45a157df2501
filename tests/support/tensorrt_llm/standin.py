"""A stand-in for the whole package: its executor in a thread of its own, with the orders and traps that are documented.

A model of the test's gives logits over the merged vocabulary; what is drawn from them follows the request's parameters
as far as the chosen sampler of the package knows them.
"""

import importlib.metadata
import inspect
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.support.tensorrt_llm import contract
from tests.support.tensorrt_llm.objects import (
    LogitsProcessor,
    RequestError,
    RequestOutput,
    Response,
    SamplingParams,
    settings_class,
)

# All ids so far -> logits over the merged vocabulary [rows] float32
Model = Callable[[Sequence[int]], torch.Tensor]

_RAS_MODULE = "voicegate.engine.backends.tensorrt_llm.ras_processor"


@dataclass(eq=False)
class Behaviour:
    """Behaviour that a test may choose, also while it runs."""

    model: Model
    shows_end: bool = True  # whether the end id is among the ids: not known of the real one
    num_responses_late: int = 0  # pushed together with the next, so that several lie in the queue
    refuses: Callable[[Sequence[int]], str | None] = lambda _: None
    breaks_with: Exception | None = None  # out of the next request's iteration
    breaks_step_with: str | None = None  # a step in which something fails is the end of all requests in it
    submits_behind: Callable[[], object] = lambda: None  # a socket to a worker that is gone waits for ever
    lost: set[int] = field(default_factory=set)  # requests of which nothing more is heard
    version: str = "1.2.1"


@dataclass(eq=False)
class _Request:
    prompt: list[int]
    params: Any
    output: RequestOutput
    processors: list[Any]
    generator: torch.Generator
    cached_tokens: int
    generated: list[int] = field(default_factory=list)
    untold: list[int] = field(default_factory=list)
    num_steps: int = 0


class Llm:
    """`tensorrt_llm.LLM`, for streamed requests of token ids."""

    def __init__(self, behaviour: Behaviour, given: dict[str, Any]) -> None:
        unknown = given.get("kwargs", {}).keys() - contract.llm_settings()
        if unknown:
            raise ValueError(f"LLM got invalid argument: {sorted(unknown)}")
        self.settings: dict[str, Any] = {**given, **given.pop("kwargs", {})}
        assert self.settings["stream_interval"] > 0
        graphs = self.settings["cuda_graph_config"]
        assert graphs is None or not (graphs.batch_sizes and graphs.max_batch_size), "one of both"
        if self.settings["max_batch_size"] < 1:
            raise ValueError("max_batch_size must be positive")
        self.is_single_process = os.environ.get("TLLM_WORKER_USE_SINGLE_PROCESS") == "1"
        self.requests: list[_Request] = []  # all that ever were
        self.is_shut_down = False
        self.behaviour = behaviour
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._active: list[_Request] = []
        self._cancelled: set[int] = set()
        self._is_held = self._is_dead = False
        self._stored: list[list[int]] = []
        self._thread = threading.Thread(target=self._run, name="stand-in executor", daemon=True)
        self._thread.start()

    # --- what the package offers ------------------------------------------------------------------------------

    def generate_async(self, *args: Any, **kwargs: Any) -> RequestOutput:
        given = contract.signature("LLM.generate_async").bind(*args, **kwargs)
        given.apply_defaults()
        prompt, params = given.arguments["inputs"], given.arguments["sampling_params"]
        assert given.arguments["streaming"], "only the streamed kind is built here"
        if self.is_shut_down:
            raise RuntimeError("LLM is shutting down")
        self.behaviour.submits_behind()
        self._check(prompt, params)
        assert params._stream_interval is None, "parameters are written into: each request has its own"
        params._stream_interval = self.settings["stream_interval"]
        output = RequestOutput(len(self.requests), self._cancel)
        processors = [] if params.logits_processor is None else [pickle.loads(pickle.dumps(params.logits_processor))]
        generator = torch.Generator().manual_seed(params.seed or 0)
        request = _Request(prompt, params, output, processors, generator, self._cached(prompt))
        assert not self.requests or self.requests[0].output.loop is output.loop, "all requests share one loop"
        with self._changed:
            self.requests.append(request)
            self._waiting.append(request)
            self._changed.notify_all()
        return output

    def _check(self, prompt: Any, params: Any) -> None:
        """Refuses requests at submission, and those that trip an assertion of the package there."""
        assert isinstance(prompt, list)
        assert prompt
        assert all(type(id_) is int for id_ in prompt), "numpy's integers are none"
        if not isinstance(params, SamplingParams):
            raise TypeError(f"The sampling_params must be type SamplingParams, but got {type(params)}")
        if params.end_id is None:
            raise ValueError("sampling_params.end_id is None and there is no tokenizer")
        if len(prompt) > self.settings["max_num_tokens"]:
            raise RequestError(f"prompt length {len(prompt)} exceeds max_num_tokens")
        # More than there is room for is cut to it, with a warning; nothing at all is refused.
        if min(params.max_tokens, self.settings["max_seq_len"] - len(prompt)) < 1:
            raise RequestError(f"no room for a token behind {len(prompt)} of a prompt")

    def shutdown(self) -> None:
        with self._changed:
            self.is_shut_down = True
            self._changed.notify_all()
        self._thread.join()

    # --- what a test does -------------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """No step is taken meanwhile, but for one that it is in the middle of."""
        self._set(_is_held=True)
        yield
        self._set(_is_held=False)

    def wait_for_cancel(self) -> None:
        """Until it was told of one, which comes by another thread."""
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self._cancelled), timeout=60)

    def die(self) -> None:
        """As an assertion in its loop would have it: nobody is told, and its health stays good."""
        self._set(_is_dead=True)

    def _set(self, **flags: bool) -> None:
        with self._changed:
            for name, value in flags.items():
                setattr(self, name, value)
            self._changed.notify_all()

    # --- the executor -----------------------------------------------------------------------------------------

    def _cancel(self, request_id: int) -> None:
        with self._changed:
            self._cancelled.add(request_id)
            self._changed.notify_all()

    def _run(self) -> None:
        late: list[tuple[RequestOutput, Response]] = []
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self.is_shut_down or self._is_dead or (self._has_work and not self._is_held)
                )
                if self.is_shut_down or self._is_dead:
                    return
                cancelled, self._cancelled = self._cancelled, set()
                self._admit()
            late += self._end_cancelled(cancelled)
            late += self._step()
            if late and (len(late) > self.behaviour.num_responses_late or not self._has_work):
                responses, late = late, []
                responses[0][0].loop.call_soon_threadsafe(_deliver, responses)

    @property
    def _has_work(self) -> bool:
        return bool(self._waiting or self._active or self._cancelled)

    def _admit(self) -> None:
        """As GUARANTEED_NO_EVICT does: what a request may come to need is set aside for it."""
        budget = self.settings["kv_cache_config"].max_tokens
        while self._waiting and len(self._active) < self.settings["max_batch_size"]:
            needed = sum(len(each.prompt) + each.params.max_tokens for each in (*self._active, self._waiting[0]))
            if self._active and needed > budget:
                return
            self._active.append(self._waiting.popleft())

    def _end_cancelled(self, cancelled: set[int]) -> list[tuple[RequestOutput, Response]]:
        """Ends cancelled requests. Waiting ones send nothing more."""
        with self._changed:
            self._waiting = deque(each for each in self._waiting if each.output.request_id not in cancelled)
        ended = [each for each in self._active if each.output.request_id in cancelled]
        for request in ended:
            self._leave(request)
        return [(each.output, Response(tuple(each.untold), "cancelled")) for each in ended]

    def _leave(self, request: _Request) -> None:
        self._active.remove(request)
        self._stored.append((request.prompt + request.generated)[:-1])  # the last token's keys were never made

    def _step(self) -> list[tuple[RequestOutput, Response]]:
        told: list[tuple[RequestOutput, Response]] = []
        try:
            if self.behaviour.breaks_step_with is not None and self._active:
                raise RuntimeError(self.behaviour.breaks_step_with)
            for request in list(self._active):
                told += self._advance(request)
        except AssertionError:
            raise  # of a trap here
        except Exception as error:  # noqa: BLE001 - the package goes on, without any of the requests
            told += [(each.output, Response(error=RequestError(str(error)))) for each in self._active]
            self._active.clear()
        return told

    def _cached(self, prompt: Sequence[int]) -> int:
        if not self.settings["kv_cache_config"].enable_block_reuse:
            return 0
        return max((_num_common(each, prompt[:-1]) for each in self._stored), default=0)

    def _advance(self, request: _Request) -> list[tuple[RequestOutput, Response]]:
        """One decode step of one request; what it sends, every stream_interval of them and at the end."""
        behaviour, params = self.behaviour, request.params
        if request.output.request_id in behaviour.lost:
            return []
        error: Exception | None = None
        num_rows = 0 if request.generated else len(behaviour.model(request.prompt))
        if num_rows and not 0 <= min(request.prompt) <= max(request.prompt) < num_rows:
            error = RequestError("Token ID out of range")
        elif (refusal := behaviour.refuses(request.prompt)) is not None:
            error = RequestError(refusal)
        elif behaviour.breaks_with is not None:
            error, behaviour.breaks_with = behaviour.breaks_with, None
        if error is not None:
            self._leave(request)
            return [(request.output, Response(error=error))]
        id_ = self._draw(request)
        request.generated.append(id_)
        request.num_steps += 1
        finish_reason = None
        room = self.settings["max_seq_len"] - len(request.prompt)
        if id_ == params.end_id:
            finish_reason = "stop"
        elif len(request.generated) == min(params.max_tokens, room):
            finish_reason = "length"
        if id_ != params.end_id or behaviour.shows_end:
            request.untold.append(id_)
        if finish_reason is not None:
            self._leave(request)
        elif request.num_steps > 1 and request.num_steps % self.settings["stream_interval"]:
            return []
        told, request.untold = tuple(request.untold), []
        return [(request.output, Response(told, finish_reason, request.cached_tokens))]

    def _draw(self, request: _Request) -> int:
        params, is_torch = request.params, self.settings["sampler_type"] == "TorchSampler"
        ids = request.prompt + request.generated
        logits = self.behaviour.model(ids).clone()
        assert params.repetition_penalty is None or not is_torch, "TorchSampler ignores penalties, without a word"
        # TorchSampler's fault in 1.2: the prompt counts.
        num_counted = len(ids) if is_torch else len(request.generated)
        if params.min_tokens is not None and num_counted < params.min_tokens:
            logits[params.end_id] = -torch.inf  # no other id that ends something
        if params.repetition_penalty is not None:
            seen = torch.tensor(sorted(set(ids)))
            scores = logits[seen]
            logits[seen] = torch.where(
                scores > 0, scores / params.repetition_penalty, scores * params.repetition_penalty
            )
        for processor in request.processors:
            stale = ids if not request.generated or self.settings["disable_overlap_scheduler"] else ids[:-1]
            assert 4 <= len(inspect.signature(processor).parameters) <= 5
            returned = processor(request.output.request_id, logits[None, None], [stale], None, None)
            assert returned is None
        return _sample(logits, params, request.generator)


def _deliver(responses: list[tuple[RequestOutput, Response]]) -> None:
    for output, response in responses:
        output.put(response)


def _sample(logits: torch.Tensor, params: Any, generator: torch.Generator) -> int:
    is_unset = params.temperature is None and params.top_p is None and params.top_k is None
    if is_unset or params.top_k == 1 or params.top_p == 0 or params.temperature == 0:
        return int(logits.argmax())
    scores, ids = (logits / (params.temperature or 1.0)).topk(params.top_k or len(logits))
    weights = scores.softmax(-1)
    weights[weights.cumsum(-1) - weights >= (params.top_p or 1.0)] = 0
    return int(ids[torch.multinomial(weights, 1, generator=generator)])


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class Standin:
    """The package, installed for a while: its LLMs are made by the code under test."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.llms: list[Llm] = []

    def make_llm(self, *args: Any, **kwargs: Any) -> Llm:
        given = contract.signature("LLM.__init__").bind(*args, **kwargs)
        given.apply_defaults()
        self.llms.append(Llm(self.behaviour, dict(given.arguments)))
        return self.llms[-1]


@contextmanager
def installed(behaviour: Behaviour) -> Iterator[Standin]:
    """`import tensorrt_llm` gives the stand-in."""
    standin = Standin(behaviour)
    package, llmapi = ModuleType("tensorrt_llm"), ModuleType("tensorrt_llm.llmapi")
    sampling_params = ModuleType("tensorrt_llm.sampling_params")
    members: dict[ModuleType, dict[str, Any]] = {
        package: {"LLM": standin.make_llm, "SamplingParams": SamplingParams},
        llmapi: {
            "KvCacheConfig": settings_class("llmapi.KvCacheConfig"),
            "CudaGraphConfig": settings_class("llmapi.CudaGraphConfig"),
            "RequestError": RequestError,
        },
        sampling_params: {"LogitsProcessor": LogitsProcessor, "SamplingParams": SamplingParams},
    }
    real_version = importlib.metadata.version
    with pytest.MonkeyPatch.context() as patch:
        for module, contents in members.items():
            for name, member in contents.items():
                setattr(module, name, member)
            patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(
            importlib.metadata,
            "version",
            lambda name: behaviour.version if name == "tensorrt_llm" else real_version(name),
        )
        patch.setenv("TLLM_WORKER_USE_SINGLE_PROCESS", "0")  # whatever is set meanwhile goes again
        patch.delitem(sys.modules, _RAS_MODULE, raising=False)  # its class has a base of the package
        yield standin
        sys.modules.pop(_RAS_MODULE, None)
