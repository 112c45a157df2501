"""Data that begins as a sound file goes on to be decoded; everything else is refused before anything is loaded."""

import pytest

from tests.unit.engine.voices.sounds import file_of, speechlike
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.voices.sound_files import check_is_sound_file

SPEECH = speechlike(0.5)


@pytest.mark.parametrize(
    "content",
    [
        file_of(SPEECH),
        file_of(SPEECH, endian="BIG"),
        file_of(SPEECH, kind="WAVEX"),
        file_of(SPEECH, kind="FLAC"),
        file_of(SPEECH, kind="OGG", subtype="VORBIS"),
        file_of(SPEECH, kind="OGG", subtype="OPUS"),
        file_of(SPEECH, kind="MP3"),
        b"ID3\x04" + bytes(100),
    ],
    ids=["wav", "rifx", "wavex", "flac", "vorbis", "opus", "mp3", "id3"],
)
def test_what_is_taken_is_known_by_its_beginning(content: bytes) -> None:
    check_is_sound_file(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"RIFF", "begins as none"),
        (b"RIFF\0\0\0\0AVI LIST", "begins as none"),
        (b"<html>not found</html>", "begins as none"),
        (b'{"error": "no such file"}', "begins as none"),
        (bytes(1000), "begins as none"),
        (b"\xff\xfe<\0h\0", "begins as none"),  # UTF-16
        (b"\xff\xf1\x50\x80" + bytes(20), "begins as none"),  # AAC
        (b"\0\0\0\x20ftypM4A " + bytes(20), r"is MP4 \(M4A, AAC\), which is not taken: make it WAV"),
        (b"\x1a\x45\xdf\xa3" + bytes(20), "is WebM or Matroska"),
        (file_of(SPEECH, kind="AIFF"), "is AIFF"),
        (file_of(SPEECH, kind="CAF"), "is CAF"),
    ],
)
def test_anything_else_is_refused_by_what_it_is(content: bytes, message: str) -> None:
    with pytest.raises(VoiceRefused, match=message):
        check_is_sound_file(content)
