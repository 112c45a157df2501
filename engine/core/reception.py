"""A request becomes an utterance: its way of speaking, its voice, and its way out."""

from collections.abc import Callable
from dataclasses import replace

from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.outlet import Outlet, Sink
from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.core.prompting import instruct_prompt
from voicegate.engine.core.stages import ReadyVoice, Stages
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import SpeakingMode, UtteranceRequest
from voicegate.engine.llm.backend import LlmTraits
from voicegate.engine.text.languages.reader import prepare
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.word_rules import word_rules


def speaking_modes(traits: LlmTraits) -> tuple[SpeakingMode, ...]:
    """Modes that requests may ask for."""
    return tuple(mode for mode in SpeakingMode if traits.takes_streamed_text or mode is not SpeakingMode.BISTREAM)


class Reception:
    def __init__(
        self,
        stages: Stages,
        encoders: Encoders,
        sink: Sink,
        clock: Callable[[], float],
        *,
        max_clause_tokens: int,
    ) -> None:
        self._model = stages.model
        prepare(self._model.languages)
        for language in self._model.languages:
            word_rules(language)
        self._modes = speaking_modes(stages.llm.traits)
        self._max_clause_tokens = max_clause_tokens
        self._tokenizer = stages.tokenizer
        self._encoders = encoders
        self._sink = sink
        self._clock = clock

    def open(self, key: int, request: UtteranceRequest, voice: ReadyVoice, *, seed: int) -> Utterance:
        """Opens an utterance. Requests that the engine's interface promises to refuse were refused before."""
        languages = self._model.languages
        feed = ClauseFeed(
            key,
            self._mode(request.mode),
            self._tokenizer,
            language=request.language or voice.voice.language(languages) or languages[0],
            max_clause_tokens=self._max_clause_tokens,
            pronunciation=Pronunciation(request.dictionaries),
            is_normalized=request.is_normalized,
        )
        if request.instruct is not None and request.instruct.strip():
            prefix = self._model.instruct_prefix
            voice = replace(
                voice, llm_prompt=instruct_prompt(request.instruct, self._tokenizer, instruct_prefix=prefix)
            )
        outlet = Outlet(
            request.utterance_id,
            self._encoders.open(request.audio),
            frame_ms=request.audio.frame_ms,
            sink=self._sink,
            clock=self._clock,
        )
        return Utterance(key, request, voice, feed, outlet, seed=seed, pre_skip_48k=pre_skip_48k(request.audio))

    def _mode(self, asked: SpeakingMode) -> SpeakingMode:
        """Where the client leaves it open, the model's own if the LLM's backend can do it."""
        if asked is not SpeakingMode.AUTO:
            return asked
        own = SpeakingMode(self._model.default_mode)
        return own if own in self._modes else SpeakingMode.CLAUSE
