"""Train the speech tokenizer: mel -> 25 codes a second, which say what was said and with what melody, not by whom.

    python -m models.tiny.training.speech_tokenizer --corpus corpus --state state --minutes 1.5

What makes them so: a decoder that is told the voice must give back the mel, the phoneme, the pitch against the
voice's own, and whether it is voiced. engine/voices/tiny_analyser.py runs the encoder.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from . import fast, run, shards
from .voices import VOICES

LEVELS: Final = (5, 5, 5, 5, 5)
NUM_CODES: Final = math.prod(LEVELS)
_PLACES: Final = tuple(math.prod(LEVELS[:index]) for index in range(len(LEVELS)))  # what a level is worth in the code
# A token is a code and a phase, so that none is drawn twice within the window of upstream's sampling: one less than
# these. More -> ids are left for fewer codes; fewer -> that window is shorter than upstream's.
PHASES: Final = 2
SILENT_CODE: Final = 0  # all channels at their lowest level; training keeps sounds away from it
SILENT_BELOW: Final = -7.2  # mean of the 80 bins' log mel, in both frames
MEL_SHIFT, MEL_SCALE = 6.0, 4.0
_MARGIN: Final = 1e-3
_WIDTH: Final = 256
_CROP_FRAMES, _BATCH = 128, 64
_NUM_SYMBOLS: Final = 192
_AT_ONCE: Final = 256  # utterances that are tokenised


class _Normed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.n = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.n(x.transpose(1, 2))
        return normed.transpose(1, 2)


class Residual(nn.Module):
    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.n = _Normed(width)
        self.c1 = nn.Conv1d(width, width, taps, padding=(taps - 1) // 2)
        self.c2 = nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.c2(functional.gelu(self.c1(self.n(x))))
        return out


class Encoder(nn.Module):
    """[B, 80, T] -> [B, 5, T / 2]. The names are those of speech_tokenizer.safetensors."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Conv1d(shards.NUM_MELS, _WIDTH, 5, padding=2)
        self.r1 = nn.Sequential(Residual(_WIDTH, 5), Residual(_WIDTH, 3))
        self.down = nn.Conv1d(_WIDTH, _WIDTH, 4, stride=2, padding=1)
        self.r2 = nn.Sequential(Residual(_WIDTH, 3), Residual(_WIDTH, 3), Residual(_WIDTH, 1))
        self.proj = nn.Conv1d(_WIDTH, len(LEVELS), 1)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        hidden = self.r1(functional.gelu(self.inp((mel + MEL_SHIFT) / MEL_SCALE)))
        out: torch.Tensor = self.proj(self.r2(functional.gelu(self.down(hidden))))
        return out


def rounded(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, 5, n] -> the same on their levels, -1 to 1, with a straight gradient; and the codes [B, n]."""
    levels, places = _levels_and_places(values.device)
    reach = (levels - 1) * (1 + _MARGIN) / 2
    offset = (levels % 2 == 0) * 0.5
    bounded = torch.tanh(values.float() + torch.atanh(offset / reach)) * reach - offset
    level = bounded.round()
    codes = ((level.long() + levels // 2) * places).sum(1)
    return (bounded + (level - bounded).detach()) / (levels // 2), codes


def levels_of(codes: torch.Tensor) -> torch.Tensor:
    """[...] -> [5, ...]: the level of each channel."""
    return torch.stack([codes // place % level for place, level in zip(_PLACES, LEVELS, strict=True)])


def is_silent(mel: torch.Tensor) -> torch.Tensor:
    """[B, 80, T] -> [B, T / 2]."""
    return mel.mean(1).reshape(len(mel), -1, 2).amax(2) < SILENT_BELOW


@functools.cache
def _levels_and_places(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """[1, 5, 1] both: of each channel, how many levels, and what one is worth in the code."""
    levels, places = (torch.tensor(each, device=device)[None, :, None] for each in (LEVELS, _PLACES))
    return levels, places


class Tokenizer(nn.Module):
    """The encoder and, for training alone, what its codes must tell."""

    def __init__(self, num_voices: int) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.voice = nn.Embedding(num_voices, _WIDTH)
        self.up = nn.Conv1d(len(LEVELS), _WIDTH, 3, padding=1)
        self.shared = nn.Sequential(Residual(_WIDTH, 3), Residual(_WIDTH, 5))
        self.spoken = nn.Conv1d(_WIDTH, _NUM_SYMBOLS + 2, 1)  # phonemes, pitch, voicing
        self.sound = nn.Sequential(Residual(_WIDTH, 5), Residual(_WIDTH, 5), nn.Conv1d(_WIDTH, shards.NUM_MELS, 1))

    def forward(self, mel: torch.Tensor, voice: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """-> mel as told [B, 80, T], phonemes, pitch and voicing [B, 194, T]."""
        quantised, _ = rounded(self.encoder(mel))  # -1 in all channels is SILENT_CODE
        return self._decoded(torch.where(is_silent(mel)[:, None], -1.0, quantised), voice)

    def told(self, codes: torch.Tensor, voice: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode codes [B, T / 2] to the values of `forward`."""
        levels, _ = _levels_and_places(codes.device)
        level = levels_of(codes).transpose(0, 1)
        return self._decoded((level - levels // 2) / (levels // 2), voice)

    def _decoded(self, quantised: torch.Tensor, voice: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.shared(self.up(quantised.repeat_interleave(2, dim=2)))
        return self.sound(hidden + self.voice(voice)[:, :, None]), self.spoken(hidden)


def voice_pitches(corpus: shards.Corpus) -> torch.Tensor:
    """[voices]: the mean logarithm of each voice's pitch."""
    pitch = corpus.arrays["pitch_hz"].float()
    voice = frame_voices(corpus).to(pitch.device)
    means = [pitch[(voice == number) & (pitch > 0)].clamp(min=1).log().mean() for number in range(len(VOICES))]
    return torch.stack(means).nan_to_num()


def frame_voices(corpus: shards.Corpus) -> torch.Tensor:
    return torch.repeat_interleave(torch.from_numpy(corpus.voices), torch.from_numpy(corpus.frames))


def codes_of(encoder: Encoder, mel: torch.Tensor) -> torch.Tensor:
    """[T, 80] of one utterance -> [T / 2], silence told by its loudness."""
    mel = mel.T[None].float()
    _, codes = rounded(encoder(mel))
    return torch.where(is_silent(mel), SILENT_CODE, codes)[0]


@torch.inference_mode()
def all_codes(encoder: Encoder, corpus: shards.Corpus) -> torch.Tensor:
    """[frames / 2] of the corpus's flat arrays, each utterance by itself. Equal lengths share a call."""
    mel = corpus.arrays["mel"]
    codes = torch.empty(len(mel) // 2, dtype=torch.int16, device=mel.device)
    by_length: dict[int, list[int]] = {}
    for start, frames in zip(corpus.starts.tolist(), corpus.frames.tolist(), strict=True):
        by_length.setdefault(frames, []).append(start)
    for frames, starts in by_length.items():
        for first in range(0, len(starts), _AT_ONCE):
            index = torch.tensor(starts[first : first + _AT_ONCE], device=mel.device)[:, None] + torch.arange(
                frames, device=mel.device
            )
            batch = mel[index].float().transpose(1, 2)
            _, found = rounded(encoder(batch))
            codes[index[:, ::2] // 2] = torch.where(is_silent(batch), SILENT_CODE, found).short()
    return codes


def token_ids(silent_tokens: Sequence[int], num_tokens: int) -> torch.Tensor:
    """[num_tokens]: the id of each code and phase, code-major, then those that are never drawn.

    Phases of the silent code are silent tokens, so upstream's rule for silence works as meant.
    """
    silent = sorted(silent_tokens)
    others = sorted(set(range(num_tokens)) - set(silent))
    place = SILENT_CODE * PHASES
    return torch.tensor([*others[:place], *silent[:PHASES], *others[place:], *silent[PHASES:]])


def trained(state: Path, device: torch.device) -> Encoder:
    weights = run.averaged_weights(state, "tokenizer")
    encoder = Encoder()
    encoder.load_state_dict(
        {name.removeprefix("encoder."): weight for name, weight in weights.items() if name.startswith("encoder.")}
    )
    return encoder.to(device).eval()


def main(arguments: Sequence[str] | None = None) -> None:
    options = run.parser(__doc__).parse_args(arguments)
    torch.manual_seed(options.seed)
    corpus = shards.load(
        shards.shard_paths(options.corpus), ("mel", "pitch_hz", "symbols"), options.device, max_hours=options.hours
    )
    pitches, voices = voice_pitches(corpus), frame_voices(corpus).to(options.device)
    model = Tokenizer(len(VOICES)).to(options.device)
    training = run.Run("tokenizer", model, options, rate=1e-3)
    mel, pitch, symbols = (corpus.arrays[key] for key in ("mel", "pitch_hz", "symbols"))
    # As many crops of each voice as of the other.
    starts = [
        torch.nonzero(voices[: len(mel) - _CROP_FRAMES] == number)[::2, 0] // 2 * 2 for number in range(len(VOICES))
    ]
    starts = [each for each in starts if len(each)]
    batch = max(int(_BATCH * options.batch_share), len(starts))

    def step() -> run.Losses:
        chosen = torch.cat(
            [each[torch.randint(len(each), (batch // len(starts),), device=options.device)] for each in starts]
        )
        index = chosen[:, None] + torch.arange(_CROP_FRAMES, device=options.device)
        voice = voices[chosen]
        with fast.low_precision(options):
            wanted = mel[index].float().transpose(1, 2)
            told, spoken = model(wanted, voice)
        told, spoken = told.float(), spoken.float()
        hertz = pitch[index].float()
        is_voiced = (hertz > 0).float()
        melody = (hertz.clamp(min=1).log() - pitches[voice][:, None]) * 4
        off_pitch = ((spoken[:, _NUM_SYMBOLS] - melody).abs() * is_voiced).sum() / is_voiced.sum().clamp(min=1)
        losses = {
            "mel": functional.l1_loss(told, wanted / MEL_SCALE),
            "phoneme": 2.0 * functional.cross_entropy(spoken[:, :_NUM_SYMBOLS], symbols[index].long()),
            "pitch": 0.5 * off_pitch,
            "voicing": 0.3 * functional.binary_cross_entropy_with_logits(spoken[:, _NUM_SYMBOLS + 1], is_voiced),
        }
        training.descend(losses)
        return losses

    step = fast.captured(step, options)
    for _ in training.steps():
        training.set_rate()
        training.account(step())


if __name__ == "__main__":
    main()
