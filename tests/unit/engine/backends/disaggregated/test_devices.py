"""Where a disaggregated engine's models go, and what of it is refused before anything is loaded."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from structlog.testing import capture_logs

from tests.support.golden import TINY_MODEL_DIR
from tests.unit.engine.load.test_memory import RELEASED, resolved
from tests.unit.engine.load.test_runners import gpu_lanes
from voicegate.engine.backends.disaggregated import addition
from voicegate.engine.backends.disaggregated.addition import ADDITION, Devices, open_devices, smallest
from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.device.lanes import CudaLane
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.cpu import decoder
from voicegate.engine.load import build
from voicegate.engine.load.devices import resolved_for_device
from voicegate.engine.load.memory import GIB, PROCESS_BYTES, SPARE_GPU_BYTES, fitting_room, gpu_memory, spare_room
from voicegate.engine.model.model_json import load_model_config

APART = EngineConfig(Path("m"), llm_device="cuda:0", token2wav_devices=("cuda:1", "cuda:2"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"llm_device": "cuda:0"}, "llm_device is set and token2wav_devices is not: they go together"),
        ({"token2wav_devices": ("cuda:1",)}, "token2wav_devices is set and llm_device is not"),
        ({"llm_device": "cuda:0", "token2wav_devices": ("cuda:1",), "device": "cuda"}, r"device \(cuda\) are both set"),
        ({"llm_device": "gpu0", "token2wav_devices": ("cuda:1",)}, "llm_device names 'gpu0'; a device is cuda:0"),
        ({"llm_device": "cuda", "token2wav_devices": ("cuda:1",)}, "llm_device names 'cuda'; a device is cuda:0"),
        ({"llm_device": "cuda:0", "token2wav_devices": ("cuda:01",)}, "token2wav_devices names 'cuda:01'"),
        ({"llm_device": "cuda:0", "token2wav_devices": ("cuda:1", "cuda:0")}, "cuda:0, which is the LLM's"),
        ({"llm_device": "cuda:0", "token2wav_devices": ("cuda:1", "cuda:1")}, "names cuda:1 twice"),
        ({"llm_device": "cuda:0", "token2wav_devices": ("cpu",)}, "mix cpu with GPUs"),
        ({"llm_device": "cpu", "token2wav_devices": ("cuda:0",)}, "mix cpu with GPUs"),
        ({"llm_device": "cuda:0", "token2wav_devices": ("cuda:1", "cpu")}, "mix cpu with GPUs"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineConfig(Path("m"), **settings)


def test_cpus_stand_in_for_any_number_of_devices() -> None:
    config = replace(APART, llm_device="cpu", token2wav_devices=("cpu", "cpu"))
    opened = open_devices(resolved_for_device(config))
    assert len(opened.token2wavs) == 2
    assert not any(device.is_cuda for device in (opened.llm, *opened.token2wavs))


def gpus(monkeypatch: pytest.MonkeyPatch, *gib: int) -> None:
    """So many, as far as placing goes."""
    gpu_lanes(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gib))
    monkeypatch.setattr(addition, "gpu_of", lambda device: Gpu(gib[device.index] * GIB, 132))


def test_each_device_has_a_lane_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 80, 80, 80)
    opened = open_devices(resolved_for_device(APART))
    assert [str(device.device) for device in (opened.llm, *opened.token2wavs)] == ["cuda:0", "cuda:1", "cuda:2"]
    lanes = [opened.llm.llm_lane, *(device.token2wav_lane for device in opened.token2wavs)]
    assert len({id(lane) for lane in lanes}) == 3
    assert all(isinstance(lane, CudaLane) for lane in lanes)


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 80, 80)
    with pytest.raises(EngineError, match="there is no cuda:2: torch sees 2 GPUs, counted from 0"):
        open_devices(APART)
    with pytest.raises(EngineError, match="there is no cuda:2"):
        resolved_for_device(APART)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineError, match="there is no cuda:0: torch sees 0 GPUs"):
        open_devices(APART)


def test_sizes_follow_the_smallest_token2wav_and_what_one_llm_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 24, 140, 80)
    alone = EngineConfig(Path("m"))
    assert (
        resolved_for_device(APART).max_active_clauses == alone.resolved("cuda", Gpu(80 * GIB, 132)).max_active_clauses
    )
    gpus(monkeypatch, *[140] * 5)
    of_four = replace(APART, token2wav_devices=("cuda:1", "cuda:2", "cuda:3", "cuda:4"))
    assert resolved_for_device(of_four).max_active_clauses == 256
    with pytest.raises(EngineError, match="300 for each of 4 token2wavs; one LLM takes 1024 at once, which is 256"):
        resolved_for_device(replace(of_four, max_active_clauses=300))
    mixed = smallest([Gpu(80 * GIB, 108, has_float8=False), Gpu(40 * GIB, 132)])
    assert mixed == Gpu(40 * GIB, 108, has_float8=False)


@pytest.mark.parametrize(("vectors", "expected"), [("avx2", 12), (None, 17)])  # none: ARM, or no compiler
def test_a_first_block_is_as_long_as_this_machine_needs(
    vectors: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "vectors_of_processor", lambda: vectors)
    monkeypatch.setattr(decoder, "load_library", object)
    config = EngineConfig(Path("m"), llm_device="cpu", token2wav_devices=("cpu",))
    assert resolved_for_device(config).first_block_tokens == expected


@pytest.mark.parametrize("short", ["cuda:0", "cuda:2"])
def test_a_gpu_without_room_for_its_models_is_named_before_any_is_loaded(
    short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, 80, 80, 80)
    monkeypatch.delattr(addition, "load_llm")
    monkeypatch.setattr(addition, "free_gpu_bytes", lambda device: GIB if str(device) == short else 79 * GIB)
    config = resolved_for_device(replace(APART, model_dir=TINY_MODEL_DIR))
    with pytest.raises(EngineError, match=f"1.0 GiB are free on {short} and this model takes") as caught:
        addition.load_all_stages(config, load_model_config(TINY_MODEL_DIR), {})
    assert ("its slots" in str(caught.value)) == (short == "cuda:0")
    assert ("the vocoder" in str(caught.value)) == (short == "cuda:2")


def test_the_models_apart_take_what_they_take_together() -> None:
    """But for what kernels and graphs need on each, and slots for all."""
    config, model = APART.resolved("cuda"), load_model_config(TINY_MODEL_DIR)
    room = spare_room(config)
    together = gpu_memory(config, model, room)
    llm, token2wav, _ = ADDITION.gpu_memories(config, model, room).values()
    further_slots_bytes = together.llm_slot_bytes
    assert llm.least_bytes + token2wav.least_bytes == together.least_bytes + SPARE_GPU_BYTES + further_slots_bytes


def test_as_many_voices_have_a_place_as_beside_the_llm_or_more() -> None:
    together, room = resolved(80 * GIB), VoiceRoom((250,) * 256)
    placed = replace(together, llm_device="cuda:0", token2wav_devices=("cuda:1",))
    of_both, of_flow = (fitting_room(each, RELEASED, room, 80 * GIB - PROCESS_BYTES) for each in (together, placed))
    assert len(of_flow.prompt_tokens) >= len(of_both.prompt_tokens)


def test_the_gpu_with_least_memory_decides_how_many_voices_have_short_first_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPUs with a flow count: the LLM's does not count."""
    config = resolved(80 * GIB, max_active_clauses=300)
    device = gpu_lanes(monkeypatch)
    lanes = [replace(device, device=torch.device("cuda", number)) for number in range(3)]
    free = dict(zip([each.device for each in lanes], (GIB, 79 * GIB, 70 * GIB), strict=True))
    monkeypatch.setattr(addition, "free_gpu_bytes", free.__getitem__)
    monkeypatch.setattr(addition, "check_room", lambda *_, **__: None)
    monkeypatch.setattr(addition, "load_text", Mock(side_effect=ValueError("far enough")))

    def is_kept(numbers: Sequence[int], num_voices: int) -> bool:
        names = tuple(f"cuda:{number}" for number in numbers)
        placed = replace(config, llm_device="cuda:0", token2wav_devices=names)
        monkeypatch.setattr(
            addition, "open_devices", lambda _: Devices(lanes[0], tuple(lanes[number] for number in numbers))
        )
        monkeypatch.setattr(build, "voice_room", lambda *_: VoiceRoom((150,) * num_voices))
        with capture_logs() as logs, pytest.raises(ValueError, match="far enough"):
            addition.load_all_stages(placed, RELEASED, {})
        return "no_short_first_blocks" not in {each["event"] for each in logs}

    def most_voices(*numbers: int) -> int:
        return next(number for number in count(1) if not is_kept(numbers, number + 1))

    assert most_voices(1, 2) == most_voices(2) < most_voices(1)
