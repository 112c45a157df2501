"""Voices on their way: new ones onto the shelf, known ones back into the flow's memory when an utterance needs them.

One prompt at a time, rendered a step at a time between others' steps.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from voicegate.engine.core import constants
from voicegate.engine.core.policy import Decision
from voicegate.engine.core.prompting import PassPrompt
from voicegate.engine.core.stages import ReadyVoice, Stages, VoicePrompt
from voicegate.engine.core.token2wav import MAX_LAUNCHES_IN_FLIGHT, Token2wav
from voicegate.engine.core.voice_shelf import VoiceShelf
from voicegate.engine.flow.backend import BlocksExhausted, PreparedPrompt, PromptRendering
from voicegate.engine.interface import EngineError, Overloaded
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

# Told of a voice that could be spoken with, or why not.
Answer = Callable[[ReadyVoice | EngineError], None]

_NO_MEMORY: Final = "the flow's memory is full of speech just now; try again when less is spoken"
_ALL_IN_USE: Final = (
    "as many voices are spoken with just now as this running engine has room for at once; try again when fewer are"
)


@dataclass(slots=True, eq=False)
class _Arrival:
    voice: Voice
    answer: Answer | None  # None: a known one, whose place is `prompt`
    prompt: VoicePrompt | None = None
    begun: tuple[PassPrompt, PromptRendering[Any]] | None = None


class Arrivals:
    """Adds voices. A failure of one is answered, and touches no other."""

    def __init__(
        self,
        stages: Stages,
        token2wav: Token2wav,
        shelf: VoiceShelf,
        on_lost: Callable[[VoicePrompt, str], object],
    ) -> None:
        """`on_lost` is told of a known one that cannot be rendered again, and why."""
        self._stages = stages
        self._token2wav = token2wav
        self._shelf = shelf
        self._on_lost = on_lost
        self._waiting: deque[_Arrival] = deque()  # the first may have begun
        self._num_steps_of_speech = 0  # Euler steps, since the last of a prompt's
        self._num_steps_seen = 0  # of speech
        self.num_steps = 0  # of prompts

    def add(self, voice: Voice, answer: Answer) -> None:
        self._waiting.append(_Arrival(voice, answer))

    def bring_back(self, ready: ReadyVoice) -> None:
        """Before new ones that have not begun. It stays until it is there, cannot be rendered, or `let_go`."""
        if any(each.prompt is ready.flow_prompt for each in self._waiting):
            return
        place = sum(each.answer is None or each.begun is not None for each in self._waiting)
        self._waiting.insert(place, _Arrival(ready.voice, None, ready.flow_prompt))

    def let_go(self, in_use: Iterable[ReadyVoice]) -> None:
        """Drops known ones that have not begun and that no utterance needs any more: others would wait for them."""
        if self._waiting:
            awaited = {id(voice.flow_prompt) for voice in in_use}
            for arrival in list(self._waiting):
                if arrival.begun is None and arrival.prompt is not None and id(arrival.prompt) not in awaited:
                    self._waiting.remove(arrival)

    def refuse(self, reason: str, voice: Voice | None = None) -> None:
        """This new one, if it is still on its way; None: all of them."""
        for arrival in [each for each in self._waiting if each.answer and (voice is None or each.voice is voice)]:
            self._end(arrival, Overloaded(reason))

    def make_way(self) -> bool:
        """Speech needs memory: what has begun gives its own back. False: nothing has."""
        if not self._waiting or self._waiting[0].begun is None:
            return False
        self._postpone(self._waiting[0])
        return True

    # --- steps ------------------------------------------------------------------------------------------------

    def step_if_due(self) -> None:
        """Before speech, if that has had its turns, or waits for the batch that a prompt is in."""
        if not self._waiting:
            return
        begun = self._waiting[0].begun
        is_in_the_way = begun is not None and begun[1].holds_batch and not self._stages.flow.num_free_batches
        is_new = self._waiting[0].answer is not None
        num_before = constants.STEPS_BEFORE_NEW_VOICE if is_new else constants.STEPS_BEFORE_AWAITED_VOICE
        if self._num_steps_of_speech >= num_before or is_in_the_way:
            self.num_steps += self._takes_step()

    def step_beside(self, decision: Decision) -> None:
        """After what speech has launched, if that leaves the lane of flow and vocoder alone."""
        num_steps, self._num_steps_seen = self._token2wav.num_steps - self._num_steps_seen, self._token2wav.num_steps
        if not self._waiting:
            return
        is_flow_taken = decision.has_flow_step or decision.holds_flow
        is_taken = is_flow_taken if self._stages.is_concurrent else not decision.is_idle
        self._num_steps_of_speech += num_steps
        if not is_taken:
            self.num_steps += self._takes_step()

    def _takes_step(self) -> bool:
        """One Euler step, unless the lane is full, no batch is free, or a known one finds no room yet."""
        arrival = self._waiting[0]
        try:
            if arrival.begun is None:
                with self._stages.token2wav_lane.active():
                    arrival.begun = self._shelf.begin(arrival.voice)
                if arrival.begun is None:
                    self.refuse(_ALL_IN_USE)  # nor is there room for new ones after it
                    return arrival.answer is not None
            prompt, rendering = arrival.begun
            if self._token2wav.num_solving >= MAX_LAUNCHES_IN_FLIGHT or not rendering.takes_step:
                return False
            self._num_steps_of_speech = 0
            if self._token2wav.advance_prompt(rendering):
                self._take_up(arrival, prompt, rendering.result())
        except EngineError as error:
            self._end(arrival, error)
        except BlocksExhausted:
            return self._postpone(arrival)
        except Exception:
            log.exception("voice_failed", voice=arrival.voice.name)
            self._end(arrival, EngineError(f"internal error while taking up voice {arrival.voice.name!r}; see the log"))
        return True

    def _take_up(self, arrival: _Arrival, prompt: PassPrompt, rendered: PreparedPrompt) -> None:
        if arrival.prompt is None:
            self._end(arrival, self._shelf.keep(ReadyVoice(arrival.voice, prompt, VoicePrompt.of(rendered))))
            return
        self._shelf.take_back(arrival.prompt, rendered)
        self._waiting.remove(arrival)

    def _postpone(self, arrival: _Arrival) -> bool:
        """Gives way to speech: a new one is refused, since its sender may try again; a known one waits.

        Returns whether it is gone.
        """
        if arrival.answer is not None:
            self._end(arrival, Overloaded(_NO_MEMORY))
            return True
        if arrival.begun is not None:
            arrival.begun[1].close()
            arrival.begun = None
        self._num_steps_of_speech = 0  # else speech that lacks memory would find it in its way again at once
        return False

    def _end(self, arrival: _Arrival, outcome: ReadyVoice | EngineError) -> None:
        self._waiting.remove(arrival)
        if arrival.begun is not None:
            arrival.begun[1].close()
        if arrival.answer is not None:
            arrival.answer(outcome)
        elif arrival.prompt is not None and isinstance(outcome, EngineError):
            self._on_lost(arrival.prompt, str(outcome))
