"""`--gpus` becomes engine processes: their names, what each is told, and which GPU it sees."""

from dataclasses import replace
from pathlib import Path

import pytest

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.gateway.cli.replicas import EngineTask, config_of_one, names_of, sites_of, visible_gpu
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.config_fields import ConfigError


def test_places_have_names_of_their_own() -> None:
    assert names_of(("0", "1", "10")) == ["cuda:0", "cuda:1", "cuda:10"]
    assert names_of(("cpu", "cpu", "0", "0", "cpu")) == ["cpu", "cpu.2", "cuda:0", "cuda:0.2", "cpu.3"]


def test_each_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.cli.replicas.num_usable_cores", lambda: 16)
    alone = EngineConfig(Path("m"))
    of_two = config_of_one(alone, 2, is_gpu=True)
    assert (of_two.device, of_two.threads, of_two.encoder_processes) == ("cuda", 8, 4)
    assert config_of_one(alone, 1, is_gpu=True).encoder_processes == 8
    assert config_of_one(alone, 64, is_gpu=True).encoder_processes == 1
    on_cpu = config_of_one(alone, 32, is_gpu=False)
    assert (on_cpu.device, on_cpu.threads, on_cpu.encoder_processes) == ("cpu", 1, None)
    chosen = replace(alone, threads=3, encoder_processes=0)
    assert config_of_one(chosen, 2, is_gpu=True) == replace(chosen, device="cuda")


def test_numbers_are_of_the_gpus_that_are_visible() -> None:
    assert visible_gpu(3, None) == "3"
    assert visible_gpu(1, "4, 5,6") == "5"
    assert visible_gpu(0, "GPU-8932f937,MIG-1") == "GPU-8932f937"
    for visible in ("4", ""):
        with pytest.raises(EngineError, match="gpus names GPU 1, and CUDA_VISIBLE_DEVICES has"):
            visible_gpu(1, visible)


def test_an_engine_process_is_told_what_an_engine_here_would_be() -> None:
    config = GatewayConfig(model_dir=Path("m"), gpus="0, cpu", lead_ms=900, log_format="console", threads=1)
    first, second = sites_of(config, {})
    assert (first.name, second.name) == ("cuda:0", "cpu")
    task = EngineTask.decode(second.greeting)
    assert task.engine == EngineConfig(Path("m"), device="cpu", lead_ms=900, threads=1)
    assert (task.name, task.log_level, task.log_format) == ("cpu", "info", "console")


@pytest.mark.parametrize("gpus", ["all", "0,-1", "cuda:0", "0;1", "1.5"])
def test_what_is_no_place_is_refused(gpus: str) -> None:
    with pytest.raises(ConfigError, match="must be numbers of GPUs such as 0,1, or cpu,cpu"):
        GatewayConfig(gpus=gpus)


def test_where_engines_run_is_said_once() -> None:
    with pytest.raises(ConfigError, match="gpus says where"):
        GatewayConfig(gpus="0", device="cpu")
    assert GatewayConfig().engine_places == ()


def test_an_engine_with_its_models_apart_is_another_way() -> None:
    for apart in ({"llm_device": "cuda:0"}, {"token2wav_devices": "cuda:1"}):
        with pytest.raises(ConfigError, match="a whole engine on each GPU, or one with its models on several"):
            GatewayConfig(gpus="0,1", **apart)  # type: ignore[arg-type]
