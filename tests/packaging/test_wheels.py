"""Contents of the distributions, and their declared needs."""

import ast
import json
import re
import sys
import tomllib
from email import message_from_string
from importlib.metadata import packages_distributions
from pathlib import Path
from zipfile import ZipFile

import voicegate
from tests.packaging.conftest import LIGHT, Distributions
from tests.packaging.environments import ROOT

# Packages of their own.
APART = {("clients", name) for name in ("javascript", "pipecat", "livekit", "livekit-node")}


def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path) -> dict[str, list[str]]:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = message_from_string(archive.read(name).decode())
    return {key: message.get_all(key, []) for key in message}


def needs(wheel: Path, extra: str | None) -> set[str]:
    """Distributions that are installed with `extra`, or with no extra."""
    found = set()
    for requirement in metadata(wheel)["Requires-Dist"]:
        what, _, condition = requirement.partition(";")
        wanted = re.search(r"extra == ['\"]([\w-]+)['\"]", condition)
        if (wanted[1] if wanted else None) == extra:
            found.add(what.strip())
    own = {what for what in found if what.startswith("voicegate-tts[")}
    inner = [needs(wheel, each) for what in own for each in what.removeprefix("voicegate-tts[").rstrip("]").split(",")]
    return {re.split(r"[<>=!~ \[]", what)[0] for what in found - own}.union(*inner)


def test_the_wheel_holds_one_package_with_all_it_reads(distributions: Distributions) -> None:
    held = names(distributions.wheel)
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == {"voicegate"}
    folders = {name.split("/")[1] for name in held if name.startswith("voicegate/") and name.count("/") > 1}
    assert folders == {"clients", "engine", "gateway", "protocol"}
    kinds = ("*.c", "*.json", "*.toml", "*.yaml")
    found = [path for folder in folders for kind in kinds for path in (ROOT / folder).rglob(kind)]
    data = [path for path in found if path.parts[len(ROOT.parts) : len(ROOT.parts) + 2] not in APART]
    data += [path for path in (ROOT / "clients" / "browser").rglob("*") if path.is_file()]
    assert len(data) > 20
    assert {f"voicegate/{path.relative_to(ROOT)}" for path in data} <= held
    assert "voicegate/py.typed" in held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)
    assert not [name for name in held if name.endswith((".safetensors", ".wav"))]


def test_every_module_is_in_the_wheel(distributions: Distributions) -> None:
    folders = ("clients", "engine", "gateway", "protocol")
    here = [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    modules = {f"voicegate/{path}" for path in here if path.parts[:2] not in APART}
    assert modules == {name for name in names(distributions.wheel) if re.match(r"voicegate/\w+/.*\.py$", name)}


def test_a_wheel_of_the_source_distribution_is_a_wheel_of_the_tree(distributions: Distributions) -> None:
    assert names(distributions.wheel) == names(distributions.wheel_of_tree)


def test_the_model_is_a_distribution_of_its_own(distributions: Distributions) -> None:
    held = names(distributions.tiny_model)
    here = {path.relative_to(ROOT / "models" / "tiny") for path in (ROOT / "models" / "tiny").rglob("*")}
    files = {str(path) for path in here if path.suffix and path.parts[0] != "training"}
    assert {f"voicegate_tiny_model/tiny/{name}" for name in files | {"NOTICE"}} <= held
    assert not any("training" in name for name in held), "whoever speaks with the model does not train it"
    for name in ("LICENSE", "tiny/NOTICE"):
        assert any(each.endswith(f".dist-info/licenses/{name}") for each in held)
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == {"voicegate_tiny_model"}


def test_what_is_needed(distributions: Distributions) -> None:
    assert needs(distributions.wheel, None) == set(LIGHT)
    assert needs(distributions.wheel, "server") >= {"torch", "numpy", "opuslib-next", "voicegate-tiny-model"}
    assert needs(distributions.wheel, "play") == {"sounddevice", "opuslib-next"}
    assert metadata(distributions.tiny_model).get("Requires-Dist", []) == []


def test_the_version_is_told_in_one_place(distributions: Distributions) -> None:
    assert metadata(distributions.wheel)["Version"] == [voicegate.__version__]
    assert metadata(distributions.wheel)["License-Expression"] == ["Apache-2.0"]


def test_what_is_published_together_has_one_version() -> None:
    told = {
        path: tomllib.loads(path.read_text())["project"]["version"] for path in ROOT.glob("clients/*/pyproject.toml")
    }
    told |= {path: json.loads(path.read_text())["version"] for path in ROOT.glob("clients/**/package.json")}
    assert len(told) == 5
    assert set(told.values()) == {voicegate.__version__}


def test_a_plugin_is_installed_beside_what_it_needs() -> None:
    """No index has `voicegate-tts` yet: pip finds it in the checkout alone."""
    readers = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("clients/**/*.md"),
        *ROOT.glob("clients/**/*.py"),
    ]
    told = [line for path in readers for line in re.findall(r"pip install [^`\n]*\./clients/\w+", path.read_text())]
    assert len(told) >= 6
    assert [line for line in told if not re.match(r"pip install (\.|'\.\[\w+\]') \./clients/", line)] == []


def test_whatever_is_imported_is_declared(distributions: Distributions) -> None:
    imported = set()
    with ZipFile(distributions.wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                imported |= roots_imported(archive.read(name).decode())
    ours = {"voicegate", "voicegate_tiny_model", "pipecat_voicegate"}  # the last one: clients/pipecat
    imported -= {"_typeshed", "tensorrt_llm"}  # of type checkers, and of NVIDIA's image
    homes = {
        "pipecat": ["pipecat-ai"],
        "livekit": ["livekit-agents"],
        "vllm": ["vllm"],
        **packages_distributions(),
    }  # in no environment
    extras = (None, "server", "play", "gpu", "tensorrt", "otel", "zeroconf", "pipecat", "livekit", "vllm")
    declared = {name.lower() for extra in extras for name in needs(distributions.wheel, extra)}
    for root in imported - sys.stdlib_module_names - ours:  # some have several homes, as `opentelemetry`
        assert declared & {home.lower().replace("_", "-") for home in homes[root]}, root


def roots_imported(source: str) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").split(".")[0])
    return roots
