"""The kernel compiles for a Hopper by the real NVRTC, and what is done without one."""

from pathlib import Path

import pytest
import torch

from voicegate.engine.token2wav.flow.cuda.few import making
from voicegate.engine.token2wav.flow.cuda.few.arguments import KERNEL

pytestmark = pytest.mark.unit


def test_it_compiles_for_a_hopper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from voicegate.engine.device.cuda.nvrtc import compile_kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    code = compile_kernel(KERNEL, {}, capability=(9, 0))
    assert code.startswith(b"\x7fELF")
    assert b"attend" in code


@pytest.mark.parametrize(("capability", "num_warnings"), [((8, 9), 0), ((9, 0), 1)])
def test_where_there_is_none_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], num_warnings: int
) -> None:
    """A Hopper whose driver refuses: there is no GPU here at all."""
    warnings = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(making.log, "warning", lambda event, **_: warnings.append(event))
    making.few_attention.cache_clear()
    try:
        assert [making.few_attention(torch.device("cuda", 0)) for _ in range(2)] == [None, None]
    finally:
        making.few_attention.cache_clear()
    assert warnings == ["no_few_attention"] * num_warnings


def test_on_a_cpu_there_is_none() -> None:
    assert making.few_attention(torch.device("cpu")) is None
