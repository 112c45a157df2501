"""NVIDIA's signatures for TensorRT-LLM 1.2.1 (contract.json), as Python asks for them."""

import json
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Final

ENTRIES: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "contract.json").read_text())

_KINDS: Final = {"positional_or_keyword": Parameter.POSITIONAL_OR_KEYWORD}


def entry(name: str) -> dict[str, Any]:
    found: dict[str, Any] = ENTRIES[f"tensorrt_llm.{name}"]
    return found


def signature(name: str) -> Signature:
    """Signature of a function or method, without `self`; with `**kwargs` where it takes any."""
    described = entry(name)
    parameters = [
        Parameter(
            each["name"], _KINDS[each["kind"]], default=Parameter.empty if each.get("required") else each["default"]
        )
        for each in described["signature"]
    ]
    if described.get("accepts_var_keyword"):
        parameters.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
    return Signature(parameters)


def defaults(name: str) -> dict[str, Any]:
    """Defaults of a class of settings, by field; those that a factory makes are None here."""
    fields: dict[str, dict[str, Any]] = entry(name)["fields"]
    return {key: _default(each) for key, each in fields.items()}


def llm_settings() -> frozenset[str]:
    """Settings that LLM(...) takes beyond its signature, on the PyTorch backend."""
    described = entry("llmapi.llm_args.TorchLlmArgs")
    return frozenset({*described["base_fields"], *described["own_fields"]})


def _default(field: dict[str, Any]) -> Any:
    default = field.get("default")
    return None if isinstance(default, dict) else default
