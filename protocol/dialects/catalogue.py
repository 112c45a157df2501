"""Which path speaks which dialect, and what a URL says of it. Raises ProtocolViolation for a URL that asks amiss."""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from voicegate.protocol.dialects import deepgram, elevenlabs, kyutai
from voicegate.protocol.dialects.cartesia import Cartesia
from voicegate.protocol.dialects.deepgram import Deepgram
from voicegate.protocol.dialects.dialect import Dialect, FindVoice
from voicegate.protocol.dialects.elevenlabs import MultiStream, SingleStream
from voicegate.protocol.dialects.elevenlabs_speaker import Settings as ElevenlabsSettings
from voicegate.protocol.dialects.format_names import deepgram_format, elevenlabs_format
from voicegate.protocol.dialects.kyutai import Kyutai
from voicegate.protocol.dialects.reading import speed_of
from voicegate.protocol.dialects.vllm_omni import VllmOmni
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.messages import STREAM_PATH

PATHS: Final = (
    "/v1/text-to-speech/{voice}/multi-stream-input",
    "/v1/text-to-speech/{voice}/stream-input",
    "/tts/websocket",
    "/v1/speak",
    "/v1/audio/speech/stream",
    "/api/tts_streaming",
)
_ELEVENLABS: Final = re.compile(r"/v1/text-to-speech/([^/]+)/(multi-)?stream-input")

Query = Mapping[str, str]
N = TypeVar("N", int, float)


def has_dialect(path: str) -> bool:
    return path in PATHS or _ELEVENLABS.fullmatch(path) is not None


def find_dialect(target: str) -> Callable[[FindVoice], Dialect] | None:
    """Finds the dialect of a request's target, path and query; None: the path has none. Unknown parameters are
    ignored."""
    path, _, query_text = target.partition("?")
    if path == STREAM_PATH:
        return None
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    match path:
        case "/tts/websocket":
            return Cartesia
        case "/v1/speak":
            return _deepgram(query)
        case "/v1/audio/speech/stream":
            return VllmOmni
        case "/api/tts_streaming":
            return _kyutai(query)
        case _ if (match := _ELEVENLABS.fullmatch(path)) is not None:
            return _elevenlabs(unquote(match[1]), query, is_multi=match[2] is not None)
        case _:
            return None


def idle_s_of(target: str) -> float | None:
    """For how long a context may be idle, where the vendor's clients say so; None: they do not. As `find_dialect`."""
    path, _, query_text = target.partition("?")
    return _inactivity_s(dict(parse_qsl(query_text))) if _ELEVENLABS.fullmatch(path) else None


def _inactivity_s(query: Query) -> float:
    seconds = _number(query, "inactivity_timeout", int)
    return elevenlabs.IDLE_S if seconds is None else min(max(seconds, 1), elevenlabs.MAX_IDLE_S)


def _elevenlabs(voice: str, query: Query, *, is_multi: bool) -> Callable[[FindVoice], Dialect]:
    _inactivity_s(query)  # raises here what it would raise later
    settings = ElevenlabsSettings(
        voice=voice,
        output=elevenlabs_format(query.get("output_format", elevenlabs.DEFAULT_FORMAT)),
        language=query.get("language_code") or None,
        is_normalized=query.get("apply_text_normalization", "").lower() != "off",
        is_auto=query.get("auto_mode", "").lower() == "true",
        # LiveKit's plugin asks for it there, and takes times as they are; Pipecat's does not, and adds messages up.
        counts_from_start=is_multi and query.get("sync_alignment", "").lower() == "true",
    )
    return lambda find_voice: (MultiStream if is_multi else SingleStream)(settings, find_voice)


def _deepgram(query: Query) -> Callable[[FindVoice], Dialect]:
    rate_hz, bitrate_bps = _number(query, "sample_rate", int), _number(query, "bit_rate", int)
    container = query.get("container", "none")
    settings = deepgram.Settings(
        voice=query.get("model", ""),
        output=deepgram_format(
            query.get("encoding", "linear16"), rate_hz, container=container, bitrate_bps=bitrate_bps
        ),
        speed=speed_of(_number(query, "speed", float)),
    )
    return lambda find_voice: Deepgram(settings, find_voice)


def _kyutai(query: Query) -> Callable[[FindVoice], Dialect]:
    name, voice = query.get("format", kyutai.DEFAULT_FORMAT), query.get("voice", "")
    Kyutai(name, voice, lambda _: None)  # raises here what it would raise there
    return lambda find_voice: Kyutai(name, voice, find_voice)


def _number(query: Query, name: str, kind: type[N]) -> N | None:
    text = query.get(name, "")
    try:
        return kind(text) if text else None
    except ValueError as error:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"{name} is {text[:80]!r}; it must be a number") from error
