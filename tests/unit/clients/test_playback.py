"""The sound card's shell, with a stand-in for sounddevice that pulls as PortAudio's thread does."""

import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.clients.deadline import deadline
from tests.unit.clients.speech import opus_speech, pcm_speech
from voicegate.clients.python.errors import MissingDependency
from voicegate.clients.python.playback import SoundCard, find_sound_device


class PortAudioError(Exception):
    pass


class StandInStream:
    latest: "StandInStream"

    def __init__(self, *, callback: Callable[..., None], samplerate: int, **_options: Any) -> None:
        StandInStream.latest = self
        self.rate_hz = samplerate
        self.heard = b""
        self.calls: list[str] = []
        self._callback = callback
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.calls.append("stop")
        self._end()

    def abort(self) -> None:
        self.calls.append("abort")
        self._end()

    def close(self) -> None:
        self.calls.append("close")

    def _end(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped.wait(0.0005):
            output = bytearray(2 * 240)
            self._callback(output, 240, None, None)
            self.heard += bytes(output)


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    with deadline():
        yield


@pytest.fixture
def sounddevice(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module = SimpleNamespace(
        RawOutputStream=StandInStream, PortAudioError=PortAudioError, query_devices=lambda kind: {"name": f"an {kind}"}
    )
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return module


async def test_everything_is_played_in_order(sounddevice: SimpleNamespace) -> None:
    speech = pcm_speech(12_345)
    async with SoundCard(speech.opened) as card:
        for audio in speech.audio:
            card.play(audio)
        await card.drained()
    stream = StandInStream.latest
    assert stream.rate_hz == 24_000
    assert stream.heard.strip(b"\0") in speech.samples.tobytes()
    assert card.buffer.played_ms == 12_345 // 24
    assert stream.calls == ["stop", "close"]


async def test_audio_that_was_cut_short_is_played_too(sounddevice: SimpleNamespace) -> None:
    speech = opus_speech(4_000)
    async with SoundCard(speech.opened) as card:
        card.play(speech.audio[0])
        await card.drained()
    assert card.buffer.played_ms == (3 * 480 - 156) // 24


async def test_barge_in_tells_what_was_played(sounddevice: SimpleNamespace) -> None:
    speech = pcm_speech(2_400_000)  # more than is pulled while this thread has to wait for its turn
    async with SoundCard(speech.opened) as card:
        for audio in speech.audio:
            card.play(audio)
        played_ms = card.stop()
        await card.drained()
    assert played_ms == card.buffer.played_ms < 100_000


async def test_an_error_silences_the_device_at_once(sounddevice: SimpleNamespace) -> None:
    with pytest.raises(LookupError):
        async with SoundCard(pcm_speech(10).opened):
            raise LookupError
    assert StandInStream.latest.calls == ["abort", "close"]


async def test_what_is_missing_is_named_with_the_remedy(
    sounddevice: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_options: Any) -> None:
        raise PortAudioError("no device")

    assert find_sound_device() == "an output"
    sounddevice.RawOutputStream = sounddevice.query_devices = fail
    with pytest.raises(MissingDependency, match="no sound device to play on: no device"):
        SoundCard(pcm_speech(10).opened)
    with pytest.raises(MissingDependency, match="no device"):
        find_sound_device()
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(MissingDependency, match="pip install sounddevice"):
        find_sound_device()
