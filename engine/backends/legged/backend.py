"""A package that schedules itself behind the LLM's seam, in threads or a process of its own. See docs/adr/0015.

TensorRT-LLM and vLLM are two: each has its own `Library`, and all else is alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from voicegate.engine.backends.legged.config import LeggedConfig
from voicegate.engine.backends.legged.executor import LegExecutor, Library
from voicegate.engine.backends.legged.legs import LeggedSequence, LegNews
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.llm.backend import (
    InvalidRequest,
    LlmTraits,
    NoFreeSlot,
    SequenceOutput,
    SequenceRequest,
)
from voicegate.engine.llm.bistream import Bistream
from voicegate.engine.llm.feed import check_text_ids
from voicegate.engine.llm.sequence import growing, make_sequence, streaming
from voicegate.engine.model.config import LlmConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

# Steps and their rows are its executor's own affair.
_COUNTERS: Final = ("llm_prompt_tokens", "llm_cached_tokens", "llm_strays")


@dataclass(slots=True, eq=False)
class _Alive:
    legged: LeggedSequence
    leg_id: int | None = None  # the one that is running


class LeggedLlm:
    """See LlmBackend. All that a sequence is lives on the caller's thread; beside it run requests alone."""

    # Its kernels' results depend on the batch, and its text is taken whole.
    traits = LlmTraits(takes_streamed_text=False, is_reproducible=False)
    takes_step = False

    def __init__(
        self, config: LlmConfig, vocabulary: MergedVocabulary, library: Library, settings: LeggedConfig
    ) -> None:
        """Takes the library over, and shuts it down in the end."""
        # All from the start: who reads them in another thread must not see their number change.
        self.counters = dict.fromkeys(_COUNTERS, 0.0)
        self.num_fetched = 0  # pieces of news, and ends without any
        self._config = config
        self._vocabulary = vocabulary
        self._settings = settings
        self._waker: Waker = NO_WAKER
        self._alive: dict[int, _Alive] = {}
        self._by_leg: dict[int, _Alive] = {}
        self._leg_ids = count()
        self._ready: list[SequenceOutput] = []  # of what ended without the executor
        self._name = library.name
        self._executor = LegExecutor(
            library,
            first_token_timeout_s=settings.first_token_timeout_s,
            token_timeout_s=settings.token_timeout_s,
        )

    def set_waker(self, waker: Waker) -> None:
        self._waker = waker
        self._executor.set_waker(waker)

    # --- sequences --------------------------------------------------------------------------------------------

    @property
    def num_free_slots(self) -> int:
        return self._settings.num_slots - len(self._alive)

    def add(self, request: SequenceRequest) -> None:
        if request.sequence_id in self._alive:
            raise InvalidRequest(f"sequence {request.sequence_id} is alive already")
        sequence = make_sequence(self._config, request)
        if isinstance(sequence, Bistream):
            raise InvalidRequest(f"{self._name} takes no streamed text")
        self._check_merged((*request.prompt.text_ids, *request.text_ids))
        if not self.num_free_slots:
            raise NoFreeSlot(f"all {self._settings.num_slots} LLM slots are taken")
        legged = LeggedSequence(
            request, sequence, self._config, self._vocabulary, max_positions=self._settings.max_positions
        )
        alive = self._alive[request.sequence_id] = _Alive(legged)
        self._go_on(alive)
        self._wake_if_ready()

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        self.end_text(sequence_id)  # nobody's text is streamed here

    def end_text(self, sequence_id: int) -> None:
        alive = self._alive.get(sequence_id)
        if alive is not None:
            streaming(sequence_id, alive.legged.sequence)  # raises

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        alive = self._alive.get(sequence_id)
        if alive is None:
            return
        check_text_ids(self._config, text_ids)
        self._check_merged(text_ids)
        sequence = growing(sequence_id, alive.legged.sequence)
        if alive.leg_id is not None:
            raise InvalidRequest("a growing sequence is read again when its reading has paused, not before")
        sequence.read(tuple(text_ids), until=until)
        alive.legged.lay_out()
        self._go_on(alive)
        self._wake_if_ready()

    def abort(self, sequence_id: int) -> None:
        alive = self._alive.pop(sequence_id, None)
        if alive is not None:
            self._end_leg(alive)

    def _check_merged(self, text_ids: Sequence[int]) -> None:
        """Raises InvalidRequest for text rows that no tokenizer uses: their ids are speech's in the checkpoint."""
        if any(id_ >= self._vocabulary.first_speech_id for id_ in text_ids):
            raise InvalidRequest(f"the merged checkpoint has {self._vocabulary.first_speech_id} text ids")

    def _wake_if_ready(self) -> None:
        if self._ready:
            self._waker.wake()

    def _go_on(self, alive: _Alive) -> None:
        """Begin what is to be asked for now; where nothing is, what became of it is ready."""
        leg = alive.legged.next_leg()
        if leg is not None:
            alive.leg_id = next(self._leg_ids)
            self._by_leg[alive.leg_id] = alive
            self._executor.submit(alive.leg_id, leg)
            self.counters["llm_prompt_tokens"] += len(leg.prompt_ids)
            return
        output = alive.legged.output(is_leg_over=False)
        if output is not None:
            self._ready.append(output)
        if alive.legged.has_ended:
            del self._alive[alive.legged.sequence_id]

    def _end_leg(self, alive: _Alive) -> None:
        if alive.leg_id is not None:
            del self._by_leg[alive.leg_id]
            self._executor.abort(alive.leg_id)
            alive.leg_id = None

    # --- steps ------------------------------------------------------------------------------------------------

    def is_runnable(self, sequence_id: int) -> bool:
        return False

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        """It holds none back."""

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        return ()

    def launch(self, sequence_ids: Sequence[int]) -> list[int]:
        raise AssertionError("nobody steps an LLM that schedules itself")

    def poll(self) -> list[SequenceOutput]:
        made = self._executor.fetch()
        outputs, self._ready = self._ready, []
        self.num_fetched += len(made) + len(outputs)
        for news in made:
            alive = self._by_leg.get(news.leg_id)
            if alive is not None:
                outputs += self._take(alive, news)
        outputs += self._ready
        self._ready = []
        return outputs

    def _take(self, alive: _Alive, news: LegNews) -> list[SequenceOutput]:
        legged = alive.legged
        num_strays = legged.num_strays
        legged.take(news)
        if news.is_last:
            del self._by_leg[news.leg_id]
            alive.leg_id = None
        elif legged.is_spent:
            self._end_leg(alive)
        output = legged.output(is_leg_over=alive.leg_id is None)
        self.counters["llm_strays"] += legged.num_strays - num_strays
        self.counters["llm_cached_tokens"] += news.num_cached_tokens
        if legged.has_ended:
            self._end_leg(alive)
            del self._alive[legged.sequence_id]
        elif news.is_last:
            self._go_on(alive)
        return [] if output is None else [output]

    @property
    def is_busy(self) -> bool:
        return bool(self._ready or self._by_leg)

    def wait(self) -> None:
        if not self._ready and self._by_leg:
            self._executor.wait()

    def close(self) -> None:
        self._executor.close()
