"""Upstream's two noise tables, which belong to the model but stand in no checkpoint, checked by their hashes.

Both come from torch's generator after a fixed seed. The flow's normal draws are stored, because only torch's AVX2 and
AVX-512 kernels round them alike. The vocoder's uniform draws are the same everywhere and 259 MB: the recipe
(vocoder.excitation) is checked instead, and drawn again at each start.
"""

import hashlib
from pathlib import Path
from typing import Final

import torch

from voicegate.engine.checkpoint.conversion import Progress
from voicegate.engine.checkpoint.storage import Advance, Entry, Written, file_bytes, write_safetensors
from voicegate.engine.flow.euler import NOISE_FRAMES, upstream_noise
from voicegate.engine.units import NUM_MELS
from voicegate.engine.vocoder.excitation import MAX_ROWS, upstream_excitation

FLOW_NOISE_SHA256: Final = "584a26e6eaad944407a96c5999aaa5cd0a6a359309a841eade68bf805c072322"
EXCITATION_SHA256: Final = "2f60f92217f65e9f2728d4e662f520432603d88e7a24f78666cc88bb76247f61"

_NOISE_SHAPE: Final = (NUM_MELS, NOISE_FRAMES)


def flow_noise_bytes() -> int:
    return file_bytes([_entry(torch.empty(_NOISE_SHAPE, device="meta"))])


def write_flow_noise(path: Path, advance: Advance, progress: Progress) -> Written:
    """flow_noise.safetensors: `noise` [80, 15000] float32. Remarks on either table if it is not upstream's."""
    noise = upstream_noise().contiguous()
    if _sha256(noise) != FLOW_NOISE_SHA256:
        progress.remark(
            "this CPU's torch draws the flow's noise a little differently from upstream's (it has neither AVX2 nor "
            "AVX-512 kernels): up to 2.3e-6 in 38 % of the numbers, which is not audible; convert on an x86 machine "
            "for the same bits"
        )
    check_excitation(progress)
    return write_safetensors(path, [_entry(noise)], advance=advance)


def check_excitation(progress: Progress) -> bool:
    """Whether this torch draws upstream's table; a remark where it does not."""
    digest = hashlib.sha256()
    for block in upstream_excitation(MAX_ROWS):
        digest.update(block.numpy().data)
    is_upstreams = digest.hexdigest() == EXCITATION_SHA256
    if not is_upstreams:
        progress.remark(
            "this torch draws another excitation table than upstream's: speech will sound the same, but no sample of "
            "it will equal upstream's"
        )
    return is_upstreams


def _entry(noise: torch.Tensor) -> Entry:
    return Entry("noise", _NOISE_SHAPE, torch.float32, lambda: noise)


def _sha256(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.numpy().data).hexdigest()
