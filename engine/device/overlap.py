"""Whether kernels may start while the one before still runs, and wait inside: programmatic dependent launch."""

import torch


def can_overlap(device: torch.device) -> bool:
    """It, and the prefetch that goes with it, came with compute capability 9."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
