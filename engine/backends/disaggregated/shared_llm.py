"""One LLM for several cores: each has a share of its slots, and what all of them ask for in a round is one step.

No torch, and no device: what an LLM makes gets to the token2wavs through the host in any case.
"""

from collections.abc import Mapping, Sequence

import structlog

from voicegate.engine.core.tally import Tally
from voicegate.engine.device.watcher import Waker
from voicegate.engine.interface import INTERNAL_FAILURE
from voicegate.engine.llm.backend import LlmBackend, LlmTraits, NoFreeSlot, SequenceOutput, SequenceRequest

log = structlog.get_logger()


class LlmShare:
    """The LlmBackend of one core. Its steps begin with those of the others (`SharedLlm.launch`)."""

    counters: Mapping[str, float] = {}  # they are the whole LLM's: SharedLlm has them

    def __init__(self, shared: "SharedLlm", llm: LlmBackend, *, num_slots: int) -> None:
        self.asked: list[int] = []  # sequences to step, this round
        self._shared = shared
        self._llm = llm
        self._num_slots = num_slots
        self._live: set[int] = set()
        self._outputs: list[SequenceOutput] = []

    @property
    def traits(self) -> LlmTraits:
        return self._llm.traits

    def set_waker(self, waker: Waker) -> None:
        self._llm.set_waker(waker)

    @property
    def num_free_slots(self) -> int:
        return self._num_slots - len(self._live)

    def add(self, request: SequenceRequest) -> None:
        if not self.num_free_slots:
            raise NoFreeSlot(f"all {self._num_slots} slots of this share are taken")
        self._llm.add(request)
        self._live.add(request.sequence_id)
        self._shared.owners[request.sequence_id] = self

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        self._llm.push_text(sequence_id, text_ids)

    def end_text(self, sequence_id: int) -> None:
        self._llm.end_text(sequence_id)

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        self._llm.read(sequence_id, text_ids, until=until)

    def abort(self, sequence_id: int) -> None:
        self._forget(sequence_id)
        if sequence_id in self.asked:
            self.asked.remove(sequence_id)
        self._llm.abort(sequence_id)

    @property
    def takes_step(self) -> bool:
        return not self.asked and self._llm.takes_step

    def is_runnable(self, sequence_id: int) -> bool:
        return self._llm.is_runnable(sequence_id)

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        self._llm.tell_after(sequence_id, num_tokens)

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        """Behind those that were collected for it: nothing, while `poll` has some of these."""
        if any(output.sequence_id == sequence_id for output in self._outputs):
            return ()
        return self._llm.take_held(sequence_id)

    def launch(self, sequence_ids: Sequence[int]) -> list[int]:
        """With the round's step: what goes wrong there is in the sequences' outputs."""
        is_runnable = self._llm.is_runnable
        left = [sequence_id for sequence_id in sequence_ids if not is_runnable(sequence_id)]
        self.asked.extend([each for each in sequence_ids if each not in left] if left else sequence_ids)
        return left

    def deliver(self, output: SequenceOutput) -> None:
        self._outputs.append(output)
        if output.is_final or output.error is not None:
            self._forget(output.sequence_id)

    def poll(self) -> list[SequenceOutput]:
        """Returns outputs that were collected for it."""
        outputs, self._outputs = self._outputs, []
        return outputs

    @property
    def num_fetched(self) -> int:
        """Number fetched from the whole LLM."""
        return self._llm.num_fetched

    @property
    def is_busy(self) -> bool:
        return bool(self.asked or self._outputs) or self._llm.is_busy

    def wait(self) -> None:
        if not self._outputs:
            self._llm.wait()
            self._shared.collect()

    def close(self) -> None:
        """The loader of the LLM ends it."""

    def _forget(self, sequence_id: int) -> None:
        self._live.discard(sequence_id)
        self._shared.owners.pop(sequence_id, None)


class SharedLlm:
    """A round: `collect`, every core's step, `launch`."""

    def __init__(self, llm: LlmBackend, *, num_shares: int) -> None:
        """An LLM that nobody uses yet."""
        self.tally = Tally()
        self.owners: dict[int, LlmShare] = {}  # of the sequences that live
        self._llm = llm
        num_slots = llm.num_free_slots // num_shares
        self.shares = tuple(LlmShare(self, llm, num_slots=num_slots) for _ in range(num_shares))

    @property
    def counters(self) -> Mapping[str, float]:
        return self._llm.counters

    @property
    def pulse(self) -> int | None:
        """Changes with all that it gets done; None while it has nothing under way."""
        return self._llm.num_fetched if self._llm.is_busy else None

    @property
    def num_fetched(self) -> int:
        return self._llm.num_fetched

    def collect(self) -> None:
        """Hands the LLM's outputs to their owners. Raises LlmDied."""
        for output in self._llm.poll():
            owner = self.owners.get(output.sequence_id)
            if owner is not None:  # else it was aborted
                owner.deliver(output)

    def launch(self) -> None:
        """Launches the shares' requests together. If that fails its cause is not known: all of it ends."""
        asked: list[int] = []
        for share in self.shares:
            asked += share.asked
            share.asked = []
        if not asked:
            return
        self.tally.note_batch("llm", len(asked))
        try:
            self._llm.launch(asked)
        except Exception:
            log.exception("shared_step_failed")
            for sequence_id in asked:
                self._llm.abort(sequence_id)
                self.owners[sequence_id].deliver(SequenceOutput(sequence_id, error=INTERNAL_FAILURE))
