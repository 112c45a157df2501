"""Room in the models: which clause is given it, when, and which gives it back where all of it is taken."""

import math
from collections.abc import Callable, Sequence

import structlog

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.arrivals import Arrivals
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.guard import Guard
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.policy import Rank, urgency
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.speaking import Speaking
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.core.voice_shelf import VoiceShelf

log = structlog.get_logger()

_TOO_LONG = "a sentence of this utterance needs more memory than the server has; shorter ones need less"


class Room:
    def __init__(
        self,
        config: EngineConfig,
        pipeline: Pipeline,
        roster: Roster,
        speaking: Speaking,
        arrivals: Arrivals,
        voices: VoiceShelf,
        guarding: Callable[[Sequence[Utterance]], Guard],
        fail: Callable[[Utterance, str], None],
    ) -> None:
        """`fail` ends an utterance, with a message for its client."""
        self._config = config
        self._pipeline = pipeline
        self._roster = roster
        self._speaking = speaking
        self._arrivals = arrivals
        self._voices = voices
        self._guarding = guarding
        self._fail = fail
        self._num_releases = 0  # of the pipeline, when room was last given out to all that wait
        self._refused: Clause | None = None  # the first for which there was none then: others wait until it has some

    @property
    def num_welcome(self) -> int:
        """New requests that would find some, or a place among those that wait for it."""
        roster = self._roster
        # None that waits for a voice alone has been refused room.
        num_free = 0 if roster.is_room_short else self._config.max_active_clauses - len(self._pipeline.active)
        # New requests with text of which nothing is known yet may come to wait, too.
        unread = [key for key, each in roster.readers.items() if not each.has_begun and key not in roster.waiting]
        return max(num_free + self._config.max_waiting_utterances - len(roster.waiting) - len(unread), 0)

    def give_out(self, now_s: float) -> None:
        """Clauses are begun, the most urgent first, until there is no room.

        While some wait for room, a smaller new request waits with them: else a large clause might wait for ever. Only a
        listener who is about to have an underrun does not.
        """
        roster, num_releases = self._roster, self._pipeline.num_releases
        # Where no clause is active, no end of one would make room.
        is_open = num_releases > self._num_releases or not (roster.is_room_short and self._pipeline.active)
        if self._refused is not None:
            waiting = roster.waiting.get(self._refused.key)
            is_open |= waiting is None or waiting.clause is not self._refused
        if is_open:
            self._num_releases, self._refused = num_releases, None
        num_voiceless = num_started = 0
        awaited_since_s = self._awaited_since_s() if roster.waiting else math.inf
        waits = [each for each in roster.waiting.values() if is_open or each.is_pressing]
        for _, utterance, clause, _ in sorted(waits, key=lambda each: urgency(each.view, now_s, roster.limits)):
            if utterance.voice.flow_prompt.rendered is None:  # it is in no other's way, and no other's end helps it
                self._arrivals.bring_back(utterance.voice)
                num_voiceless += not utterance.request.is_background
                continue
            if self._is_held_back(utterance, awaited_since_s):
                num_voiceless += not utterance.request.is_background
                continue
            with self._guarding((utterance,)):
                if not self._pipeline.can_start(clause):
                    self._refused = clause if is_open else self._refused
                    break
                roster.changed.add(utterance.key)
                are_many = roster.are_many(num_more=num_started)
                num_started += 1
                self._speaking.start(utterance, clause, are_many=are_many)
        roster.look(now_s)
        roster.note_room(num_voiceless=num_voiceless)

    @property
    def voices_in_use(self) -> list[ReadyVoice]:
        """Voices of utterances that have something to say and may; the others wait for theirs again, where it goes.

        Asked for at every step while a voice waits for room.
        """
        awaited_since_s = self._awaited_since_s()
        return [each.voice for each in self._roster if each.clauses and not self._is_held_back(each, awaited_since_s)]

    def _is_held_back(self, utterance: Utterance, awaited_since_s: float) -> bool:
        """Whether it does not begin, because its voice is to go for one that others have waited for for longer."""
        is_later = not utterance.has_begun and utterance.waiting_since_s > awaited_since_s
        return is_later and self._voices.is_leaving(utterance.voice)

    def _awaited_since_s(self) -> float:
        """Since when some have waited for the room of a voice that is leaving; infinite: none do."""
        if not self._voices.is_any_leaving:
            return math.inf
        awaiting = (each for each in self._roster if each.clauses and each.voice.flow_prompt.rendered is None)
        return min((each.waiting_since_s for each in awaiting), default=math.inf)

    def make(self, now_s: float) -> None:
        """All of the flow's memory is held by clauses that need more of it to go on: the least urgent makes way."""
        if self._arrivals.make_way():  # before any of them a voice that is being taken up: its sender may try again
            return
        roster = self._roster
        roster.look(now_s)

        def turn(utterance: Utterance) -> tuple[bool, bool, Rank]:
            """The most urgent first; after all those that wait for text, and then those for which no listener waits."""
            rank = roster.rank(utterance, now_s, begun_s=utterance.clauses[0].begun_s)
            return utterance.request.is_background, utterance.key not in roster.due, rank

        fronts = [(each, each.clauses[0].rendering) for each in roster if each.clauses]
        holders = sorted([each for each, front in fronts if front is not None and front.flow.num_own_blocks], key=turn)
        if len(holders) > 1:
            last = holders[-1]
            log.warning("clause_set_aside", utterance=last.utterance_id, num_active=len(self._pipeline.active))
            roster.changed.add(last.key)
            with self._guarding((last,)):
                self._speaking.set_aside(last)
            return
        # A single holder has all there is; without holders there is none.
        for utterance in holders or [roster.utterances[key] for key in (*roster.due, *roster.background)]:
            log.error("flow_memory_exhausted", utterance=utterance.utterance_id)
            self._fail(utterance, _TOO_LONG)
