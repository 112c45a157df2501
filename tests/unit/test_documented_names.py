"""Names in documents exist: commands, flags, variables, files, links, log lines."""

import argparse
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.test_documents import PAGES, ROOT, is_there, operations
from voicegate.gateway.cli import main
from voicegate.gateway.config import ConfigField, config_fields

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "clients").glob("*/README.md")),
    ROOT / "models/tiny/RECIPE.md",
]
# Where an operator reads of settings.
FOR_OPERATORS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *PAGES[1:]]
OPERATIONS = operations()
SETTINGS = {setting.flag: setting for setting in config_fields()}
# Flags of programs beside ours in these lines.
NOT_OURS = {"--build-arg", "--cpus", "--stop-timeout", "--target"}
by_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def code_in(text: str) -> Iterator[str]:
    """Lines of blocks for a shell, and what stands between backticks."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


# --- links and files --------------------------------------------------------------------------------------


def anchors_of(document: Path) -> set[str]:
    """As GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").strip().lower()).replace(" ", "-") for title in titles}


@by_document
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        there = (document.parent / path).resolve() if path else document
        if not there.exists() or (anchor and anchor not in anchors_of(there)):
            broken.append(link)
    assert broken == []


@by_document
def test_every_file_and_decision_is_there(document: Path) -> None:
    text = document.read_text()
    named = re.findall(r"`((?:bench/results|deploy|docs|tests|protocol/vectors|models/tiny)/[\w./*-]*)`", text)
    beginnings = re.compile(r".*-|docs/adr/\d{4}")
    missing = [path for path in named if not any(ROOT.glob(f"{path}*" if beginnings.fullmatch(path) else path))]
    if "adr" in document.parts or document.name == "measured.md":
        results = re.findall(r"`(?:bench/results/)?(\w[\w.-]*\.json)`", text)
        missing += [name for name in results if not is_there(name)]
    decisions = re.findall(r"\bADR\]?\(? ?\[?(\d{4})", text)
    missing += [number for number in decisions if not any((ROOT / "docs/adr").glob(f"{number}-*.md"))]
    assert missing == []


# --- commands and settings --------------------------------------------------------------------------------


@cache
def options_of(command: str) -> frozenset[str]:
    """Options of `voicegate COMMAND`, those of its actions too."""

    def found(parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for below in action.choices.values():
                    yield from found(below)

    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    for module in main._COMMANDS:
        module.add_parser(subparsers)
    return frozenset(found(subparsers.choices[command])) if command in subparsers.choices else frozenset()


@by_document
def test_every_command_is_one(document: Path) -> None:
    unknown = []
    for line in code_in(document.read_text()):
        for part in re.split(r"&&|;|\|(?=\s)| -- ", line.partition("  #")[0]):
            told = re.search(r"(?:^|[\s/])voicegate ([a-z][a-z-]*)(?=\s|$)(.*)", part)
            if told is None or re.search(r"\b(image|useradd|systemctl|docker|kubectl|runuser)\b.*voicegate", part):
                continue
            command, options = told[1], set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", told[2]))
            if not options_of(command) or not options <= options_of(command):
                unknown.append(part)
    assert unknown == []


@by_document
def test_every_module_is_one(document: Path) -> None:
    modules = re.findall(r"python -m (?:voicegate\.)?((?:bench|clients)\.[\w.]+)", document.read_text())
    paths = [ROOT / module.rstrip(".").replace(".", "/") for module in modules]
    assert [path for path in paths if not (path.with_suffix(".py").is_file() or (path / "__main__.py").is_file())] == []


@by_document
def test_every_flag_is_somebodys(document: Path) -> None:
    ours = set(SETTINGS) | {option for module in main._COMMANDS for option in options_of(name_of(module))}
    ours |= flags_of_the_bench()
    told = {flag for line in code_in(document.read_text()) for flag in re.findall(r"^--[a-z][a-z0-9-]*", line)}
    assert told - ours - NOT_OURS == set()


def name_of(module: object) -> str:
    return str(getattr(module, "__name__", "")).rpartition(".")[2].replace("_", "-")


@cache
def flags_of_the_bench() -> frozenset[str]:
    sources = "".join(path.read_text() for path in (ROOT / "bench").rglob("*.py"))
    return frozenset(re.findall(r'"(--[a-z][a-z0-9-]*)"', sources))


def test_every_variable_is_a_setting() -> None:
    deployed = [each for each in (ROOT / "deploy").rglob("*") if each.is_file() and "__pycache__" not in each.parts]
    places = [*DOCUMENTS, ROOT / "Dockerfile", *deployed]
    told = {name for path in places for name in re.findall(r"\bVOICEGATE_[A-Z0-9_]*[A-Z0-9]\b", path.read_text())}
    assert len(told) > 20
    assert told - {setting.env for setting in SETTINGS.values()} == set()


def test_every_setting_is_told_of() -> None:
    text = "\n".join(path.read_text() for path in FOR_OPERATORS)
    missing = [setting.flag for setting in SETTINGS.values() if not is_named(setting, text)]
    assert missing == []


def is_named(setting: ConfigField, text: str) -> bool:
    return re.search(rf"{setting.flag}(?![\w-])|\b{setting.env}\b", text) is not None


_UNITS = {"KiB": 1024, "MiB": 1024 * 1024}


def defaults_told() -> Iterator[tuple[str, str]]:
    """By "`--flag` (value" and "`--flag`: value", where the value is a number or an address."""
    for path in FOR_OPERATORS:
        text = path.read_text().replace("\n", " ")
        for flag, value in re.findall(r"`(--[a-z0-9-]+)`(?: \(|: )(\d[\d.,]*(?: [KM]iB)?)(?=[\s;:,)])", text):
            if flag in SETTINGS:
                yield flag, value.rstrip(".,")


def test_defaults_are_the_settings_own() -> None:
    told = list(defaults_told())
    assert len(told) > 12
    for flag, value in told:
        default = SETTINGS[flag].default
        if default is None:  # by device: of these the engine has the numbers
            continue
        number, _, unit = value.partition(" ")
        expected = float(number) * _UNITS.get(unit, 1) if isinstance(default, int | float) else number
        assert expected == default, flag


def test_so_are_those_of_tables() -> None:
    rows = [
        row
        for table in re.findall(r"^\| setting \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", OPERATIONS, re.MULTILINE)
        for row in re.findall(r"^\| `(--[a-z0-9-]+)` \| ([^| ]+) \|", table, re.MULTILINE)
    ]
    assert len(rows) > 5
    for flag, shown in rows:
        default = SETTINGS[flag].default
        is_switch = isinstance(default, bool)
        assert shown in (("true", "on") if default else ("false", "off")) if is_switch else shown == str(default), flag


# --- the log ----------------------------------------------------------------------------------------------


@cache
def logged() -> str:
    """All strings in what logs."""
    found = []
    for path in [*(ROOT / "engine").rglob("*.py"), *(ROOT / "gateway").rglob("*.py")]:
        with path.open("rb") as file:
            found += [token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.STRING]
    return "\n".join(found)


def test_every_log_line_is_logged() -> None:
    prose = OPERATIONS.replace("\n", " ")
    lines = {
        name
        for part in re.findall(r"\b[Ll]og(?: says| tells| lines?)?:? ((?:`[^`]+`[^`.]{0,60}?)+)", prose)
        for name in re.findall(r"`([a-z][a-z_' ]+[a-z])`", part)
    }
    assert len(lines) > 20
    named = set(lines) - set(re.findall(r"`(left_out|kind|lines)`", prose))
    assert [line for line in sorted(named) if line not in logged()] == []
