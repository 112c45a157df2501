"""The kernel compiles for a Hopper by the real NVRTC; what is launched, and what is done without one."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from tests.unit.engine.token2wav.flow.cuda.support import Bench, Row
from voicegate.engine.device.cuda.nvrtc import compile_kernel
from voicegate.engine.token2wav.flow.cuda import fused_attention
from voicegate.engine.token2wav.flow.cuda.fused_attention import AttendTile
from voicegate.engine.token2wav.flow.cuda.lone import attention, making
from voicegate.engine.token2wav.flow.cuda.lone.arguments import (
    HEAD_DIM,
    KERNEL,
    MACROS,
    NUM_THREADS,
    SHARED_MEMORY_BYTES,
)

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    making.lone_attention.cache_clear()
    yield
    making.lone_attention.cache_clear()


def test_it_compiles_for_a_hopper() -> None:
    code = compile_kernel(KERNEL, MACROS, capability=(9, 0))
    assert code.startswith(b"\x7fELF")
    assert b"attend" in code


@pytest.mark.parametrize(("capability", "num_warnings"), [((8, 9), 0), ((9, 0), 1)])
def test_where_there_is_none_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], num_warnings: int
) -> None:
    """A Hopper whose driver refuses."""
    warnings = []

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("CUresult: CUDA_ERROR_NO_DEVICE")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(attention, "load_function", refuse)
    monkeypatch.setattr(making.log, "warning", lambda event, **fields: warnings.append((event, fields["error"])))
    assert [making.lone_attention(torch.device("cuda", 0)) for _ in range(2)] == [None, None]
    assert warnings == [("no_lone_attention", "CUresult: CUDA_ERROR_NO_DEVICE")] * num_warnings


def test_on_a_cpu_there_is_none() -> None:
    assert making.lone_attention(torch.device("cpu")) is None


class TritonKernel:
    """In place of one: the grids that it was launched with."""

    def __init__(self, grids: list[object]) -> None:
        self._grids = grids

    def __getitem__(self, grid: object) -> Any:
        self._grids.append(grid)
        return lambda *_, **__: None


class Launches:
    """In place of driver.Launch: what was launched how."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, function: object, programs: tuple[int, int, int], **options: object) -> Any:
        return lambda arguments: self.seen.append((function, programs, options, arguments))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Of a GPU with eight multiprocessors, which is enough for two heads of 16 queries."""
    launches = Launches()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=8), raising=False
    )
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(attention, "load_function", lambda _, name, **options: (name, options))
    monkeypatch.setattr(attention, "Launch", launches)
    lone = making.lone_attention(torch.device("cuda", 0))
    monkeypatch.setattr(fused_attention, "lone_attention", lambda _: lone)
    return launches


def bench_of(num_frames: int, kv_dtype: torch.dtype | None = torch.float8_e4m3fn) -> Bench:
    return Bench(
        [Row(1, num_frames)],
        num_rows=1,
        num_lines=num_frames,
        dtype=torch.bfloat16,
        kv_dtype=kv_dtype,
        head_dim=HEAD_DIM,
    )


def attend(bench: Bench, tile: AttendTile | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    qkv = torch.zeros(2 * bench.batch.num_lines, 3 * bench.config.num_heads * HEAD_DIM, dtype=torch.bfloat16)
    return qkv, fused_attention.attend(bench.tensors, bench.batch, qkv, 1, tile=tile)


def test_a_block_alone_is_launched(launches: Launches) -> None:
    bench = bench_of(20)
    qkv, out = attend(bench)
    [(function, programs, options, arguments)] = launches.seen
    assert function == ("attend", {"shared_memory_bytes": SHARED_MEMORY_BYTES})
    assert programs == (2 * bench.config.num_heads, 1, 2)
    assert options == {
        "num_threads": NUM_THREADS,
        "shared_memory_bytes": SHARED_MEMORY_BYTES,
        "is_pdl": bench.tensors.is_pdl,
    }
    assert (arguments.qkv, arguments.out, arguments.layer) == (qkv.data_ptr(), out.data_ptr(), 1)


@pytest.mark.parametrize(
    ("num_frames", "kv_dtype", "tile"),
    [
        pytest.param(50, torch.float8_e4m3fn, None, id="more programs than multiprocessors"),
        pytest.param(20, None, None, id="a context in bfloat16"),
        pytest.param(20, torch.float8_e4m3fn, AttendTile(1, 0, 1, 4), id="a tile is given"),
    ],
)
def test_all_else_goes_as_many_rows_do(
    monkeypatch: pytest.MonkeyPatch,
    launches: Launches,
    num_frames: int,
    kv_dtype: torch.dtype | None,
    tile: AttendTile | None,
) -> None:
    grids: list[object] = []
    monkeypatch.setattr(fused_attention.attention_kernels, "attend_kernel", TritonKernel(grids))
    monkeypatch.setattr(fused_attention, "merge", lambda *_, **__: None)
    attend(bench_of(num_frames, kv_dtype), tile)
    assert launches.seen == []
    assert len(grids) == 1
