"""Room in the models: who is given it, and when. The order is the roster's; starts nothing itself."""

from collections.abc import Callable, Iterator

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.roster import Attempt, Roster
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.core.utterance import Utterance


class Admission:
    def __init__(
        self,
        config: EngineConfig,
        pipeline: Pipeline,
        roster: Roster,
        attempt: Attempt,
        bring_back: Callable[[ReadyVoice], object],
    ) -> None:
        """`bring_back`: a voice whose prompt has to be rendered again."""
        self._config = config
        self._bring_back = bring_back
        self._pipeline = pipeline
        self._roster = roster
        self._attempt = attempt
        self._num_releases = 0  # of the pipeline, when room was last given out to whoever waits
        self._refused: Clause | None = None  # the first for which there was none then: others wait behind it

    def starts(self, now_s: float) -> Iterator[tuple[Utterance, Clause]]:
        """Clauses to begin, each before the next is asked for: the most urgent first, until there is no room.

        While some wait for room, a smaller newcomer waits with them: else a large clause might wait for ever. Only a
        listener who is about to run dry does not.
        """
        num_releases = self._pipeline.num_releases
        # Where no clause is active, no end of one would make room.
        is_open = num_releases > self._num_releases or not (self._roster.is_room_short and self._pipeline.num_active)
        is_open |= self._refused is not None and not self._roster.is_waiting(self._refused)
        if is_open:
            self._num_releases, self._refused = num_releases, None
        num_voiceless = 0
        for _, utterance, clause in self._roster.waiting(now_s, only_pressing=not is_open):
            if utterance.voice.flow_prompt.rendered is None:  # it is in nobody's way, and nobody's end helps it
                self._bring_back(utterance.voice)
                num_voiceless += 1
                continue
            has_room = self._attempt(utterance, self._pipeline.can_start, clause)
            if has_room is False:
                if is_open:
                    self._refused = clause
                break
            if has_room:
                yield utterance, clause
        self._roster.note_room(now_s, num_voiceless=num_voiceless)

    @property
    def num_welcome(self) -> int:
        """Newcomers that would find room, or a place among those who wait for it."""
        num_waiting = self._roster.num_waiting
        # Of who waits for a voice alone none has been refused room.
        num_free = 0 if self._roster.is_room_short else self._config.max_active_clauses - self._pipeline.num_active
        return max(num_free + self._config.max_waiting_utterances - num_waiting - self._roster.num_unread, 0)
