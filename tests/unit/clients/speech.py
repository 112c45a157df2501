"""A tone as a server would send it, for tests of what a client does with audio."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import opuslib_next

from voicegate.clients.python.audio import Audio
from voicegate.protocol import messages as wire

RATE_HZ = 24_000


@dataclass(frozen=True)
class Speech:
    opened: wire.Opened
    audio: list[Audio]
    samples: npt.NDArray[np.int16]


def tone(num_samples: int) -> npt.NDArray[np.int16]:
    return (10_000 * np.sin(2 * np.pi * 300 * np.arange(num_samples) / RATE_HZ)).astype(np.int16)


def opus_speech(num_samples: int, *, packets_per_message: int = 3, frame_ms: Literal[20, 40, 60] = 20) -> Speech:
    encoder = opuslib_next.Encoder(RATE_HZ, 1, opuslib_next.APPLICATION_AUDIO)
    encoder.bitrate = 96_000
    lag = int(encoder.lookahead)
    frame = RATE_HZ * frame_ms // 1000
    samples = tone(num_samples)
    padded = np.concatenate((samples, np.zeros(lag + -(num_samples + lag) % frame, np.int16)))
    packets = [encoder.encode(padded[i : i + frame].tobytes(), frame) for i in range(0, len(padded), frame)]
    opened = wire.Opened("c", 0, "woman", wire.Format(frame_ms=frame_ms), RATE_HZ, 2 * lag)
    return Speech(opened, _messages(packets, packets_per_message, 48 * frame_ms, 2 * (lag + num_samples)), samples)


def pcm_speech(num_samples: int) -> Speech:
    samples = tone(num_samples)
    packets = [samples[i : i + 480].tobytes() for i in range(0, num_samples, 480)]
    opened = wire.Opened("c", 0, "woman", wire.Format(codec="pcm_s16le"), RATE_HZ, 0)
    return Speech(opened, _messages(packets, 3, 960, 2 * num_samples), samples)


def _messages(packets: list[bytes], per_message: int, packet_48k: int, end_pts_48k: int) -> list[Audio]:
    audio = [
        Audio(tuple(packets[i : i + per_message]), i * packet_48k, per_message * packet_48k, 0.0, is_first=i == 0)
        for i in range(0, len(packets), per_message)
    ]
    return [*audio, Audio((), end_pts_48k, 0, 0.0, is_last=True)]
