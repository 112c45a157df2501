"""How far samples are from those of a more exact vocoder: as a waveform, and as it is heard."""

import torch


def relative_error(samples: torch.Tensor, expected: torch.Tensor) -> float:
    """Error relative to the signal, root mean square."""
    return ((samples - expected).norm() / expected.norm()).item()


def log_spectrum_error(samples: torch.Tensor, expected: torch.Tensor) -> float:
    """Mean difference."""
    return (_log_spectrum(samples) - _log_spectrum(expected)).abs().mean().item()


def _log_spectrum(samples: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(960, device=samples.device)
    return torch.stft(samples, 960, 480, window=window, return_complex=True).abs().clamp(min=1e-3).log()
