"""Where `voicegate serve` has its engine: by itself, as asked, and with several devices."""

from pathlib import Path
from typing import Any

import pytest

from voicegate.engine.config import EngineConfig
from voicegate.gateway.cli.engine_place import has_engine_processes
from voicegate.gateway.cli.replicas import EngineTask, sites_of
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.config_fields import ConfigError


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    """/dev of a machine with one."""
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "with_a_gpu", "without"),
    [
        ({}, True, False),
        ({"device": "cpu"}, False, False),
        ({"device": "cuda"}, True, True),  # which then says that there is none
        ({"engine_process": "own"}, True, True),
        ({"engine_process": "own", "device": "cpu"}, True, True),
        ({"engine_process": "shared"}, False, False),
        ({"gpus": "0,1"}, True, True),
        ({"gpus": "cpu,cpu"}, True, True),
        ({"llm_device": "cuda:0", "token2wav_devices": "cuda:1"}, True, True),
        ({"llm_device": "cpu", "token2wav_devices": "cpu,cpu"}, False, False),
    ],
)
def test_the_engine_has_a_process_of_its_own_where_there_is_a_gpu(
    settings: dict[str, Any], with_a_gpu: bool, without: bool, gpu: Path, tmp_path: Path
) -> None:
    config = GatewayConfig(model_dir=Path("m"), **settings)
    assert has_engine_processes(config, {}, gpu) is with_a_gpu
    assert has_engine_processes(config, {}, tmp_path / "none") is without


@pytest.mark.parametrize(("visible", "is_one"), [("", False), ("-1", False), ("0", True), ("GPU-8932f937", True)])
def test_gpus_that_are_hidden_are_none(visible: str, is_one: bool, gpu: Path) -> None:
    config = GatewayConfig(model_dir=Path("m"))
    assert has_engine_processes(config, {"CUDA_VISIBLE_DEVICES": visible}, gpu) is is_one


def test_no_tools_of_a_driver_are_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert not has_engine_processes(GatewayConfig(model_dir=Path("m")), {}, tmp_path)


def test_devices_that_do_not_go_together_are_refused(gpu: Path) -> None:
    config = GatewayConfig(model_dir=Path("m"), llm_device="cuda:0")
    with pytest.raises(ConfigError, match="token2wav_devices"):
        has_engine_processes(config, {}, gpu)
    with pytest.raises(ConfigError, match="engine_process is shared"):
        GatewayConfig(gpus="0,1", engine_process="shared")


def test_the_one_engines_process_chooses_as_an_engine_here_would() -> None:
    config = GatewayConfig(model_dir=Path("m"), engine_process="own", threads=3, kv_dtype="float8")
    (site,) = sites_of(config, {"CUDA_VISIBLE_DEVICES": "4,5"})
    task = EngineTask.decode(site.greeting)
    assert (site.name, task.name) == ("engine", "engine")
    assert task.engine == EngineConfig(Path("m"), threads=3, kv_dtype="float8")
