"""Train the vocoder: spectra first, then against discriminators that tell its samples from the teachers'.

python -m models.tiny.training.vocoder --corpus corpus --state state --model models/tiny/model.json --minutes 20
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.features import slaney_filters

from . import fast, run, shards
from .hift import LOOK_RIGHT, SAMPLE_RATE_HZ, Vocoder
from .voices import VOICES

_LEFT, _MAIN = 6, 34  # frames of a crop: left out of the losses, and within
# The engine's vocoder begins without history, at an utterance's first quiet frames. Where no crop began so with losses
# from its first frame on, each utterance began with a tick.
_BEGINNINGS: Final = 0.25  # share of the crops that begin with an utterance
_BEGINS_WITHIN: Final = 4  # frames: as many are quiet before a teacher speaks; a model's speech may have fewer
_BATCH: Final = 24
_SPECTRAL_WEIGHT, _MEL_WEIGHT = 20, 45
_MEL_SAMPLES, _MEL_HOP = 1920, 240  # the model's own mel (features.mel_24k), twice as often
_MODEL_MEL_FLOOR: Final = 1e-5
_CONVOLUTIONS_TRIED: Final = 4  # algorithms of each, before the first step
_DISCRIMINATED_FROM: Final = 0.1  # of the stage's time, where it begins without a state
_RESOLUTIONS: Final = (256, 512, 1024, 2048)
_MEL_FLOOR: Final = 3e-4  # with a lower one the empty parts of the spectrum are most of the loss
_PERIODS: Final = (2, 3, 5, 7, 11)
_SPECTRUM_SIZES: Final = (512, 1024, 2048)


class _OfPeriod(nn.Module):
    def __init__(self, period: int) -> None:
        super().__init__()
        self._period = period
        widths = (1, 24, 64, 128, 192)
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv2d(before, after, (5, 1), (3, 1), (2, 0)))
            for before, after in itertools.pairwise(widths)
        )
        self.last = nn.utils.parametrizations.weight_norm(nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, samples: torch.Tensor) -> list[torch.Tensor]:
        samples = samples[:, : samples.shape[1] // self._period * self._period]
        x = samples.view(len(samples), 1, -1, self._period)
        return _through(self.layers, self.last, x)


class _OfSpectrum(nn.Module):
    window: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        width = 24
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(layer)
            for layer in (
                nn.Conv2d(2, width, (7, 5), (2, 1), (3, 2)),
                nn.Conv2d(width, width, (5, 3), (2, 1), (2, 1)),
                nn.Conv2d(width, width, (5, 3), (2, 1), (2, 2), dilation=(1, 2)),
                nn.Conv2d(width, width, (3, 3), (2, 1), (1, 1)),
            )
        )
        self.last = nn.utils.parametrizations.weight_norm(nn.Conv2d(width, 1, 3, padding=1))
        self.register_buffer("window", torch.hann_window(size), persistent=False)

    def forward(self, samples: torch.Tensor) -> list[torch.Tensor]:
        spectrum = torch.stft(
            samples, self._size, self._size // 4, window=self.window, return_complex=True, normalized=True
        )
        # Loudness compressed: else the quiet top of the spectrum is nothing beside the rest.
        x = torch.view_as_real(spectrum / (spectrum.abs() + 1e-4).sqrt()).permute(0, 3, 1, 2)
        return _through(self.layers, self.last, x)


def _through(layers: nn.ModuleList, last: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    outputs = []
    for layer in layers:
        x = functional.leaky_relu(layer(x), 0.1)
        outputs.append(x)
    return [*outputs, last(x)]


class Discriminators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList([*map(_OfPeriod, _PERIODS), *map(_OfSpectrum, _SPECTRUM_SIZES)])

    def forward(self, samples: torch.Tensor) -> list[list[torch.Tensor]]:
        return [discriminator(samples) for discriminator in self.each]


class SpectralLoss(nn.Module):
    """Mels at several resolutions, and magnitudes where they are loud."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._windows = {size: torch.hann_window(size, device=device) for size in _RESOLUTIONS}
        self._filters = {
            size: slaney_filters(
                SAMPLE_RATE_HZ, size, {256: 32, 512: 64, 1024: 96, 2048: 128}[size], SAMPLE_RATE_HZ / 2
            ).to(device)
            for size in _RESOLUTIONS
        }

    def forward(self, samples: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        total = samples.new_zeros(())
        for size, window in self._windows.items():
            made, told = (_magnitudes(each, window, size // 4) * (1920 / size) for each in (samples, wanted))
            made_mel, told_mel = (
                (each.transpose(1, 2) @ self._filters[size]).clamp(min=_MEL_FLOOR).log() for each in (made, told)
            )
            total = total + functional.l1_loss(made_mel, told_mel) + 0.5 * (made - told).norm() / told.norm()
        return total / len(_RESOLUTIONS)


class MelLoss:
    """How far the mel of what is made lies from the mel of what was told, in nats: the mel that the vocoder is given.

    The weight is HiFi-GAN's (arXiv:2010.05646). Spectra of short windows differ by chance, and hide this one: after
    45,000 steps without this loss a bin was 0.3 off, and most of the lost words were lost by it (README).
    """

    def __init__(self, device: torch.device) -> None:
        self._window = torch.hann_window(_MEL_SAMPLES, device=device)
        self._filters = slaney_filters(SAMPLE_RATE_HZ, _MEL_SAMPLES, shards.NUM_MELS, SAMPLE_RATE_HZ / 2).to(device)

    def __call__(self, made: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        return functional.l1_loss(self._mel(made), self._mel(told))

    def _mel(self, samples: torch.Tensor) -> torch.Tensor:
        magnitudes = _magnitudes(samples, self._window, _MEL_HOP, center=False)
        return (magnitudes.transpose(1, 2) @ self._filters).clamp(min=_MODEL_MEL_FLOOR).log()


def _magnitudes(samples: torch.Tensor, window: torch.Tensor, hop: int, *, center: bool = True) -> torch.Tensor:
    """[B, n] -> [B, bins, T]."""
    spectrum = torch.stft(samples, len(window), hop, window=window, center=center, return_complex=True)
    return (spectrum.abs().square() + 1e-9).sqrt()


class Crops:
    def __init__(self, corpus: shards.Corpus, device: torch.device, batch: int) -> None:
        self._arrays, self._device = corpus.arrays, device
        room = _LEFT + _MAIN + LOOK_RIGHT
        self._of_voice = []
        for number in range(len(VOICES)):
            starts = [
                torch.arange(start, start + frames - room)
                for start, frames, voice in zip(corpus.starts, corpus.frames, corpus.voices, strict=True)
                if voice == number and frames > room
            ]
            if starts:
                beginnings = torch.cat([each[:_BEGINS_WITHIN] for each in starts])
                self._of_voice.append((beginnings.to(device), torch.cat(starts).to(device)))
        share = batch // len(self._of_voice)
        begun = max(int(_BEGINNINGS * share), 1)
        self._counts = (begun, share - begun)
        of_a_voice = torch.tensor([0] * begun + [_LEFT] * (share - begun), device=device)
        self._first = of_a_voice.repeat(len(self._of_voice))[:, None]
        self._main = torch.arange(_MAIN, device=device)
        self._main_samples = torch.arange(_MAIN * shards.SAMPLES_PER_FRAME, device=device)

    def counted(self, values: torch.Tensor) -> torch.Tensor:
        """[B, T] or [B, 480 T] of a batch -> what the losses are of: the first part of the crops that begin with an
        utterance, and of the others what has history."""
        if values.shape[1] == _LEFT + _MAIN:
            return values.gather(1, self._first + self._main)
        return values.gather(1, self._first * shards.SAMPLES_PER_FRAME + self._main_samples)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """-> mel [B, 80, T + 4], pitch [B, T], samples [B, 480 T]."""
        frames = _LEFT + _MAIN
        starts = torch.cat(
            [
                each[torch.randint(len(each), (count,), device=self._device)]
                for of_voice in self._of_voice
                for each, count in zip(of_voice, self._counts, strict=True)
            ]
        )
        index = starts[:, None] + torch.arange(frames + LOOK_RIGHT, device=self._device)
        mel = self._arrays["mel"][index].float().transpose(1, 2)
        pitch = self._arrays["pitch_hz"][index[:, :frames]].float()
        per_frame = self._arrays["samples"].view(-1, shards.SAMPLES_PER_FRAME)
        return mel, pitch, per_frame[index[:, :frames]].flatten(1).float() / 32767


def pitch_loss(found: torch.Tensor, pitch: torch.Tensor) -> torch.Tensor:
    """Relative where voiced; silence where not."""
    is_voiced = pitch > 0
    return torch.where(is_voiced, (found - pitch).abs() / pitch.clamp(min=50), found / 200).mean()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = run.parser(__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model.json")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    corpus = shards.load(
        shards.shard_paths(options.corpus), ("mel", "pitch_hz", "samples"), options.device, max_hours=options.hours
    )
    model = Vocoder(load_model_config(options.model.parent).vocoder).to(options.device)
    judges = Discriminators().to(options.device)
    judging = run.Run("vocoder_judges", judges, options, rate=3e-4, betas=(0.8, 0.99), decay=0.0, clip=20.0)
    training = run.Run(
        "vocoder",
        model,
        options,
        rate=5e-4,
        betas=(0.8, 0.99),
        decay=0.0,
        clip=20.0,
        watched="spectral",
        saved_beside=[judging],
    )
    crops = Crops(corpus, options.device, max(int(_BATCH * options.batch_share), 2))
    spectral, mel_loss = SpectralLoss(options.device), MelLoss(options.device)
    model.snake = fast.compiled(model.snake, options)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = _CONVOLUTIONS_TRIED

    def spectral_losses() -> tuple[run.Losses, torch.Tensor, torch.Tensor]:
        mel, pitch, wanted = crops.batch()
        weights = model.folded()
        found = model.pitch(weights, mel[:, :, :-1])
        is_told = torch.rand(len(mel), 1, device=mel.device) < 0.5
        hertz = torch.where(is_told, pitch, found.detach())
        cycles = torch.rand(len(mel), 9, device=mel.device)
        noise = torch.rand(len(mel), wanted.shape[1], 9, device=mel.device)
        spectra = model.spectra(model.source(weights, hertz, cycles, noise))
        with fast.low_precision(options):
            filtered = model.filter(weights, mel, spectra)
        made, told = crops.counted(model.samples(filtered)), crops.counted(wanted)
        losses = {
            "spectral": _SPECTRAL_WEIGHT * spectral(made, told),
            "mel": _MEL_WEIGHT * mel_loss(made, told),
            "pitch": pitch_loss(crops.counted(found), crops.counted(pitch)),
        }
        return losses, made, told

    def step_by_spectra() -> tuple[run.Losses, run.Losses]:
        losses, _, _ = spectral_losses()
        training.descend(losses)
        return losses, {}

    def step_against_judges() -> tuple[run.Losses, run.Losses]:
        """One verdict for both: the judges learn from it what was made, and the maker what they saw."""
        losses, made, told = spectral_losses()
        with fast.low_precision(options):
            verdicts = judges(torch.cat((told, made)))
        losses = {**losses, **_makers_losses(verdicts)}
        judged = {"judges": _judges_loss(verdicts)}
        made_gradients = training.gradients(losses, keep=True)
        judging.descend(judged)
        training.descend_by(made_gradients)
        return losses, judged

    first_step = fast.captured(step_by_spectra, options)
    later_step = fast.captured(step_against_judges, options)
    for _ in training.steps():
        is_judged = training.num_steps_before > 0 or training.progress > _DISCRIMINATED_FROM
        training.set_rate()
        judging.set_rate()
        losses, judged = (later_step if is_judged else first_step)()
        training.account(losses)
        if judged:
            judging.account(judged)


def _judges_loss(verdicts: list[list[torch.Tensor]]) -> torch.Tensor:
    total = torch.zeros((), device=verdicts[0][0].device)
    for outputs in verdicts:
        told, made = outputs[-1].float().chunk(2)
        total = total + (told - 1).square().mean() + made.square().mean()
    return total


def _makers_losses(verdicts: list[list[torch.Tensor]]) -> dict[str, torch.Tensor]:
    fooled = likeness = torch.zeros((), device=verdicts[0][0].device)
    for outputs in verdicts:
        *layers, verdict = outputs
        fooled = fooled + (verdict.float().chunk(2)[1] - 1).square().mean()
        for layer in layers:
            told, made = layer.float().chunk(2)
            likeness = likeness + (told.detach() - made).abs().mean() / told.detach().abs().mean().clamp(min=1e-4)
    return {"fooled": fooled, "likeness": likeness}


if __name__ == "__main__":
    main()
