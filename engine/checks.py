"""Checks of requests, names and voices that every engine makes alike; the gateway makes some before it asks one."""

import re
from dataclasses import replace
from typing import Final

from voicegate.engine.interface import (
    BadRequest,
    EngineInfo,
    NewVoice,
    UnknownVoice,
    Unsupported,
    VoiceConflict,
    VoiceInfo,
    VoiceRefused,
    base_language,
)

# Around the model's control words (<|endofprompt|>): not to be said by a client.
MODEL_MARKS: Final = ("<|", "|>")
_ECHO_CHARS: Final = 80
_VOICE_NAME: Final = re.compile(r"\w[\w.-]{0,63}")
# Bytes of the 255 that file systems allow; the rest is for the name's surroundings while a file is written.
_MAX_VOICE_NAME_BYTES: Final = 192
_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8}){0,3}")


def check_instruct(instruct: str | None, info: EngineInfo) -> None:
    """Raises Unsupported, BadRequest."""
    if instruct is None or not instruct.strip():
        return
    if not info.max_instruct_chars:
        raise Unsupported(f"model {info.model!r} does not follow instructions: leave `instruct` (`instructions`) out")
    if len(instruct) > info.max_instruct_chars:
        raise BadRequest(
            f"instruct has {len(instruct)} characters; model {info.model!r} takes {info.max_instruct_chars}"
        )
    if any(mark in instruct for mark in MODEL_MARKS):
        raise BadRequest(f"instruct holds {' or '.join(MODEL_MARKS)}, the model's own marks; say it in plain words")


def check_language(language: str | None, info: EngineInfo) -> None:
    """Raises Unsupported, BadRequest."""
    if language is None:
        return
    if not _LANGUAGE.fullmatch(language):
        raise BadRequest(f"language is {language[:_ECHO_CHARS]!r}; it must be a tag such as en or en-GB")
    if base_language(language) not in map(base_language, info.languages):
        raise Unsupported(f"model {info.model!r} does not speak {language!r}; it speaks {', '.join(info.languages)}")


def check_voice_name(name: str) -> None:
    """It becomes a file name, and goes over the wire. Raises VoiceRefused."""
    if not _VOICE_NAME.fullmatch(name) or len(name.encode()) > _MAX_VOICE_NAME_BYTES:
        raise VoiceRefused(
            f"{name[:_ECHO_CHARS]!r} cannot be a voice's name: up to 64 letters, digits, _ . and -, no . or - in "
            f"front, {_MAX_VOICE_NAME_BYTES} bytes in UTF-8"
        )


def check_new_voice(voice: NewVoice, info: EngineInfo) -> None:
    """Raises VoiceRefused, VoiceConflict."""
    check_voice_name(voice.name)
    if not voice.is_replacing and speaks_with(voice.name, info):
        raise VoiceConflict(f"there is a voice {voice.name!r} already; replace it, or choose another name")


def check_removable(name: str, info: EngineInfo) -> None:
    """Raises UnknownVoice, VoiceRefused."""
    if not speaks_with(name, info):
        raise UnknownVoice(f"no voice {name!r}; there are {', '.join(voice.name for voice in info.voices)}")
    if name == info.default_voice:
        raise VoiceRefused(f"{name!r} is the default voice, which cannot be taken away; it can be replaced")


def speaks_with(name: str, info: EngineInfo) -> bool:
    """Whether an utterance may name this voice."""
    return name in info.clones or any(voice.name == name for voice in info.voices)


def with_voice(info: EngineInfo, voice: VoiceInfo, *, is_clone: bool) -> EngineInfo:
    """In the place of one of its name."""
    others = without_voice(info, voice.name)
    if is_clone:
        return replace(others, clones=(*others.clones, voice.name))
    return replace(others, voices=(*others.voices, replace(voice, remark="")))


def without_voice(info: EngineInfo, name: str) -> EngineInfo:
    voices = tuple(voice for voice in info.voices if voice.name != name)
    return replace(info, voices=voices, clones=tuple(clone for clone in info.clones if clone != name))
