"""An LLM that schedules itself, as TensorRT-LLM's executor does: a real runner, stepped by a thread of its own.

Orders (new sequences, text, aborts) are carried out between its steps, so an abort is honoured late. A test may leave
the thread out and call `advance`, or have it stand still for a while (`held`).
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.llm.backend import (
    InvalidRequest,
    LlmDied,
    LlmTraits,
    NoFreeSlot,
    SequenceOutput,
    SequenceRequest,
)
from voicegate.engine.llm.feed import check_text_ids
from voicegate.engine.llm.runner import LlmRunner
from voicegate.engine.llm.sequence import Growing, make_sequence
from voicegate.engine.model.config import LlmConfig

# Traits of TensorRT-LLM's LLM class.
PLAIN = LlmTraits(takes_streamed_text=False, is_reproducible=False)
FULL = LlmTraits(takes_streamed_text=True, is_reproducible=True)


@dataclass(slots=True)
class _Alive:
    """A sequence as the caller knows it."""

    request: SequenceRequest
    is_text_ended: bool = False
    is_paused: bool = True  # where it is growing
    num_tokens: int = 0  # fetched


@dataclass(slots=True)
class _Running:
    """A sequence as the thread knows it."""

    tokens: list[int] = field(default_factory=list)  # not told yet


class SelfSchedulingLlm:
    """See LlmBackend."""

    takes_step = False

    def __init__(
        self,
        runner: LlmRunner,
        config: LlmConfig,
        *,
        traits: LlmTraits = FULL,
        stream_interval: int = 1,
        has_thread: bool = True,
    ) -> None:
        """`stream_interval`: speech tokens of an output, but for the last of a sequence or of a reading."""
        self.traits = traits
        self.counters: Mapping[str, float] = {}
        self.num_fetched = 0
        self.num_rounds = 0
        self.dies_of: Exception | None = None  # at the next step
        self._runner = runner
        self._config = config
        self.stream_interval = stream_interval
        self._waker: Waker = NO_WAKER
        # The caller's.
        self._alive: dict[int, _Alive] = {}
        self._num_slots = runner.num_free_slots
        # Between both, under the condition.
        self._changed = threading.Condition()
        self._orders: list[Callable[[], None]] = []
        self._made: list[SequenceOutput] = []
        self._is_idle = True
        self._is_closed = False
        self._is_held = False
        self._death: str | None = None
        # The thread's.
        self._running: dict[int, _Running] = {}
        self._thread = threading.Thread(target=self._run, name="self-scheduling-llm", daemon=True)
        if has_thread:
            self._thread.start()

    # --- the caller's side ------------------------------------------------------------------------------------

    @property
    def num_free_slots(self) -> int:
        return self._num_slots - len(self._alive)

    def set_waker(self, waker: Waker) -> None:
        self._waker = waker

    def add(self, request: SequenceRequest) -> None:
        if request.sequence_id in self._alive:
            raise InvalidRequest(f"sequence {request.sequence_id} is alive already")
        if request.is_streaming and not self.traits.takes_streamed_text:
            raise InvalidRequest("this LLM takes no streamed text")
        make_sequence(self._config, request)  # raises InvalidRequest
        if not self.num_free_slots:
            raise NoFreeSlot(f"all {self._num_slots} slots are taken")
        self._order(lambda: self._begin(request))
        self._alive[request.sequence_id] = _Alive(request)

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        alive = self._alive.get(sequence_id)
        if alive is None:
            return
        check_text_ids(self._config, text_ids)
        _check_streaming(alive)
        if alive.is_text_ended:
            raise InvalidRequest("text was pushed after its end")
        self._order(lambda: self._runner.push_text(sequence_id, text_ids))

    def end_text(self, sequence_id: int) -> None:
        alive = self._alive.get(sequence_id)
        if alive is None:
            return
        _check_streaming(alive)
        alive.is_text_ended = True
        self._order(lambda: self._runner.end_text(sequence_id))

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        alive = self._alive.get(sequence_id)
        if alive is None:
            return
        check_text_ids(self._config, text_ids)
        if not (alive.request.is_growing and alive.is_paused):
            raise InvalidRequest("it is not growing, or its last reading has not paused")
        if until is not None and until <= alive.num_tokens:
            raise InvalidRequest(f"{alive.num_tokens} tokens are spoken; a reading until {until} would add none")
        Growing(self._config, alive.request.prompt).read(tuple(text_ids), until=until)  # raises InvalidRequest
        alive.is_paused = False
        self._order(lambda: self._runner.read(sequence_id, text_ids, until=until))

    def abort(self, sequence_id: int) -> None:
        if self._alive.pop(sequence_id, None) is not None:
            self._order(lambda: self._abort(sequence_id))

    def is_runnable(self, sequence_id: int) -> bool:
        return False

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        """It holds none back."""

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        return ()

    def launch(self, sequence_ids: Sequence[int]) -> list[int]:
        raise AssertionError("nobody steps an LLM that schedules itself")

    def poll(self) -> list[SequenceOutput]:
        with self._changed:
            if self._death is not None:
                raise LlmDied(self._death)
            made, self._made = self._made, []
        self.num_fetched += len(made)
        for output in made:
            alive = self._alive.get(output.sequence_id)
            if alive is not None:
                alive.is_paused = output.is_paused
                alive.num_tokens += len(output.tokens)
                if output.is_final or output.error is not None:
                    del self._alive[output.sequence_id]
        return made

    @property
    def is_busy(self) -> bool:
        with self._changed:
            return self._is_busy

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._death is not None or not self._is_busy)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for sequence_id in self._running:  # the runner may be another's next
            self._runner.abort(sequence_id)
        self._running.clear()

    @property
    def _is_busy(self) -> bool:
        return bool(self._orders or self._made) or not self._is_idle

    def _order(self, order: Callable[[], None]) -> None:
        with self._changed:
            self._orders.append(order)
            self._changed.notify_all()

    @property
    def is_at_work(self) -> bool:
        """Whether it would make more if it were let."""
        with self._changed:
            return bool(self._orders) or not self._is_idle

    # --- the thread's side ------------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """It takes no step meanwhile, but for one that it is in the middle of."""
        self._set_held(is_held=True)
        try:
            yield
        finally:
            self._set_held(is_held=False)

    def _set_held(self, *, is_held: bool) -> None:
        with self._changed:
            self._is_held = is_held
            self._changed.notify_all()

    def _run(self) -> None:
        while self._has_work():
            self.advance()

    def _has_work(self) -> bool:
        """Sleeps until there is some. False: it was closed, or has died."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._is_closed
                    or self._death is not None
                    or not (self._is_held or (self._is_idle and not self._orders))
                )
            )
            return not self._is_closed and self._death is None

    def advance(self) -> None:
        """Carry out the orders, then take one step of everything that can go on."""
        with self._changed:
            orders, self._orders = self._orders, []
            self._is_idle = False
        try:
            for order in orders:
                order()
            if self.dies_of is not None:
                raise self.dies_of
            made = self._step()
        except Exception as error:  # noqa: BLE001 - told to whoever polls
            made = []
            self._death = str(error)
        with self._changed:
            was_empty = not self._made
            self._made += made
            self._is_idle = not self._runnable()
            self._changed.notify_all()
        if self._death is not None or (made and was_empty):
            self._waker.wake()

    def _begin(self, request: SequenceRequest) -> None:
        self._runner.add(request)
        self._running[request.sequence_id] = _Running()

    def _abort(self, sequence_id: int) -> None:
        self._runner.abort(sequence_id)
        self._running.pop(sequence_id, None)

    def _runnable(self) -> list[int]:
        return [sequence_id for sequence_id in self._running if self._runner.is_runnable(sequence_id)]

    def _step(self) -> list[SequenceOutput]:
        """Outputs that are due: every `stream_interval` tokens, and at the end."""
        runnable = self._runnable()
        if not runnable:
            return []
        self.num_rounds += 1
        due = []
        for output in self._runner.step(runnable):
            running = self._running[output.sequence_id]
            running.tokens += output.tokens
            has_ended = output.is_final or output.error is not None
            if has_ended or output.is_paused or len(running.tokens) >= self.stream_interval:
                due.append(replace(output, tokens=tuple(running.tokens)))
                running.tokens = []
            if has_ended:
                del self._running[output.sequence_id]
        return due


def _check_streaming(alive: _Alive) -> None:
    if not alive.request.is_streaming:
        raise InvalidRequest("its text was complete from the start")
