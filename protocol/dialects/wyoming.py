"""Wyoming, Home Assistant's protocol for local voice: one text after the other on a connection. Pure.

Frames in are an event's type and data as JSON; frames out are whole events, as the library writes them. Events have no
ids, so one turn is heard to its end before the next begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.json import encode
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Eventable, write_event
from wyoming.info import Attribution, Info, TtsProgram, TtsVoice
from wyoming.ping import Pong
from wyoming.tts import SynthesizeStopped

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.backlog import Backlog
from voicegate.protocol.dialects.dialect import Effect, FindVoice, Hangup, Reply, Speech
from voicegate.protocol.dialects.reading import MAX_NAME_CHARS, native_name, read
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.formats import NATIVE_RATE_HZ, OutputFormat
from voicegate.protocol.messages import ServerMessage

_BYTES_PER_SAMPLE: Final = 2
_MAKER: Final = Attribution(name="voicegate", url="")

Kind = Literal["synthesize", "synthesize-start", "synthesize-chunk", "synthesize-stop"]


class _Voice(Struct, frozen=True, omit_defaults=True):
    name: str | None = None
    language: str | None = None


class _Data(Struct, frozen=True, omit_defaults=True):
    text: str | None = None
    voice: _Voice | None = None
    text_format: str | None = None


class _Synthesis(Struct, frozen=True):
    type: Kind
    data: _Data = _Data()


class _PingData(Struct, frozen=True):
    # It is sent back: a peer that does not read would have longer ones wait here by the hundred.
    text: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None


class _Ping(Struct, frozen=True):
    data: _PingData = _PingData()


class _AnyEvent(Struct, frozen=True):
    type: str


@dataclass(slots=True)
class _Turn:
    native: str
    voice: _Voice
    is_streamed: bool
    is_open: bool = False
    is_ending: bool = False


class Wyoming:
    def __init__(self, find_voice: FindVoice) -> None:
        self._find_voice = find_voice
        self._numbers = count()
        self._ready: wire.Ready | None = None
        self._turn: _Turn | None = None
        self._backlog: Backlog[_Synthesis] = Backlog()  # what came while a turn ends
        self._has_failed = False  # nothing more is said

    def output(self, context: str) -> OutputFormat:
        return OutputFormat()

    # --- from the client ----------------------------------------------------------------------------------

    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        if self._has_failed:
            return []
        try:
            event = read(raw, _AnyEvent)
            match event.type:
                case "describe":
                    return [] if self._ready is None else [_reply(_info(self._ready))]
                case "ping":
                    return [_reply(Pong(text=read(raw, _Ping).data.text))]
                case "synthesize" | "synthesize-start" | "synthesize-chunk" | "synthesize-stop":
                    return self._take_in_turn(read(raw, _Synthesis))
                case _:
                    return []  # servers drop what they do not know
        except ProtocolViolation as violation:
            return self._fail(violation.code.value, violation.message)

    def _take_in_turn(self, event: _Synthesis) -> list[Effect]:
        if self._turn is None or not self._turn.is_ending:
            return self._take(event)
        if not self._backlog.put(event, len(encode(event))):  # a voice's name may be as long as a text
            raise ProtocolViolation(ErrorCode.RATE_LIMITED, "too much text while another is spoken; send it later")
        return []

    def _take(self, event: _Synthesis) -> list[Effect]:
        turn, data = self._turn, event.data
        if event.type in ("synthesize", "synthesize-chunk") and data.text is None:
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"{event.type} without `text`")
        match event.type:
            case "synthesize" if turn is not None:
                return []  # its text once more, whole, for servers that do not stream
            case "synthesize":
                turn = self._begin(data, is_streamed=False)
                return [*self._say(turn, data.text or ""), *self._end(turn)]
            case "synthesize-start" if turn is not None:
                raise ProtocolViolation(ErrorCode.ILLEGAL_IN_STATE, "synthesize-start before synthesize-stop")
            case "synthesize-start":
                self._begin(data, is_streamed=True)
                return []
            case _ if turn is None:
                raise ProtocolViolation(ErrorCode.ILLEGAL_IN_STATE, f"{event.type} without synthesize-start")
            case "synthesize-chunk":
                return self._say(turn, data.text or "")
            case "synthesize-stop":
                return self._end(turn)

    def _begin(self, data: _Data, *, is_streamed: bool) -> _Turn:
        if data.text_format not in (None, "text"):
            raise ProtocolViolation(ErrorCode.UNSUPPORTED, f"text_format is {data.text_format[:40]!r}; send plain text")
        self._turn = _Turn(native_name("turn", next(self._numbers)), data.voice or _Voice(), is_streamed)
        return self._turn

    def _say(self, turn: _Turn, text: str) -> list[Effect]:
        return [*self._open(turn), wire.Text(turn.native, text)] if text else []

    def _open(self, turn: _Turn) -> list[Effect]:
        """With the first text: until then a turn takes no room."""
        if turn.is_open:
            return []
        turn.is_open = True
        name, language = turn.voice.name, turn.voice.language
        voice = self._voice_of(language) if name is None else self._find_voice(name)
        return [wire.Open(context=turn.native, voice=voice, language=language, format=self.output(turn.native).native)]

    def _voice_of(self, language: str | None) -> str | None:
        """The first voice whose recording is in that language, the default one before all others; None: no voice is."""
        if self._ready is None or language is None:
            return None
        of_voice, wanted = self._ready.voice_languages, _base(language)
        names = (self._ready.default_voice, *self._ready.voices)
        return next((name for name in names if name in of_voice and _base(of_voice[name]) == wanted), None)

    def _end(self, turn: _Turn) -> list[Effect]:
        turn.is_ending = True
        return [*self._open(turn), wire.End(turn.native)]

    # --- from the session ---------------------------------------------------------------------------------

    def speak(self, speech: Speech) -> Sequence[Effect]:
        if not speech.audio:
            return []
        return [_reply(AudioChunk(NATIVE_RATE_HZ, _BYTES_PER_SAMPLE, 1, speech.audio, timestamp=speech.start_ms))]

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        match message:
            case wire.Ready():
                self._ready = message
                return []
            case wire.Opened():
                return [_reply(AudioStart(NATIVE_RATE_HZ, _BYTES_PER_SAMPLE, 1))]
            case wire.Done() if self._turn is not None:
                return self._turn_ended(self._turn)
            case wire.Error():
                return self._fail(message.code, message.message)
            case _:
                return []

    def _turn_ended(self, turn: _Turn) -> list[Effect]:
        """Then comes what came meanwhile."""
        self._turn = None
        effects: list[Effect] = [_reply(AudioStop())]
        if turn.is_streamed:
            effects.append(_reply(SynthesizeStopped()))
        try:
            while len(self._backlog) and (self._turn is None or not self._turn.is_ending):
                effects += self._take(self._backlog.take())
        except ProtocolViolation as violation:
            effects += self._fail(violation.code.value, violation.message)
        return effects

    def _fail(self, code: str, text: str) -> list[Effect]:
        """Clients wait for audio-stop or the end of the connection, and read past an error."""
        if self._has_failed:
            return []
        self._has_failed = True
        return [_reply(Error(text=text, code=code)), Hangup(CloseCode.POLICY, code)]


def _info(ready: wire.Ready) -> Info:
    voices = [
        TtsVoice(
            name=name,
            attribution=_MAKER,
            installed=True,
            description=name,
            version=None,
            languages=_languages(ready, name),
        )
        for name in ready.voices
    ]
    program = TtsProgram(
        name="voicegate",
        attribution=_MAKER,
        installed=True,
        description=f"voicegate with {ready.model}",
        version=None,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


def _languages(ready: wire.Ready, voice: str) -> list[str]:
    """A voice speaks all that the model does, its recording's language first."""
    own = ready.voice_languages.get(voice)
    return list(dict.fromkeys([*([own] if own else []), *ready.languages]))


def _base(language: str) -> str:
    return language.replace("_", "-").partition("-")[0].lower()


def _reply(message: Eventable) -> Reply:
    frame = BytesIO()
    write_event(message.event(), frame)
    return Reply(frame.getvalue())
