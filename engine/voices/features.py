"""Prompt audio -> what upstream's models were trained to hear: three spectra and a resampler, in plain torch.

Samples are float32 in [-1, 1], mono. Checked against upstream's own features in tests/parity/test_voice_features.py.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn.functional import pad

from voicegate.engine import units

# Rate of the speech tokenizer and the speaker encoder; the flow's mel is at units.SAMPLE_RATE_HZ.
ANALYSIS_RATE_HZ = 16_000
MEL_TOP_HZ = units.SAMPLE_RATE_HZ / 2  # of CosyVoice3's mel

_MEL_FFT_SAMPLES = 1920
_MEL_FLOOR = 1e-5
_WHISPER_BINS, _WHISPER_FFT_SAMPLES, _WHISPER_HOP_SAMPLES = 128, 400, 160
_FBANK_BINS, _FBANK_FRAME_SAMPLES, _FBANK_HOP_SAMPLES, _FBANK_FFT_SAMPLES = 80, 400, 160, 512
_FBANK_LOW_HZ, _FBANK_PREEMPHASIS, _POVEY_POWER = 20.0, 0.97, 0.85
# torchaudio.transforms.Resample's defaults: zero crossings a side, and the passband's share of the lower rate.
_RESAMPLE_CROSSINGS, _RESAMPLE_ROLLOFF = 6, 0.99
# Output samples computed at once: bounds the memory at about 30 MB.
_RESAMPLE_PIECE = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class PromptAudio:
    """One recording as the analysers want it."""

    samples_16k: torch.Tensor  # [n] float32
    samples_24k: torch.Tensor  # [m] float32
    mel: torch.Tensor  # [T, 80] float32, log, 50 frames a second

    @classmethod
    def from_samples(cls, samples: torch.Tensor, rate_hz: int, *, mel_top_hz: float = MEL_TOP_HZ) -> "PromptAudio":
        samples_24k = resample(samples, rate_hz, units.SAMPLE_RATE_HZ)
        mel = mel_24k(samples_24k, top_hz=mel_top_hz)
        return cls(resample(samples, rate_hz, ANALYSIS_RATE_HZ), samples_24k, mel)


def mel_24k(samples: torch.Tensor, *, top_hz: float = MEL_TOP_HZ) -> torch.Tensor:
    """[n] at 24 kHz -> [T, 80] natural-log mel, T = n // 480: Matcha-TTS's, 0..top_hz, as the flow was trained on."""
    margin = (_MEL_FFT_SAMPLES - units.SAMPLES_PER_FRAME) // 2
    padded = pad(samples[None], (margin, margin), mode="reflect")[0]
    frames = padded.unfold(0, _MEL_FFT_SAMPLES, units.SAMPLES_PER_FRAME) * torch.hann_window(_MEL_FFT_SAMPLES)
    magnitude = (_power(frames) + 1e-9).sqrt()
    filters = slaney_filters(units.SAMPLE_RATE_HZ, _MEL_FFT_SAMPLES, units.NUM_MELS, top_hz)
    return (magnitude @ filters).clamp(min=_MEL_FLOOR).log()


def whisper_log_mel(samples: torch.Tensor) -> torch.Tensor:
    """[n] at 16 kHz -> [128, n // 160] as OpenAI's Whisper has it, but not padded to 30 s."""
    margin = _WHISPER_FFT_SAMPLES // 2
    padded = pad(samples[None], (margin, margin), mode="reflect")[0]
    frames = padded.unfold(0, _WHISPER_FFT_SAMPLES, _WHISPER_HOP_SAMPLES) * torch.hann_window(_WHISPER_FFT_SAMPLES)
    mel = (
        (
            _power(frames)[:-1]
            @ slaney_filters(ANALYSIS_RATE_HZ, _WHISPER_FFT_SAMPLES, _WHISPER_BINS, ANALYSIS_RATE_HZ / 2)
        )
        .clamp(min=1e-10)
        .log10()
    )
    return ((mel.clamp(min=float(mel.max()) - 8) + 4) / 4).T


def speaker_fbank(samples: torch.Tensor) -> torch.Tensor:
    """[n] at 16 kHz -> [T, 80] Kaldi filter banks (snip edges, no dither), each bin's mean over time taken off."""
    frames = samples.unfold(0, _FBANK_FRAME_SAMPLES, _FBANK_HOP_SAMPLES)
    frames = frames - frames.mean(1, keepdim=True)
    frames = frames - _FBANK_PREEMPHASIS * torch.cat([frames[:, :1], frames[:, :-1]], 1)
    frames = frames * torch.hann_window(_FBANK_FRAME_SAMPLES, periodic=False).pow(_POVEY_POWER)
    frames = pad(frames, (0, _FBANK_FFT_SAMPLES - _FBANK_FRAME_SAMPLES))
    features = (_power(frames) @ _kaldi_filters()).clamp(min=torch.finfo(torch.float32).eps).log()
    return features - features.mean(0)


def resample(samples: torch.Tensor, from_hz: int, to_hz: int) -> torch.Tensor:
    """[n] -> [ceil(n * to_hz / from_hz)]: a sinc under a Hann window, the formula of torchaudio's Resample.

    Evaluated per output sample, so that rates without a common divisor need no huge table of kernels.
    """
    if from_hz == to_hz:
        return samples
    divisor = math.gcd(from_hz, to_hz)
    old, new = from_hz // divisor, to_hz // divisor
    cutoff = min(old, new) * _RESAMPLE_ROLLOFF  # in units of the common divisor
    reach = math.ceil(_RESAMPLE_CROSSINGS * old / cutoff)
    padded = pad(samples, (reach, reach + old))
    taps = torch.arange(-reach, reach + 2)
    pieces = []
    for start in range(0, -(-len(samples) * new // old), _RESAMPLE_PIECE):
        index = torch.arange(start, min(start + _RESAMPLE_PIECE, -(-len(samples) * new // old)))
        whole, rest = index * old // new, index * old % new  # the output's place between two input samples
        distance = (taps[None] / old - (rest[:, None] / (old * new)).double()) * cutoff
        window = (distance.clamp(-_RESAMPLE_CROSSINGS, _RESAMPLE_CROSSINGS) * (math.pi / _RESAMPLE_CROSSINGS / 2)).cos()
        kernel = torch.sinc(distance.clamp(-_RESAMPLE_CROSSINGS, _RESAMPLE_CROSSINGS)) * window.square() * cutoff / old
        pieces.append((padded[whole[:, None] + taps + reach] * kernel.float()).sum(1))
    return torch.cat(pieces)


def _power(frames: torch.Tensor) -> torch.Tensor:
    """[frames, n] -> [frames, n // 2 + 1]"""
    spectrum: torch.Tensor = torch.fft.rfft(frames)
    return spectrum.abs().square()


@cache
def slaney_filters(rate_hz: int, fft_samples: int, num_bins: int, top_hz: float) -> torch.Tensor:
    """[fft_samples // 2 + 1, num_bins] triangles of equal area, 0 Hz to `top_hz` (librosa's default mel)."""
    edges_hz = _slaney_hz(torch.linspace(0, _slaney_mel(top_hz), num_bins + 2, dtype=torch.float64))
    filters = _triangles(torch.linspace(0, rate_hz / 2, fft_samples // 2 + 1, dtype=torch.float64), edges_hz)
    return (filters * (2 / (edges_hz[2:] - edges_hz[:-2]))).float()


@cache
def _kaldi_filters() -> torch.Tensor:
    """[257, 80] triangles of height one on Kaldi's mel scale, drawn in mel; the last bin, half the rate, is in none."""
    num_bins = _FBANK_FFT_SAMPLES // 2
    bins_hz = torch.arange(num_bins, dtype=torch.float64) * ANALYSIS_RATE_HZ / _FBANK_FFT_SAMPLES
    low, high = (1127 * math.log(1 + hz / 700) for hz in (_FBANK_LOW_HZ, ANALYSIS_RATE_HZ / 2))
    edges = torch.linspace(low, high, _FBANK_BINS + 2, dtype=torch.float64)
    return pad(_triangles(1127 * (1 + bins_hz / 700).log(), edges), (0, 0, 0, 1)).float()


def _triangles(points: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """[points, edges - 2]: each rises from one edge to the next and falls to the one after."""
    rise = (points[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - points[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(rise, fall).clamp(min=0)


# Slaney's mel scale (Auditory Toolbox, 1998): linear below 1 kHz, 27 steps of a factor 6.4 above.
_LINEAR_MELS_PER_HZ, _LOG_START_HZ, _LOG_START_MEL, _LOG_STEP = 3 / 200, 1000.0, 15.0, math.log(6.4) / 27


def _slaney_mel(hz: float) -> float:
    return _LOG_START_MEL + math.log(hz / _LOG_START_HZ) / _LOG_STEP


def _slaney_hz(mel: torch.Tensor) -> torch.Tensor:
    curved = _LOG_START_HZ * ((mel - _LOG_START_MEL) * _LOG_STEP).exp()
    return torch.where(mel < _LOG_START_MEL, mel / _LINEAR_MELS_PER_HZ, curved)
