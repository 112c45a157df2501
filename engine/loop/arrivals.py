"""Voices on their way onto the shelf: one prompt at a time, rendered a step at a time between others' steps."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from voicegate.engine.interface import EngineError, Overloaded
from voicegate.engine.loop.prompting import PassPrompt
from voicegate.engine.loop.stages import ReadyVoice, Stages
from voicegate.engine.loop.token2wav import Token2wav
from voicegate.engine.loop.voice_shelf import VoiceShelf
from voicegate.engine.policy.scheduler import Decision
from voicegate.engine.policy.spare_turns import SpareTurns
from voicegate.engine.token2wav.flow.backend import BlocksExhausted, PromptRendering
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

# Told of a voice that could be spoken with, or why not.
Answer = Callable[[ReadyVoice | EngineError], None]

_NO_MEMORY: Final = "the flow's memory is full of speech just now; try again when less is spoken"


@dataclass(slots=True, eq=False)
class _Arrival:
    voice: Voice
    answer: Answer
    begun: tuple[PassPrompt, PromptRendering[Any]] | None = None


class Arrivals:
    """What goes wrong with one is answered, and touches nobody else."""

    def __init__(self, stages: Stages, token2wav: Token2wav, shelf: VoiceShelf) -> None:
        self._stages = stages
        self._token2wav = token2wav
        self._shelf = shelf
        self._waiting: deque[_Arrival] = deque()  # the first may have begun
        self._turns = SpareTurns()
        self._num_steps_seen = 0

    def add(self, voice: Voice, answer: Answer) -> None:
        self._waiting.append(_Arrival(voice, answer))

    def refuse(self, reason: str, voice: Voice | None = None) -> None:
        """This one, if it is still on its way; None: all of them."""
        for arrival in [each for each in self._waiting if voice is None or each.voice is voice]:
            self._end(arrival, Overloaded(reason))

    def make_way(self) -> bool:
        """Speech needs memory: what has begun gives its own back. False: nothing has."""
        if not self._waiting or self._waiting[0].begun is None:
            return False
        self._end(self._waiting[0], Overloaded(_NO_MEMORY))
        return True

    # --- steps: each says whether it took one -----------------------------------------------------------------

    def step_if_due(self) -> bool:
        """Before speech: it has had its turns, or waits for the batch that a prompt is in."""
        if not self._waiting:
            return False
        begun = self._waiting[0].begun
        is_in_the_way = begun is not None and begun[1].holds_batch and not self._stages.flow.num_free_batches
        return (self._turns.is_due or is_in_the_way) and self._step()

    def step_beside(self, decision: Decision) -> bool:
        """Behind what speech has launched: where that leaves the lane of flow and vocoder alone."""
        num_steps, self._num_steps_seen = self._token2wav.num_steps - self._num_steps_seen, self._token2wav.num_steps
        if not self._waiting:
            return False
        is_flow_taken = decision.flow is not None or decision.holds_flow
        is_taken = is_flow_taken if self._stages.is_concurrent else not decision.is_idle
        self._turns.note_speech(num_steps)
        return not is_taken and self._step()

    def _step(self) -> bool:
        """One Euler step, unless the lane is full, or no batch is free."""
        arrival = self._waiting[0]
        try:
            if arrival.begun is None:
                with self._stages.token2wav_lane.active():
                    arrival.begun = self._shelf.begin(arrival.voice)
            prompt, rendering = arrival.begun
            if not (self._token2wav.takes_step and rendering.takes_step):
                return False
            self._turns.take()
            if self._token2wav.advance_prompt(rendering):
                self._end(arrival, self._shelf.keep(ReadyVoice(arrival.voice, prompt, rendering.result())))
        except EngineError as error:
            self._end(arrival, error)
        except BlocksExhausted:
            self._end(arrival, Overloaded(_NO_MEMORY))
        except Exception:
            log.exception("voice_failed", voice=arrival.voice.name)
            self._end(arrival, EngineError(f"internal error while taking up voice {arrival.voice.name!r}; see the log"))
        return True

    def _end(self, arrival: _Arrival, outcome: ReadyVoice | EngineError) -> None:
        self._waiting.remove(arrival)
        if arrival.begun is not None:
            arrival.begun[1].close()
        arrival.answer(outcome)
