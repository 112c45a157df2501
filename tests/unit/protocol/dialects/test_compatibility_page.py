"""docs/compatibility.md against the code: its numbers, and the names of formats that it lists."""

import json
import re
from pathlib import Path

from voicegate.engine.text import breaks
from voicegate.gateway.server.entrance import callers
from voicegate.gateway.server.http import tokens
from voicegate.gateway.server.http.vendors import VENDORS
from voicegate.protocol.dialects import backlog, catalogue, char_times, format_names, vllm_omni
from voicegate.protocol.formats import RATES_HZ

PAGE = (Path(__file__).parents[4] / "docs/compatibility.md").read_text()
TEXT = " ".join(PAGE.split())


def test_numbers() -> None:
    said = (
        f"It holds for {tokens._AskedByElevenLabs.seconds // 60} minutes, or {tokens._DEFAULT_S} s where nothing else",
        f'(`<break time="1s"/>`, `<#0.5#>`, `[pause]`; up to {breaks.MAX_PAUSE_MS // 1000} s, side by side up to '
        f"{breaks.MAX_PAUSES_MS // 1000} s)",
        f"of more than {char_times._MAX_GAP_CHARS} characters between two words the first {char_times._MAX_GAP_CHARS}",
        f"`audio.start` tells the first {vllm_omni._SHOWN_CHARS:,} characters",
        f"one file of up to {vllm_omni._MAX_FILE_BYTES >> 20} MiB",
        f"`?client_tag=NAME` (up to {callers._MAX_TAG_CHARS} characters)",
        f"at {RATES_HZ[0] // 1000} to {RATES_HZ[-1] // 1000} kHz",
    )
    assert [each for each in said if each not in TEXT] == []
    assert backlog.MAX_UNANSWERED_FLUSHES < 64, "flushes of these clients have no limit: the session's is not reached"


def test_formats() -> None:
    deepgram = re.findall(r"^\| Deepgram .*$", PAGE, re.MULTILINE)[-1].split("|")[2]
    assert set(re.findall(r"\w+", deepgram)) - {"too"} == {*format_names._DEEPGRAM_RAW, *format_names._DEEPGRAM_OTHERS}
    (omni,) = re.findall(r"^\| vLLM-Omni \| ([^;]*);", PAGE, re.MULTILINE)
    assert set(omni.split(", ")) == set(format_names._OPENAI)
    (openai,) = re.findall(r"for OpenAI (.*?), whole or streamed", TEXT)
    assert set(re.findall(r"[a-z]\w+", re.sub(r"\([^)]*\)", "", openai))) - {"and"} == set(format_names._OPENAI)


def test_the_versions_are_those_that_tests_install() -> None:
    root = Path(__file__).parents[4]
    installed = root / "tests/integration"
    lists = [root / "constraints.txt", installed / "pipecat.txt", installed / "livekit.txt"]
    python = dict(re.findall(r"^([\w.-]+)==(\S+)", "\n".join(each.read_text() for each in lists), re.MULTILINE))
    folders = (installed / "javascript", root / "tests/browser/bundlers")
    javascript: dict[str, str] = {}
    for folder in folders:
        javascript |= json.loads((folder / "package.json").read_text())["dependencies"]
    rows = re.findall(r"^\| `([^`]+)`([^|]*) \| ([^|]+) \| by tests", PAGE, re.MULTILINE)
    assert len(rows) > 10
    for name, more, version in rows:
        is_for_node = name.startswith("@") or "JavaScript" in more or "browser" in more
        pins = javascript if is_for_node else python
        assert pins[name] == version, name
    plugins = {version for name, version in javascript.items() if name.startswith("@livekit/")}
    assert plugins == {javascript["@livekit/agents"]}


def test_the_protocol_lists_the_same_paths() -> None:
    protocol = (Path(__file__).parents[4] / "docs/protocol.md").read_text()
    for path in (*catalogue.PATHS, *VENDORS):
        told = path.replace("{voice_id}", "{voice}")  # or what stands behind the voice
        assert any(f"`{end}`" in protocol for end in (told, f"…{told.partition('}')[2]}", told.rpartition("/")[2])), (
            path
        )
