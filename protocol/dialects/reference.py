"""A recording that a request brings, to be spoken with its voice: `ref_audio` and `ref_text` of vLLM-Omni. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from voicegate.protocol.dialects.one_shot import Reference, RequestViolation

# Stands between a model's instruction and the transcript; vLLM-Omni's examples send both.
_END_OF_INSTRUCTION: Final = "<|endofprompt|>"
_DATA, _BASE64 = "data:", ";base64"
_ADDRESSES: Final = ("http:", "https:", "file:")
_WANTED: Final = "send the sound file's content in base64, with or without data:audio/wav;base64, in front"
# In other servers' requests these bring a voice, too. Ignored, another voice than the wanted one would speak.
OTHER_REFERENCES: Final = (
    "speaker_embedding",
    "ref_audio_2",
    "references",
    "reference_audio",
    "speaker_audio",
    "voice_prompt",
)


def reference_of(
    ref_audio: str | Sequence[str] | None, ref_text: str | None, *, is_sound_alone: bool | None
) -> Reference | None:
    """`is_sound_alone`: the recording's transcript is ignored. Raises RequestViolation."""
    recordings = [ref_audio] if isinstance(ref_audio, str) else list(ref_audio or ())
    if not any(recordings):
        if ref_text:
            raise RequestViolation("ref_text is what ref_audio says, and there is no ref_audio", "ref_text")
        return None
    if len(recordings) > 1:
        raise RequestViolation(f"ref_audio has {len(recordings)} recordings; a voice is made of one", "ref_audio")
    return Reference(_content(recordings[0]), "" if is_sound_alone else transcript_of(ref_text or ""))


def transcript_of(ref_text: str) -> str:
    """Without an instruction to the model in front."""
    return ref_text.rpartition(_END_OF_INSTRUCTION)[2].strip()


def check_no_other_reference(fields: Any) -> None:
    """`fields`: an object with `OTHER_REFERENCES`, None where they are not sent. Raises RequestViolation."""
    for name in OTHER_REFERENCES:
        if getattr(fields, name):
            raise RequestViolation(f"{name} is not supported here: a voice comes by ref_audio and ref_text", name)


def _content(ref_audio: str) -> str:
    if ref_audio.startswith(_ADDRESSES):
        scheme = ref_audio.partition(":")[0]
        message = f"ref_audio is an address ({scheme}:), and this server fetches none: {_WANTED}"
        raise RequestViolation(message, "ref_audio")
    if not ref_audio.startswith(_DATA):
        return ref_audio
    head, comma, content = ref_audio.partition(",")
    if not comma or not head.endswith(_BASE64):
        raise RequestViolation(f"ref_audio is a data URL without base64: {_WANTED}", "ref_audio")
    return content
