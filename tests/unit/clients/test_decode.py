"""Decoded audio has exactly the samples that went in, however it was cut into messages."""

import builtins
import sys
from typing import Any, Literal

import numpy as np
import pytest

from tests.unit.clients.speech import opus_speech, pcm_speech
from voicegate.clients.python import decode
from voicegate.clients.python.decode import PcmDecoder, decode_all
from voicegate.clients.python.errors import MissingDependency


@pytest.mark.parametrize("frame_ms", [20, 40, 60])
@pytest.mark.parametrize("num_samples", [1, 479, 24_000, 24_001])
def test_opus_is_trimmed_at_both_ends(frame_ms: Literal[20, 40, 60], num_samples: int) -> None:
    speech = opus_speech(num_samples, frame_ms=frame_ms)
    decoded = np.frombuffer(decode_all(speech.opened, speech.audio), np.int16)
    assert len(decoded) == num_samples
    if num_samples > 1000:
        assert np.corrcoef(decoded, speech.samples)[0, 1] > 0.99


@pytest.mark.parametrize("packets_per_message", [1, 2, 100])
def test_messages_do_not_matter(packets_per_message: int) -> None:
    whole = opus_speech(10_000, packets_per_message=50)
    cut = opus_speech(10_000, packets_per_message=packets_per_message)
    assert decode_all(cut.opened, cut.audio) == decode_all(whole.opened, whole.audio)


def test_pcm_passes_through() -> None:
    speech = pcm_speech(1_234)
    assert decode_all(speech.opened, speech.audio) == speech.samples.tobytes()


def test_another_rate_has_another_number_of_samples() -> None:
    speech = opus_speech(24_000)
    assert len(decode_all(speech.opened, speech.audio, rate_hz=48_000)) == 2 * 48_000
    with pytest.raises(ValueError, match="does not come at"):
        PcmDecoder(pcm_speech(10).opened, rate_hz=48_000)
    with pytest.raises(ValueError, match="does not come at"):
        PcmDecoder(speech.opened, rate_hz=44_100)


def test_audio_that_was_cut_short_is_decoded_as_far_as_it_goes() -> None:
    speech = opus_speech(4_000)
    decoded = decode_all(speech.opened, speech.audio[:2])
    assert len(decoded) == 2 * (6 * 480 - speech.opened.pre_skip // 2)


def test_one_packet_waits_because_the_end_may_trim_it() -> None:
    speech = pcm_speech(960)
    decoder = PcmDecoder(speech.opened)
    assert decoder.decode(speech.audio[0]) == speech.samples[:480].tobytes()
    assert decoder.decode(speech.audio[1]) == speech.samples[480:].tobytes()
    assert decoder.finish() == b""


@pytest.mark.parametrize(
    ("error", "remedy"),
    [(ImportError("no opuslib"), "pip install opuslib-next"), (Exception("no lib"), "libopus0")],
)
def test_what_is_missing_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str
) -> None:
    speech = opus_speech(100)
    original = builtins.__import__

    def failing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("opuslib"):
            raise error
        return original(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "opuslib_next")
    monkeypatch.setattr(builtins, "__import__", failing)
    for needs_opus in (decode.check_opus, lambda: PcmDecoder(speech.opened)):
        with pytest.raises(MissingDependency, match=remedy):
            needs_opus()


def test_version_of_libopus() -> None:
    assert "libopus" in decode.check_opus()
