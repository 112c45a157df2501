"""A pipecat TTS service over voicegate's own protocol: a turn of the LLM is one context of the server.

Tokens go to the server as the LLM writes them. Words come back with their times, and pipecat puts each into the
conversation when it is heard: after an interruption the conversation holds what the listener heard, and no more.
"""

import asyncio
import unicodedata
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    StartFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.services.settings import NOT_GIVEN, NotGiven, TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language

from voicegate.clients.python.client import OpenOptions, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.decode import PcmDecoder
from voicegate.clients.python.errors import GateError, InvalidInput
from voicegate.protocol.messages import Format

DEFAULT_URL = "ws://127.0.0.1:8080"
# Pipecat forgets a turn whose audio pauses for this long, and drops what comes later. The server ends each context by
# itself, within a day at most (`--context-life-s`), and a connection that is lost for good ends it here.
_LONGEST_PAUSE_S: Final = 86_400.0


@dataclass
class VoicegateTTSSettings(TTSSettings):
    """`voice` and `language` (pipecat's), `speed` (0.5 to 2), `instruct` (how to speak, in words). None: the server's.

    A change is heard from the next turn on.
    """

    speed: float | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    instruct: str | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)


class _Playout:
    """One turn's audio, played as it comes: it pauses where all is played and the LLM, say, has not gone on."""

    def __init__(self) -> None:
        self.paused_s = 0.0  # in all, before the audio that was noted last
        self._start_s: float | None = None  # of the event loop's clock
        self._audio_s = 0.0

    def note(self, audio_s: float) -> None:
        """So much has come."""
        now_s = asyncio.get_running_loop().time()
        if self._start_s is None and audio_s:
            self._start_s = now_s
        if self._start_s is not None:
            self.paused_s = max(self.paused_s, now_s - self._start_s - self._audio_s)
        self._audio_s += audio_s


class VoicegateTTSService(TTSService):
    """Give it to a pipeline in the place of any other TTS service."""

    Settings = VoicegateTTSSettings
    _settings: VoicegateTTSSettings

    def __init__(
        self,
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        ca_file: Path | None = None,
        settings: VoicegateTTSSettings | None = None,
        text_aggregation_mode: TextAggregationMode = TextAggregationMode.TOKEN,
        **kwargs: Any,
    ) -> None:
        """`api_key` None: VOICEGATE_API_KEY of the environment."""
        chosen = VoicegateTTSSettings(model=None, voice=None, language=None, speed=None, instruct=None)
        if settings is not None:
            chosen.apply_update(settings)
        super().__init__(
            text_aggregation_mode=text_aggregation_mode,
            push_text_frames=False,  # words are pushed with their times, when they are heard
            stop_frame_timeout_s=_LONGEST_PAUSE_S,
            settings=chosen,
            **kwargs,
        )
        self._gate = connect(url, api_key=api_key, ca_file=ca_file)
        self._contexts: dict[str, Context] = {}  # by pipecat's ids
        # Pipecat's id of a turn that could not be opened. Each of its tokens would fail again, and wait for that.
        self._refused_id: str | None = None

    def can_generate_metrics(self) -> bool:
        """Counts the time to the first byte, and characters."""
        return True

    def language_to_service_language(self, language: Language) -> str | None:
        """The server takes any tag, with a region or without."""
        return str(language)

    # --- the connection -----------------------------------------------------------------------------------

    async def start(self, frame: StartFrame) -> None:
        """Connects, so that the first turn need not; the client connects again by itself."""
        await super().start(frame)
        try:
            await self._gate
        except GateError as error:
            await self._call_event_handler("on_connection_error", str(error))
            await self.push_error(f"voicegate: {error}", exception=error)
            return
        await self._call_event_handler("on_connected")

    async def stop(self, frame: EndFrame) -> None:
        """Ends what runs, once all that was written is spoken: pipecat waits for the audio of each turn."""
        for context in list(self._contexts.values()):
            await self._carefully(context.end())
        await super().stop(frame)
        await self._close()

    async def cancel(self, frame: CancelFrame) -> None:
        """Ends what runs, at once."""
        await super().cancel(frame)
        await self._close()

    async def _close(self) -> None:
        for context_id in list(self._contexts):
            self._abandon(context_id)  # else each would tell that its connection is lost
        was_connected = self._gate.is_connected
        await self._gate.close()
        if was_connected:
            await self._call_event_handler("on_disconnected")

    # --- a turn -------------------------------------------------------------------------------------------

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Gives `text` to the turn's context, which it opens with the first; audio comes by a task of its own."""
        if context_id == self._refused_id:
            return
        context = self._contexts.get(context_id)
        try:
            if context is None:
                await self.create_audio_context(context_id)
                await self.start_ttfb_metrics()
                yield TTSStartedFrame(context_id=context_id)
                self._refused_id = context_id
                context = await self._open(context_id)
                self._refused_id = None
            await context.say(text)
            await self.start_tts_usage_metrics(text)
        except GateError as error:
            yield ErrorFrame(error=f"voicegate: {error}")
            if isinstance(error, InvalidInput) and context is not None:
                return  # nothing of this piece was sent, and the context goes on without it
            yield TTSStoppedFrame(context_id=context_id)
            await self._forget(context_id)
            return
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """Has the text so far spoken without waiting for more."""
        if (context := self._contexts.get(context_id or "")) is not None:
            await self._carefully(context.flush())

    async def on_turn_context_completed(self) -> None:
        """The LLM has written all of its turn."""
        context = self._contexts.get(self._turn_context_id or "")
        await super().on_turn_context_completed()
        if context is not None:
            await self._carefully(context.end())

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Barge-in: the server drops the rest."""
        self._abandon(context_id)

    def _abandon(self, context_id: str) -> None:
        if (context := self._contexts.pop(context_id, None)) is not None:
            context.abandon()

    async def _open(self, context_id: str) -> Context:
        """Raises GateError."""
        gate = await self._gate  # where there was no server at the start
        context = await gate.open(**self._options())
        self._contexts[context_id] = context
        self.create_task(self._receive(context_id, context), name=f"voicegate {context_id}")
        return context

    def _options(self) -> OpenOptions:
        options = OpenOptions(format=Format(codec="pcm_s16le"))
        chosen = self._settings
        if isinstance(chosen.voice, str):
            options["voice"] = chosen.voice
        if isinstance(chosen.language, str):
            options["language"] = str(chosen.language)
        if isinstance(chosen.speed, (int, float)):
            options["speed"] = chosen.speed
        if isinstance(chosen.instruct, str):
            options["instruct"] = chosen.instruct
        return options

    async def _receive(self, context_id: str, context: Context) -> None:
        """Audio and words of one turn, in the order in which they are heard."""
        decoder = PcmDecoder(context.opened)
        num_words = 0
        playout = _Playout()
        try:
            async for audio in context:
                samples = decoder.decode(audio)
                playout.note(len(samples) / (2 * decoder.rate_hz))
                num_words += await self._tell_words(context_id, context, num_words, playout.paused_s)
                if samples:
                    frame = TTSAudioRawFrame(samples, decoder.rate_hz, 1, context_id=context_id)
                    await self.append_to_audio_context(context_id, frame)
        except GateError as error:
            await self.push_error(f"voicegate: {error}", exception=error)
        if self._contexts.get(context_id) is context:  # else it was interrupted, and no task waits for its end
            await self._tell_words(context_id, context, num_words, playout.paused_s)
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
            await self._forget(context_id)

    async def _tell_words(self, context_id: str, context: Context, num_told: int, paused_s: float) -> int:
        """Returns how many are new. Pipecat puts blanks between words, and has the text for what is not said."""
        new = context.alignments[num_told:]
        for item in new:
            word = (item.text, item.start_ms / 1000 + paused_s)
            await self.add_word_timestamps([word], context_id, includes_inter_frame_spaces=_is_wide(item.text))
        return len(new)

    async def _forget(self, context_id: str) -> None:
        self._contexts.pop(context_id, None)
        if self.audio_context_available(context_id):
            await self.remove_audio_context(context_id)

    async def _carefully(self, sending: Coroutine[Any, Any, None]) -> None:
        """A context that has ended meanwhile says why by its own task."""
        try:
            await sending
        except GateError as error:
            logger.debug(f"{self}: {error}")


def _is_wide(word: str) -> bool:
    """Whether it is written without blanks around it, as Chinese and Japanese are."""
    return unicodedata.east_asian_width(word[0]) == "W" and not "\uac00" <= word[0] <= "\ud7a3"  # Korean has blanks
