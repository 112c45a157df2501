"""The package's objects that a request meets: they have the contract's members, take its arguments, and no others."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.tensorrt_llm import contract


class RequestError(RuntimeError):
    pass


def settings_class(name: str) -> type:
    """A pydantic model that forbids extras: what it is not asked for by name, and from the contract, it refuses."""
    known = contract.defaults(name)

    def initialise(self: Any, **given: Any) -> None:
        unknown = given.keys() - known.keys()
        if unknown:
            raise ValueError(f"{name}: extra inputs are not permitted: {sorted(unknown)}")
        for key, value in {**known, **given}.items():
            setattr(self, key, value)

    return type(name.rpartition(".")[2], (), {"__init__": initialise})


def _sampling_params_class() -> type:
    known = contract.defaults("SamplingParams.__init__")

    def initialise(self: Any, **given: Any) -> None:
        for key, value in {**known, **given}.items():
            setattr(self, key, value)  # AttributeError: it has slots
        self._stream_interval = None

    return type("SamplingParams", (), {"__slots__": (*known, "_stream_interval"), "__init__": initialise})


SamplingParams: Any = _sampling_params_class()


class LogitsProcessor:
    def __call__(self, req_id: Any, logits: Any, token_ids: Any, stream_ptr: Any, client_id: Any) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Response:
    """A response: all that the executor sends of a request at once."""

    ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    cached_tokens: int = 0
    error: Exception | None = None  # in place of all that


class CompletionOutput:
    """`token_ids_diff` is what the last response added: whoever reads it twice a turn, or not at all, is wrong."""

    __slots__ = (*contract.entry("llmapi.CompletionOutput")["fields"], "_num_before", "_was_read")

    def __init__(self) -> None:
        self.index = 0
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None
        self._num_before = 0
        self._was_read = True

    @property
    def token_ids_diff(self) -> list[int]:
        assert not self._was_read, "token_ids_diff is read once a turn"
        self._was_read = True
        return self.token_ids[self._num_before :]

    def take(self, response: Response) -> None:
        assert self._was_read, "the last response's tokens were not read"
        self._num_before = len(self.token_ids)
        self._was_read = False
        self.token_ids += response.ids
        self.finish_reason = response.finish_reason


class RequestOutput:
    __slots__ = (*contract.entry("llmapi.RequestOutput")["fields"], "_cancel", "_loop", "_queue")

    def __init__(self, request_id: int, cancel: Callable[[int], None]) -> None:
        self.request_id = request_id
        self.outputs = [CompletionOutput()]
        self.finished = False
        self.cached_tokens = 0
        self._cancel = cancel
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None  # then it has a queue that blocks, and cannot be awaited
        self._queue: asyncio.Queue[Response] = asyncio.Queue()

    def abort(self) -> None:
        self._cancel(self.request_id)

    def __aiter__(self) -> "RequestOutput":
        return self

    async def __anext__(self) -> "RequestOutput":
        assert self._loop is asyncio.get_running_loop(), "made on another loop's thread, or on none"
        if self.finished:
            raise StopAsyncIteration
        response = await self._queue.get()
        if response.error is not None:
            raise response.error  # it is not finished by that: who iterates on waits for ever
        self.outputs[0].take(response)
        self.cached_tokens = response.cached_tokens
        self.finished = response.finish_reason is not None
        return self

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def put(self, response: Response) -> None:
        """On the loop's thread. Several may lie there before the first is looked at."""
        self._queue.put_nowait(response)
