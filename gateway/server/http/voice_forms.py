"""The form of a new voice, by our names of its fields and by other vendors'. A field that is not known is refused."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from voicegate.engine.interface import NewVoice
from voicegate.gateway.server.http.bodies import read_body, unfit_body
from voicegate.gateway.server.http.enrolment import MAX_RECORDING_BYTES
from voicegate.gateway.server.http.refused import Refused
from voicegate.protocol.dialects.reference import transcript_of

_MAX_FIELDS: Final = 16
_MAX_FIELD_BYTES: Final = 16 * 1024
# The part of a form that is read at a time: a millisecond at most. Higher holds up other clients' packets.
_PIECE_BYTES: Final = 64 * 1024
_ECHO_CHARS: Final = 80
# Ours, and what it is called by ElevenLabs (files), vLLM-Omni (audio_sample and others), and by people.
_RECORDING: Final = ("recording", "file", "files", "audio_sample")
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("name",),
    "transcript": ("transcript", "text", "ref_text"),
    "description": ("description", "speaker_description"),
    "replace": ("replace",),
    "consent": ("consent",),
}
_IGNORED: Final = ("labels", "remove_background_noise")  # of ElevenLabs', and they change nothing of what is heard
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("", "false", "0", "no", "off")


@dataclass(frozen=True, slots=True)
class Upload:
    voice: NewVoice
    consent: str = ""  # the id of a recording in which the speaker agrees, as vLLM-Omni has it
    media_type: str = ""  # of the recording, as the client says


class _FormInMemory(MultiPartParser):
    """Starlette's own writes a larger recording to disk, which may be full or not writable."""

    spool_max_size = MAX_RECORDING_BYTES


async def read_form(request: Request) -> Upload:
    """Raises Refused, and Starlette's ClientDisconnect."""
    body = await read_body(request, MAX_RECORDING_BYTES)
    if not request.headers.get("Content-Type", "").lower().startswith("multipart/form-data"):
        raise _no_recording()
    limits = {"max_files": 1, "max_fields": _MAX_FIELDS, "max_part_size": _MAX_FIELD_BYTES}
    try:
        form = await _FormInMemory(request.headers, _pieces(body), **limits).parse()
    except MultiPartException as error:
        raise unfit_body(error.message) from error
    except UnicodeError as error:  # of charsets that only Python has
        raise unfit_body(f"the form is not in the charset that it names: {error}") from error
    try:
        return await _voice_in(form)
    finally:
        await form.close()


async def _voice_in(form: FormData) -> Upload:
    """Raises Refused."""
    _check_names(form)
    fields = {name: _text(form, names) for name, names in _NAMES.items()}
    replace = fields["replace"].strip().lower()
    if replace not in (*_TRUE, *_FALSE):
        raise unfit_body(f"replace is {replace[:_ECHO_CHARS]!r}; it must be true or false", field="replace")
    file = _recording(form)
    voice = NewVoice(
        name=fields["name"],
        recording=await file.read(),
        transcript=transcript_of(fields["transcript"]),
        description=fields["description"],
        is_replacing=replace in _TRUE,
    )
    return Upload(voice, fields["consent"], file.content_type or "")


def _check_names(form: FormData) -> None:
    """Raises Refused."""
    texts = [name for names in _NAMES.values() for name in names]
    for name in form:
        if name not in (*texts, *_RECORDING, *_IGNORED):
            known = ", ".join((_RECORDING[0], *_NAMES))
            raise unfit_body(
                f"the form has {name[:_ECHO_CHARS]!r}, which is no field of it; there are {known}", field=name
            )
        if len(form.getlist(name)) > 1:
            raise unfit_body(f"the form has {name!r} more than once", field=name)
        if name in texts and not isinstance(form[name], str):
            raise unfit_body(f"{name} came as a file; send its text: curl -F '{name}=<FILE'", field=name)
    if given := [name for name in _RECORDING if isinstance(form.get(name), str)]:
        raise unfit_body(f"{given[0]} came as text; send the file itself: curl -F {given[0]}=@FILE", field=given[0])


def _text(form: FormData, names: tuple[str, ...]) -> str:
    """The text of the field that has one of these names. Raises Refused."""
    given = [name for name in names if form.get(name)]
    if len(given) > 1:
        raise unfit_body(f"the form has {' and '.join(given)}, which are the same; send one of them", field=given[1])
    return str(form[given[0]]) if given else ""


def _recording(form: FormData) -> UploadFile:
    """Raises Refused."""
    for name in _RECORDING:
        if isinstance(file := form.get(name), UploadFile):
            return file
    raise _no_recording()


async def _pieces(body: bytes) -> AsyncGenerator[bytes]:
    """With a turn of the others behind each."""
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]
        await asyncio.sleep(0)


def _no_recording() -> Refused:
    return unfit_body(
        "the form has no `recording`, a sound file: curl -F name=anna -F recording=@anna.wav ...", field="recording"
    )
