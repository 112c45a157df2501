"""safetensors files written tensor by tensor: in the dtype asked for, hashed on the way, complete or not there at all.

The format: eight bytes of header length, a JSON header of names, dtypes, shapes and offsets, then the data.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import torch

from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.whole_file import whole_file, write_whole

DTYPES: Final[Mapping[str, torch.dtype]] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
}
_BLOCK_BYTES: Final = 16 * 1024 * 1024
_ALIGNMENT_BYTES: Final = 8

# Always float32, whatever a file's dtype. The f0 predictor and the harmonic source decide the phase of every later
# sample, where a relative error of 1e-6 is heard after half a minute; rotary frequencies are multiplied by positions.
_EXACT: Final = ("f0_predictor.", "m_source.", "rotary_embed.inv_freq")

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor to write. `make` is called when its turn comes, so that a file never lies in memory whole."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], torch.Tensor]

    @property
    def num_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Written:
    num_bytes: int
    sha256: str


def stored_dtype(name: str, shape: tuple[int, ...], wanted: torch.dtype) -> torch.dtype:
    """`wanted` for matrices and convolutions; float32 for what is small or must be exact."""
    is_vector = torch.Size(shape).numel() == max(shape, default=1)  # biases, norms, gains: under 0.1 % of the numbers
    return torch.float32 if is_vector or any(part in name for part in _EXACT) else wanted


def cast(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Raises CheckpointError for numbers that are not finite, in the source or in `dtype`."""
    if not tensor.is_floating_point():
        raise CheckpointError(f"{name} holds {tensor.dtype}, not floating-point numbers")
    converted = tensor.detach().to(dtype).contiguous()
    if not converted.isfinite().all():
        if tensor.isfinite().all():
            largest = tensor.abs().max().item()
            raise CheckpointError(f"{name} reaches {largest:.3g}, which {dtype} cannot hold: choose bf16 or fp32")
        raise CheckpointError(f"{name} holds numbers that are not finite: the checkpoint is damaged")
    return converted


def file_bytes(entries: Iterable[Entry], texts: Mapping[str, str] | None = None) -> int:
    """How large `write_safetensors` will make the file."""
    listed = list(entries)
    return len(_header(listed, texts or {})) + sum(entry.num_bytes for entry in listed)


def write_safetensors(
    path: Path, entries: Iterable[Entry], *, texts: Mapping[str, str] | None = None, advance: Advance | None = None
) -> Written:
    """Atomic: `path` is there only once it is complete and on the disk. `texts` become the header's metadata."""
    # Widest numbers first, so that each tensor is aligned to its own.
    listed = sorted(entries, key=lambda entry: (-entry.dtype.itemsize, entry.name))
    with whole_file(path) as file:
        out = _Sink(file)
        out.write(_header(listed, texts or {}))
        for entry in listed:
            tensor = entry.make()
            if tuple(tensor.shape) != entry.shape or tensor.dtype != entry.dtype:
                raise ValueError(f"{entry.name} came as {tensor.dtype} {list(tensor.shape)}, not as was announced")
            data = tensor.contiguous().flatten().view(torch.uint8).numpy().data
            for start in range(0, len(data), _BLOCK_BYTES):
                block = data[start : start + _BLOCK_BYTES]
                out.write(block)
                if advance is not None:
                    advance(len(block))
    return out.written()


def write_bytes(path: Path, content: bytes) -> Written:
    """Atomic, as above."""
    write_whole(path, content)
    return Written(len(content), hashlib.sha256(content).hexdigest())


def copy_file(source: Path, path: Path, advance: Advance | None = None) -> Written:
    """Atomic. A hard link where the file system allows one: the files are large, and nobody writes into them."""
    try:
        path.unlink(missing_ok=True)
        os.link(source.resolve(), path)  # a download cache holds links to its files; link() would link those
    except OSError:  # another file system, or one without links
        with source.open("rb") as file, whole_file(path) as copy:
            out = _Sink(copy)
            while block := file.read(_BLOCK_BYTES):
                out.write(block)
                if advance is not None:
                    advance(len(block))
        return out.written()
    return hash_file(path, advance)


def hash_file(path: Path, advance: Advance | None = None) -> Written:
    digest = hashlib.sha256()
    num_bytes = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            num_bytes += len(block)
            if advance is not None:
                advance(len(block))
    return Written(num_bytes, digest.hexdigest())


class _Sink:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._num_bytes = 0

    def write(self, block: bytes | memoryview) -> None:
        self._file.write(block)
        self._digest.update(block)
        self._num_bytes += len(block)

    def written(self) -> Written:
        return Written(self._num_bytes, self._digest.hexdigest())


def _header(entries: list[Entry], texts: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": dict(texts)} if texts else {}
    offset = 0
    for entry in entries:
        span = [offset, offset + entry.num_bytes]
        header[entry.name] = {"dtype": _NAMES[entry.dtype], "shape": list(entry.shape), "data_offsets": span}
        offset = span[1]
    content = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    content += b" " * (-len(content) % _ALIGNMENT_BYTES)
    return len(content).to_bytes(8, "little") + content
