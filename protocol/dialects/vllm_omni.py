"""vLLM-Omni: `/v1/audio/speech/stream`, utterance after utterance. Pure.

An utterance is one context and one "sentence" of that protocol. Beyond it: `input.cancel`, and other formats streamed.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from msgspec.json import encode

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.backlog import Backlog
from voicegate.protocol.dialects.dialect import Effect, FindVoice, Hangup, Reply, Speech
from voicegate.protocol.dialects.format_names import openai_format
from voicegate.protocol.dialects.one_shot import LEAD_MS
from voicegate.protocol.dialects.reading import language_code, native_name, read, reply, speed_of
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import ServerMessage

_DEFAULT_FORMAT: Final = "wav"
# Characters of the text, with `audio.start`. Higher -> a message over 1 MiB, at which many clients hang up: a character
# takes up to 6 bytes in JSON.
_SHOWN_CHARS: Final = 65_536
# Size of an utterance that is sent as one file: what its client must take as one frame.
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_REFERENCES: Final = (
    "send it to POST /v1/audio/speech, or make a voice of it by POST /v1/audio/voices and name that here"
)


class _Message(Struct, frozen=True, omit_defaults=True):
    type: Literal["session.config", "input.text", "input.done", "input.cancel", "session.close"]
    text: str | None = ""
    voice: str | None = None
    speaker: str | None = None
    instructions: str | None = None
    response_format: str | None = None
    speed: float | None = None
    stream_audio: bool | None = False
    word_timestamps: bool | None = False
    language: str | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    # Refused: another voice than the wanted one would speak.
    ref_audio: Any = None
    ref_text: Any = None
    speaker_embedding: Any = None


@dataclass(slots=True)
class _Utterance:
    native: str
    index: int
    config: _Message
    output: OutputFormat
    text: str = ""  # as much as is shown
    has_started: bool = False
    has_failed: bool = False
    is_ending: bool = False
    num_bytes: int = 0
    num_chunks: int = 0
    file: list[bytes] = field(default_factory=list)
    words: list[wire.AlignmentItem] = field(default_factory=list)  # known, and not told

    @property
    def is_in_json(self) -> bool:
        return bool(self.config.stream_audio and self.config.word_timestamps)


class VllmOmni:
    def __init__(self, find_voice: FindVoice) -> None:
        self._find_voice = find_voice
        self._numbers = count()
        self._config = _Message("session.config")
        self._utterance: _Utterance | None = None
        self._backlog: Backlog[_Message] = Backlog()  # what came while an utterance ends
        self._has_failed = False  # the rest of its text is nothing to speak
        self._is_closed = False

    def output(self, context: str) -> OutputFormat:
        assert self._utterance is not None
        return self._utterance.output

    # --- from the client ----------------------------------------------------------------------------------

    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        if self._is_closed:
            return []
        return self._answer(lambda: read(raw, _Message))

    def _answer(self, message: Callable[[], _Message]) -> list[Effect]:
        try:
            return self._take(message())
        except ProtocolViolation as violation:
            return [_error(violation.message)]

    def _take(self, message: _Message) -> list[Effect]:
        match message.type:
            case "session.close":
                self._is_closed = True
                return self._hang_up_if_over()
            case "input.cancel":
                self._has_failed = False
                self._backlog.clear()
                return [] if self._utterance is None else self._end(wire.Cancel(self._utterance.native))
            case _ if self._utterance is not None and self._utterance.is_ending:
                if not self._backlog.put(message, len(encode(message))):  # a config's fields may be as long as a text
                    text = "too much text while an utterance is spoken; send it when that one is done"
                    raise ProtocolViolation(ErrorCode.RATE_LIMITED, text)
                return []
            case "input.text" | "input.done" if self._has_failed:
                self._has_failed = message.type == "input.text"
                return []
            case "session.config" if (reference := _reference_in(message)) is not None:
                self._is_closed = True  # else its client waits for speech
                text = f"{reference} is not taken on this socket: {_REFERENCES}"
                return [_error(text), Hangup(CloseCode.POLICY, f"{reference} is not taken")]
            case "session.config":
                _output(message)  # raises here rather than at the first text
                self._config = message
                self._has_failed = False  # who says how the next one is to sound is done with the last
                return []
            case "input.text":
                return self._say(message.text or "")
            case "input.done":
                effects = self._say("")
                assert self._utterance is not None
                return effects + self._end(wire.End(self._utterance.native))

    def _say(self, text: str) -> list[Effect]:
        effects: list[Effect] = []
        if self._utterance is None:
            self._utterance, opening = self._open()
            effects.append(opening)
        room = _SHOWN_CHARS - len(self._utterance.text)
        if room > 0 and not self._utterance.has_started:
            self._utterance.text += text[:room]
        return [*effects, wire.Text(self._utterance.native, text)] if text else effects

    def _open(self) -> tuple[_Utterance, wire.Open]:
        config, index = self._config, next(self._numbers)
        output = _output(config)
        name = config.voice or config.speaker
        opening = wire.Open(
            context=native_name("utterance", index),
            voice=None if name is None else self._find_voice(name),
            format=output.native,
            speed=speed_of(config.speed),
            instruct=config.instructions,
            seed=config.seed,
            language=language_code(config.language),
            # A file is of use when it is whole.
            pace=wire.Pace() if config.stream_audio else wire.Pace(lead_ms=LEAD_MS),
        )
        return _Utterance(opening.context, index, config, output), opening

    def _end(self, end: wire.End | wire.Cancel) -> list[Effect]:
        assert self._utterance is not None
        self._utterance.is_ending = True
        return [end]

    # --- from the session ---------------------------------------------------------------------------------

    def speak(self, speech: Speech) -> Sequence[Effect]:
        utterance = self._utterance
        if utterance is None or utterance.has_failed or not speech.audio:
            return []
        utterance.num_bytes += len(speech.audio)
        if utterance.is_in_json:
            return [*self._start(utterance), self._chunk(utterance, speech)]
        if utterance.config.stream_audio:
            return [*self._start(utterance), Reply(speech.audio)]
        if utterance.num_bytes > _MAX_FILE_BYTES:
            return self._stop(utterance)
        utterance.file.append(speech.audio)
        return []

    def _stop(self, utterance: _Utterance) -> list[Effect]:
        """Its file is too long. What is still made of it goes to no one, and is told of once."""
        utterance.has_failed = True
        utterance.file.clear()
        self._has_failed = not utterance.is_ending
        text = f"over {_MAX_FILE_BYTES} bytes of audio in one file; ask for stream_audio, or send less text"
        return [_error(text, is_partial=True), *self._end(wire.Cancel(utterance.native))]

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        utterance = self._utterance
        if isinstance(message, wire.Error) and not isinstance(message.context, str):
            return [_error(message.message)]
        if utterance is None or getattr(message, "context", None) != utterance.native:
            return []
        match message:
            case wire.Alignment(items=items) if utterance.is_in_json:
                utterance.words += items
            case wire.Done():
                return self._finish(utterance)
            case wire.Cancelled():
                utterance.has_failed = True
                return self._finish(utterance)
            case wire.Error() if message.fatal:
                utterance.has_failed = True
                self._has_failed = self._has_failed or not utterance.is_ending
                return [_error(message.message, is_partial=bool(utterance.num_bytes)), *self._finish(utterance)]
            case wire.Error():
                return [_error(message.message)]
            case _:
                pass
        return []

    def _start(self, utterance: _Utterance) -> list[Effect]:
        if utterance.has_started:
            return []
        utterance.has_started = True
        fields: dict[str, Any] = {
            "sentence_text": utterance.text,
            "format": _format_name(utterance.config),
        }
        fields["sample_rate"] = utterance.output.rate_hz
        if utterance.config.word_timestamps:
            fields["word_timestamps"] = True
        return [_indexed("audio.start", utterance, fields)]

    def _chunk(self, utterance: _Utterance, speech: Speech) -> Reply:
        words = [word for word in utterance.words if word.start_ms < speech.end_ms]
        utterance.words = utterance.words[len(words) :]
        times = [{"word": word.text.strip(), "start_ms": word.start_ms, "end_ms": word.end_ms} for word in words]
        fields = {
            "chunk_id": utterance.num_chunks,
            "chunk_start_ms": speech.start_ms,
            "chunk_end_ms": speech.end_ms,
            "sample_rate": utterance.output.rate_hz,
            "audio_b64": base64.b64encode(speech.audio).decode(),
            "timestamps": times or None,
        }
        utterance.num_chunks += 1
        return _indexed("audio.chunk", utterance, fields)

    def _finish(self, utterance: _Utterance) -> list[Effect]:
        """Then comes what came meanwhile."""
        file = b"" if utterance.has_failed else b"".join(utterance.file)
        effects = [*self._start(utterance), *([Reply(file)] if file else [])]
        effects.append(
            _indexed("audio.done", utterance, {"total_bytes": utterance.num_bytes, "error": utterance.has_failed})
        )
        effects.append(reply({"type": "session.done", "utterance_index": utterance.index, "total_sentences": 1}))
        self._utterance = None
        while len(self._backlog) and not (self._utterance is not None and self._utterance.is_ending):
            answer = self._answer(self._backlog.take)
            effects += answer
            if any(isinstance(effect, Hangup) for effect in answer):
                return effects
        return [*effects, *(self._hang_up_if_over() if self._is_closed else ())]

    def _hang_up_if_over(self) -> list[Effect]:
        """Hangs up after what came before its `input.done` is heard: over there a message is read once that is sent."""
        is_speaking = self._utterance is not None and self._utterance.is_ending
        return [] if is_speaking else [Hangup()]


def _reference_in(config: _Message) -> str | None:
    """The field that brings a voice."""
    return next((name for name in ("ref_audio", "ref_text", "speaker_embedding") if getattr(config, name)), None)


def _format_name(config: _Message) -> str:
    return config.response_format or _DEFAULT_FORMAT


def _output(config: _Message) -> OutputFormat:
    """Raises ProtocolViolation."""
    return openai_format(_format_name(config))


def _indexed(kind: str, utterance: _Utterance, fields: dict[str, Any]) -> Reply:
    return reply({"type": kind, "utterance_index": utterance.index, "sentence_index": 0, **fields})


def _error(text: str, *, is_partial: bool = False) -> Reply:
    """Reports an error. Its audio so far is not whole."""
    partial = {"partial_audio": True, "action": "discard"} if is_partial else {}
    return reply({"type": "error", "message": text, **partial})
