"""Settings: defaults, variables, flags, and errors that say what to do."""

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.gateway import config as gateway_config
from voicegate.gateway.config import GatewayConfig, config_fields, from_environment
from voicegate.gateway.config_fields import ConfigError


def test_defaults() -> None:
    config = from_environment({})
    assert config == GatewayConfig()
    assert (config.host, config.port, config.model_dir) == ("127.0.0.1", 8080, None)


def test_the_tiny_model_is_served_where_no_other_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert GatewayConfig(model_dir=Path("/models/x")).found_model_dir() == Path("/models/x")
    assert GatewayConfig().found_model_dir() == TINY_MODEL_DIR.resolve()
    monkeypatch.setattr(gateway_config, "__file__", str(tmp_path / "voicegate" / "gateway" / "config.py"))
    monkeypatch.setitem(sys.modules, "voicegate_tiny_model", SimpleNamespace(MODEL_DIR=tmp_path))
    assert GatewayConfig().found_model_dir() == tmp_path
    monkeypatch.setitem(sys.modules, "voicegate_tiny_model", None)
    with pytest.raises(ConfigError, match=r"--model-dir.*pip install \./models .*\[server\]"):
        GatewayConfig().found_model_dir()


def test_variables_and_flags() -> None:
    env = {
        "VOICEGATE_PORT": "1234",
        "VOICEGATE_MODEL_DIR": "/models/x",
        "VOICEGATE_DRAIN_S": "2.5",
        "VOICEGATE_LOG_FORMAT": "console",
        "VOICEGATE_THREADS": "",
        "VOICEGATE_MAX_UTTERANCES": "7",
        "PATH": "/bin",
    }
    config = from_environment(env, {"port": "99", "host": "0.0.0.0", "threads": 3, "lead_ms": None})
    assert (config.port, config.host, config.threads, config.lead_ms) == (99, "0.0.0.0", 3, 3000)
    assert (config.model_dir, config.drain_s) == (Path("/models/x"), 2.5)
    assert (config.log_format, config.max_utterances) == ("console", 7)


def test_what_kubernetes_tells_of_a_service_named_voicegate_is_no_setting() -> None:
    env = {
        "VOICEGATE_SERVICE_HOST": "10.96.12.34",
        "VOICEGATE_SERVICE_PORT": "80",
        "VOICEGATE_SERVICE_PORT_VOICES": "80",
        "VOICEGATE_PORT": "tcp://10.96.12.34:80",
        "VOICEGATE_PORT_80_TCP": "tcp://10.96.12.34:80",
        "VOICEGATE_PORT_80_TCP_PROTO": "tcp",
        "VOICEGATE_PORT_80_TCP_PORT": "80",
        "VOICEGATE_PORT_80_TCP_ADDR": "10.96.12.34",
        "VOICEGATE_WEB_SERVICE_HOST": "10.96.12.35",
        "VOICEGATE_WEB_PORT": "tcp://10.96.12.35:80",
    }
    assert from_environment(env) == from_environment({})


@pytest.mark.parametrize(
    ("env", "overrides", "message"),
    [
        ({"VOICEGATE_PROT": "1"}, {}, "VOICEGATE_PROT is no setting of voicegate; did you mean VOICEGATE_PORT?"),
        ({"VOICEGATE_": "1"}, {}, "did you mean"),
        ({}, {"hots": "x"}, "did you mean host?"),
        ({"VOICEGATE_PORT": "eighty"}, {}, "VOICEGATE_PORT is 'eighty'; it must be a whole number"),
        ({"VOICEGATE_PORT": ""}, {}, "VOICEGATE_PORT is ''"),
        ({}, {"drain_s": "soon"}, "--drain-s is 'soon'; it must be a number"),
        ({"VOICEGATE_PORT": "65536"}, {}, "port is 65536; it must be at least 0 and at most 65535"),
        ({"VOICEGATE_DRAIN_S": "nan"}, {}, "drain_s is nan"),
        ({"VOICEGATE_THREADS": "0"}, {}, "threads is 0; it must be at least 1"),
        ({"VOICEGATE_DEVICE": "tpu"}, {}, "VOICEGATE_DEVICE is 'tpu'; it must be one of auto, cpu, cuda"),
        ({"VOICEGATE_PRECISION": "fp4"}, {}, "VOICEGATE_PRECISION is 'fp4'; it must be one of bfloat16, float32"),
        ({}, {"kv_dtype": "int8"}, "--kv-dtype is 'int8'; it must be one of auto, bfloat16, float32, float8"),
        ({}, {"flow_products": "int8"}, "--flow-products is 'int8'; it must be one of precision, float8"),
        (
            {"VOICEGATE_VOCODER_PRECISION": "fp16"},
            {},
            "VOICEGATE_VOCODER_PRECISION is 'fp16'; it must be one of float16, bfloat16, tf32, float32",
        ),
        ({"VOICEGATE_EAGER": "yes"}, {}, "VOICEGATE_EAGER is 'yes'; it must be one of true, false"),
        ({}, {"max_flow_batch": "85"}, "max_flow_batch is 85; it must be at least 1 and at most 84"),
        ({"VOICEGATE_MAX_ACTIVE_CLAUSES": "0"}, {}, "max_active_clauses is 0; it must be at least 1 and at most 1024"),
        ({}, {"metric_tags": ",".join(map(str, range(65)))}, "metric_tags has 65 tags; at most 64"),
        ({}, {"text_bytes": "1000000"}, "max_message_bytes is 1048576; text of 1000000 bytes can need"),
    ],
)
def test_errors_name_the_setting_and_the_remedy(env: dict[str, str], overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_environment(env, overrides)
    assert message in str(caught.value)


def test_settings_of_a_gpu() -> None:
    env = {"VOICEGATE_PRECISION": "float32", "VOICEGATE_KV_DTYPE": "float8", "VOICEGATE_EAGER": "true"}
    config = from_environment(env, {"vocoder_precision": "tf32", "max_active_clauses": "400", "max_flow_batch": "16"})
    assert (config.precision, config.kv_dtype, config.vocoder_precision) == ("float32", "float8", "tf32")
    assert (config.max_active_clauses, config.max_flow_batch, config.eager) == (400, 16, True)
    assert not from_environment({"VOICEGATE_EAGER": "false"}).eager
    assert not from_environment({"VOICEGATE_EAGER": "true"}, {"eager": "false"}).eager


def test_values_given_in_code_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="log_level is 'loud'; it must be one of debug"):
        GatewayConfig(log_level="loud")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="eager is 'off'; it must be one of true, false"):
        GatewayConfig(eager="off")  # type: ignore[arg-type]


def test_every_field_has_a_help_text_and_names() -> None:
    fields = {config_field.name: config_field for config_field in config_fields()}
    assert list(fields) == [item.name for item in dataclasses.fields(GatewayConfig)]
    assert all(config_field.help for config_field in fields.values())
    stall = fields["write_stall_s"]
    assert (stall.env, stall.flag, stall.value_type) == ("VOICEGATE_WRITE_STALL_S", "--write-stall-s", float)
    assert fields["device"].choices == ("auto", "cpu", "cuda")
    assert fields["threads"].is_optional
    assert fields["model_dir"].value_type is Path


@pytest.mark.parametrize("name", ["", "gw.1", "a b", "x" * 64, "ü"])
def test_an_instance_is_a_name_that_a_balancer_can_find_in_an_address(name: str) -> None:
    with pytest.raises(ConfigError, match=r"instance is .* letters, digits and hyphens"):
        GatewayConfig(instance=name)
    assert GatewayConfig(instance="gw-1").instance == "gw-1"
