"""Sound files of every usual kind become the same mono samples; what is none is refused by name."""

import tracemalloc

import numpy as np
import pytest
import soundfile

from tests.unit.engine.voices.sounds import file_of, speechlike
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.voices.audio_file import decode_recording


@pytest.mark.parametrize(
    ("kind", "subtype", "tolerance"),
    [
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 0.0),
        ("WAVEX", "PCM_16", 1e-4),
        ("FLAC", "PCM_16", 1e-4),
    ],
)
def test_every_width_gives_the_same_samples(kind: str, subtype: str, tolerance: float) -> None:
    samples = speechlike(0.5)
    recording = decode_recording(file_of(samples, kind=kind, subtype=subtype))
    assert (recording.rate_hz, recording.seconds) == (24_000, 0.5)
    np.testing.assert_allclose(recording.samples.numpy(), samples, rtol=0, atol=tolerance)


def test_channels_are_averaged() -> None:
    samples = speechlike(0.5)
    stereo = np.stack([samples, np.zeros_like(samples)], axis=1)
    recording = decode_recording(file_of(stereo, subtype="FLOAT"))
    np.testing.assert_allclose(recording.samples.numpy(), samples / 2, rtol=0, atol=1e-7)


@pytest.mark.parametrize("content", [b"", b"RIFF", b"<html>not found</html>", file_of(speechlike(0.1))[:20]])
def test_what_is_no_sound_file_is_refused(content: bytes) -> None:
    with pytest.raises(VoiceRefused, match="no sound file that can be read"):
        decode_recording(content)


def test_a_wav_that_was_cut_short_is_refused() -> None:
    content = file_of(speechlike(2.0))
    with pytest.raises(VoiceRefused, match="cut short: of 96000 bytes of sound there are 47956"):
        decode_recording(content[:48_000])


def test_so_is_one_of_the_other_byte_order() -> None:
    content = file_of(speechlike(2.0), endian="BIG")
    assert content.startswith(b"RIFX")
    assert decode_recording(content).seconds == 2.0
    with pytest.raises(VoiceRefused, match="cut short: of 96000 bytes of sound there are 47956"):
        decode_recording(content[:48_000])


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_so_is_an_ogg_without_its_last_page(subtype: str) -> None:
    content = file_of(speechlike(3.0), kind="OGG", subtype=subtype)
    assert decode_recording(content).seconds == 3.0
    assert decode_recording(content + b"a tag behind it").seconds == 3.0
    last = content.rfind(b"OggS")
    for length in (6, 40, len(content) * 6 // 10, last, last + 10, last + 27, len(content) - 1):
        with pytest.raises(VoiceRefused, match="cut short: its last page of Ogg is missing; send it whole"):
            decode_recording(content[:length])


def test_so_is_an_mp3_that_says_how_long_it_is() -> None:
    content = file_of(speechlike(3.0), kind="MP3", subtype=None)
    assert abs(decode_recording(content).seconds - 3.0) < 0.1
    with pytest.raises(VoiceRefused, match=r"cut short: it says that it is 3\.\d\d s long, and 1\.\d\d s are there"):
        decode_recording(content[: len(content) * 6 // 10])
    tagless = content.replace(b"Info", bytes(4)).replace(b"Xing", bytes(4))
    assert decode_recording(tagless[: len(tagless) * 6 // 10]).seconds < 2.0, "nothing tells"


def test_so_is_a_flac_wherever_it_is_cut() -> None:
    content = file_of(speechlike(3.0), kind="FLAC")
    for length in (len(content) // 2, content.rfind(b"\xff\xf8")):  # within a frame, and before the last
        with pytest.raises(VoiceRefused):
            decode_recording(content[:length])


@pytest.mark.parametrize("kind", ["AIFF", "AU", "CAF", "W64", "RF64", "VOC"])
def test_other_kinds_are_refused_for_of_these_nothing_tells_whether_they_are_whole(kind: str) -> None:
    with pytest.raises(VoiceRefused, match=f"^the recording is {kind}, which is not taken: make it WAV, FLAC, Ogg or"):
        decode_recording(file_of(speechlike(0.5), kind=kind))


@pytest.mark.parametrize("told", [0, 0xFFFFFFFF, 0x7FFFFFFF - 36, 2 * 12_000 + 500])
def test_a_wav_whose_writer_knew_no_length_is_taken(told: int) -> None:
    content = bytearray(file_of(speechlike(0.5)))
    content[40:44] = told.to_bytes(4, "little")  # behind RIFF's header, the format, and the name of the data
    assert decode_recording(bytes(content)).seconds == (0.5 if told else 0.0)


@pytest.mark.parametrize(
    ("samples", "rate_hz", "match"),
    [
        (np.zeros(61 * 8_000, np.float32), 8_000, "longer than 60 s"),
        (np.zeros((8_000, 8), np.float32), 655_350, "655350 samples a second; at most 192000"),
    ],
)
def test_a_small_file_of_much_is_refused_before_it_is_decoded(
    samples: np.ndarray, rate_hz: int, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = file_of(samples, rate_hz=rate_hz, kind="FLAC")
    assert len(content) < 20_000
    monkeypatch.setattr(soundfile.SoundFile, "read", lambda *_, **__: pytest.fail("it is not decoded"))
    with pytest.raises(VoiceRefused, match=match):
        decode_recording(content)


def without_length(flac: bytes) -> bytes:
    """Its STREAMINFO ends with 36 bits of how many samples follow, and an MD5 of them (RFC 9639 section 8.2)."""
    count_at = 8 + 13
    return flac[:count_at] + bytes([flac[count_at] & 0xF0]) + bytes(4 + 16) + flac[count_at + 5 + 16 :]


def test_a_flac_that_does_not_say_how_long_it_is() -> None:
    samples = speechlike(4.0)
    content = without_length(file_of(samples, kind="FLAC"))
    recording = decode_recording(content)
    assert recording.seconds == 4.0
    np.testing.assert_allclose(recording.samples.numpy(), samples, rtol=0, atol=1e-4)


def test_a_flac_that_does_not_say_how_long_it_is_is_refused_once_it_is_too_long() -> None:
    content = without_length(file_of(np.zeros(100 * 8_000, np.float32), rate_hz=8_000, kind="FLAC"))
    with pytest.raises(VoiceRefused, match="longer than 60 s"):
        decode_recording(content)


def test_more_channels_than_anybody_records_are_refused() -> None:
    with pytest.raises(VoiceRefused, match="64 channels; at most 8"):
        decode_recording(file_of(np.zeros((100, 64), np.float32)))


def test_no_more_than_one_block_is_there_in_all_channels() -> None:
    samples = np.stack([speechlike(59.0)] * 8, axis=1)
    content = file_of(samples, kind="FLAC")
    tracemalloc.start()
    recording = decode_recording(content)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert recording.seconds == 59.0
    assert peak_bytes < samples.nbytes / 2
