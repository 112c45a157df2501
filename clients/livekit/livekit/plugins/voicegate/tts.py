"""A LiveKit Agents TTS over voicegate's own protocol: a stream of LiveKit's is one context of the server.

Tokens go to the server as the LLM writes them. Words come back with their times: with `use_tts_aligned_transcript` the
conversation holds, after an interruption, what the listener heard.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from livekit.agents import APIConnectionError, APIConnectOptions, APIError, APIStatusError, tts, utils
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS
from livekit.agents.voice.io import TimedString

from voicegate.clients.python.client import Gate, OpenOptions, connect, feed
from voicegate.clients.python.context import Context
from voicegate.clients.python.decode import PcmDecoder
from voicegate.clients.python.errors import ConnectFailed, ContextFailed, GateError, InvalidInput
from voicegate.protocol.messages import Format

DEFAULT_URL = "ws://127.0.0.1:8080"
# Rate of all models that voicegate serves; another would be told by the server, and is checked.
_RATE_HZ = 24_000
# Codes of a failed context that another try may mend. LiveKit tries again from 500 on, and below not.
_MAY_SUCCEED_LATER = ("overloaded", "rate_limited", "too_many_contexts", "engine_failed")
_UNAVAILABLE, _BAD_REQUEST = 503, 400


@dataclass(frozen=True)
class _Options:
    """None: the server's."""

    voice: str | None
    language: str | None
    speed: float | None
    instruct: str | None


class TTS(tts.TTS):
    """Give it to an AgentSession in the place of any other TTS."""

    def __init__(
        self,
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        ca_file: Path | None = None,
        voice: str | None = None,
        language: str | None = None,
        speed: float | None = None,
        instruct: str | None = None,
    ) -> None:
        """`api_key` None: VOICEGATE_API_KEY of the environment. `speed`: 0.5 to 2. `instruct`: how to speak."""
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=_RATE_HZ,
            num_channels=1,
        )
        self._options = _Options(voice, language, speed, instruct)
        self._gate = connect(url, api_key=api_key, ca_file=ca_file)
        self._entering: asyncio.Task[Gate] | None = None

    @property
    def model(self) -> str:
        """As the server names it; "unknown" before the first connection."""
        entering = self._entering
        is_known = entering is not None and entering.done() and not entering.cancelled() and not entering.exception()
        return self._gate.ready.model if is_known else "unknown"

    @property
    def provider(self) -> str:
        return "voicegate"

    def update_options(self, **options: Any) -> None:
        """`voice`, `language`, `speed`, `instruct`, for the next streams. Raises TypeError for what is none of them."""
        self._options = replace(self._options, **options)

    def prewarm(self) -> None:
        """Connects, so that the first stream need not."""
        self._enter()

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        """A whole text."""
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def stream(self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS) -> "SynthesizeStream":
        """A text that is still being written."""
        return SynthesizeStream(tts=self, conn_options=conn_options)

    async def aclose(self) -> None:
        """Ends what runs."""
        if self._entering is not None:
            self._entering.cancel()
        await self._gate.close()

    def _enter(self) -> "asyncio.Task[Gate]":
        """Once; the client connects again by itself. One that failed is tried again."""
        entering = self._entering
        if entering is None or (entering.done() and (entering.cancelled() or entering.exception() is not None)):
            entering = self._entering = asyncio.create_task(self._gate.__aenter__())
        return entering

    async def _open(self) -> Context:
        """Raises GateError."""
        gate = await asyncio.shield(self._enter())
        options = OpenOptions(format=Format(codec="pcm_s16le"))
        chosen = self._options
        if chosen.voice is not None:
            options["voice"] = chosen.voice
        if chosen.language is not None:
            options["language"] = chosen.language
        if chosen.speed is not None:
            options["speed"] = chosen.speed
        if chosen.instruct is not None:
            options["instruct"] = chosen.instruct
        return await gate.open(**options)


class SynthesizeStream(tts.SynthesizeStream):
    """Text in, audio and timed words out; closing it is a barge-in."""

    def __init__(self, *, tts: TTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, conn_options=conn_options)
        self._voicegate = tts

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        output_emitter.initialize(
            request_id=utils.shortuuid(),
            sample_rate=self._voicegate.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=True,
        )
        try:
            if (first := await self._next_text()) is not None:
                await self._speak(first, output_emitter)
        except GateError as error:
            raise _as_livekits(error) from error

    async def _speak(self, first: str, output_emitter: tts.AudioEmitter) -> None:
        """Raises GateError."""
        self._mark_started()
        context = await self._voicegate._open()
        try:
            if context.opened.sample_rate != _RATE_HZ:
                raise APIError(f"the server speaks at {context.opened.sample_rate} Hz, not {_RATE_HZ}", retryable=False)
            output_emitter.start_segment(segment_id=context.context_id)
            writing = asyncio.create_task(feed(context, self._texts(first)))
            try:
                await self._read(context, output_emitter)
            finally:
                writing.cancel()
                (failure,) = await asyncio.gather(writing, return_exceptions=True)
            if isinstance(failure, GateError):  # the context was given up for it, so that the audio ended early
                raise failure
        finally:
            context.abandon()  # nothing where it has ended
        output_emitter.end_input()

    async def _next_text(self) -> str | None:
        """None: there will be no more."""
        async for item in self._input_ch:
            if isinstance(item, str) and item:
                return item
        return None

    async def _texts(self, first: str) -> AsyncIterator[str]:
        """A flush of LiveKit's stands at the end of its input alone, where the context's end says as much."""
        text: str | None = first
        while text is not None:
            yield text
            text = await self._next_text()

    async def _read(self, context: Context, output_emitter: tts.AudioEmitter) -> None:
        """Words first: they belong to the audio that follows them. Raises GateError."""
        decoder = PcmDecoder(context.opened)
        num_told = 0
        async for audio in context:  # the last one is empty, and follows the last word
            num_told += _tell_words(context, num_told, output_emitter)
            if samples := decoder.decode(audio):
                output_emitter.push(samples)
        ending = context.alignments[-1:]
        if ending and (rest := context.text[ending[0].char_end :]).strip():  # such as a link, which is not said
            end_s = ending[0].end_ms / 1000
            output_emitter.push_timed_transcript(TimedString(text=rest, start_time=end_s, end_time=end_s))


def _tell_words(context: Context, num_told: int, output_emitter: tts.AudioEmitter) -> int:
    """Returns how many are new. LiveKit adds no blanks: each word has what stands between it and the one before."""
    items, text = context.alignments, context.text
    end = items[num_told - 1].char_end if num_told else 0
    for item in items[num_told:]:
        word = text[end : item.char_end]
        start_s, end_s = item.start_ms / 1000, item.end_ms / 1000
        output_emitter.push_timed_transcript(TimedString(text=word, start_time=start_s, end_time=end_s))
        end = item.char_end
    return len(items) - num_told


def _as_livekits(error: GateError) -> APIError:
    """Which LiveKit tries again, where that can help."""
    if isinstance(error, ContextFailed):
        return APIStatusError(
            str(error), status_code=_UNAVAILABLE if error.code in _MAY_SUCCEED_LATER else _BAD_REQUEST
        )
    if isinstance(error, ConnectFailed) and error.status is not None:
        return APIStatusError(str(error), status_code=error.status)
    return APIConnectionError(str(error), retryable=not isinstance(error, InvalidInput))
