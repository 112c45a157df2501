"""Playback on the sound card through the optional `sounddevice` (the extra `play`): a jitter buffer and a callback."""

import asyncio
from types import TracebackType
from typing import Any, Final, Self

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.decode import PcmDecoder
from voicegate.clients.python.errors import MissingDependency
from voicegate.clients.python.jitter import BYTES_PER_SAMPLE, JitterBuffer
from voicegate.protocol import messages as wire

# Lower begins sooner and stutters on a worse network; higher the other way round.
PREBUFFER_MS: Final = 80


class SoundCard:
    """Plays one context: `async with SoundCard(context.opened) as card`, `card.play(audio)`, `await card.drained()`.

    Raises MissingDependency where there is no sounddevice, no PortAudio, no output device, or no libopus.
    """

    def __init__(self, opened: wire.Opened, *, prebuffer_ms: int = PREBUFFER_MS) -> None:
        sounddevice = _load_sounddevice()
        self._decoder = PcmDecoder(opened)
        self.buffer = JitterBuffer(rate_hz=self._decoder.rate_hz, prebuffer_ms=prebuffer_ms)
        self._loop = asyncio.get_running_loop()
        self._is_drained = asyncio.Event()
        try:
            self._stream = sounddevice.RawOutputStream(
                samplerate=self._decoder.rate_hz, channels=1, dtype="int16", callback=self._fill, latency="low"
            )
        except sounddevice.PortAudioError as error:
            raise MissingDependency(f"no sound device to play on: {error}") from error

    async def __aenter__(self) -> Self:
        self._stream.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Plays what the device still holds; aborts instead where something went wrong.
        await asyncio.to_thread(self._stream.stop if error is None else self._stream.abort)
        self._stream.close()

    def play(self, audio: Audio) -> None:
        self.buffer.push(self._decoder.decode(audio))
        if audio.is_last:
            self.buffer.complete()

    def stop(self) -> int:
        """Barge-in: silence now. Returns the milliseconds played, for `Context.cancel`."""
        return self.buffer.clear()

    async def drained(self) -> None:
        """Returns when everything has been handed to the device."""
        self.buffer.push(self._decoder.finish())
        self.buffer.complete()
        await self._is_drained.wait()

    def _fill(self, output: Any, num_frames: int, _time: Any, _status: Any) -> None:
        """Called by PortAudio's thread."""
        output[:] = self.buffer.pull(num_frames * BYTES_PER_SAMPLE)
        if self.buffer.is_drained:
            self._loop.call_soon_threadsafe(self._is_drained.set)


def find_sound_device() -> str:
    """Name of the default output. Raises MissingDependency with the remedy."""
    sounddevice = _load_sounddevice()
    try:
        device = sounddevice.query_devices(kind="output")
    except (sounddevice.PortAudioError, ValueError) as error:
        raise MissingDependency(f"no sound device to play on: {error}") from error
    return str(device["name"])


def _load_sounddevice() -> Any:
    try:
        import sounddevice  # noqa: PLC0415 - optional, and raises on import without PortAudio
    except ImportError as error:
        raise MissingDependency("playing needs sounddevice: `pip install sounddevice opuslib-next`") from error
    except OSError as error:
        raise MissingDependency(
            "PortAudio is not installed: `apt-get install libportaudio2` (Debian, Ubuntu)"
        ) from error
    return sounddevice
