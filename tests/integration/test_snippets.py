"""Every block of code that users read runs as it stands, at the port of a real gateway; else it is named with why not.

Commands are found by what they say, wherever a document has them. A block of Python is a program.
"""

import ast
import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.programs import required
from tests.support.snippets import ROOT, Snippet, commands, snippets
from voicegate import __version__
from voicegate.engine.fake.engine import VOICES, FakeEngine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway

# With a gateway at the port that it names.
RUN: Final = (
    r"curl localhost:8080/v1/audio/speech ",
    r"curl http://localhost:8080/v1/audio/speech -o hello.mp3 ",
    r"curl -X POST .* http://host:8080/v1/tokens$",
    r'voicegate say "Hello from the gateway."$',
    r"voicegate doctor$",
    r"voicegate keys add kiosk --api-keys-file keys",
)
# In this order, in a folder with a model directory and a recording.
WITH_A_MODEL: Final = (
    'voicegate voices add anna --model-dir my-model --wav anna.wav --text "What she says in it."',
    "voicegate doctor --model-dir my-model",
    "voicegate serve --model-dir my-model",
)
RUN_ELSEWHERE: Final = {
    r"make (serve|demo|check|test)$": "tests/unit/deploy/test_setup.py",  # what they set up; demo: test_cli_demo.py
    r"make bench$": "tests/integration/test_bench.py",
    r"pip install \./models '\.\[server\]'$": "tests/packaging/test_server.py",
    r"voicegate serve --allowed-origins \S+$": "tests/browser/test_bundlers.py",
    r"voicegate serve( &|( --host \S+| --wyoming-port \S+| --api-keys-file keys| --sockets-per-address 16)+)?$": (
        "tests/integration/test_cli_serve.py"
    ),
    r"voicegate serve --host 0.0.0.0 --tls-cert": "tests/integration/test_tls.py",
    r"voicegate serve --gpus": "tests/integration/test_replicas.py",
    r"voicegate serve --llm-device": "tests/parity/test_disaggregated.py",
    r"VOICEGATE_TOKEN_SECRET=\.\.\. voicegate serve": "tests/integration/test_balancers.py",
    r"VOICEGATE_API_KEY=\S+ voicegate say": "tests/integration/test_keys.py",
    r"voicegate say --url wss:": "tests/integration/test_tls.py",
    r"voicegate keys remove": "tests/integration/test_keys.py",
    r"voicegate voices (list|add anna --model-dir DST)|voicegate tune-voice": "tests/unit/cli/test_voices.py",
    r"voicegate convert SRC DST(?! --merged)": "tests/unit/cli/test_convert.py",
    r"voicegate bench": "tests/integration/test_cli_bench.py",
    r"voicegate jobs |voicegate serve --jobs-dir": "tests/e2e/test_jobs.py",
    r"voicegate build": "tests/unit/cli/test_build.py",
    r"voicegate (doctor|serve) --model-dir DST$": "tests/unit/cli/test_doctor.py",
    r"curl http://localhost:8080/v1/audio/speech -o hello.wav ": "tests/integration/test_http_clones.py",
    r"curl localhost:8080/v1/voices": "tests/integration/test_http_voices.py",
    r"\S*python -m voicegate.bench.(quality|gateway|gateway.crowd|table)$": "tests/integration/test_bench.py",
    r"([A-Z_]+=\S+ |TRITON_CACHE_DIR=\S+ -d\) )*\S*python -m voicegate.bench.socket": "tests/unit/bench/test_socket.py",
    r"\S*python -m voicegate.bench.jobs ": "tests/integration/test_bench_jobs.py",
    r"\S*python -m voicegate.bench.scale ": "tests/unit/bench/test_scale.py",
    r"\S*python -m voicegate.bench.peers --servers transformers": "tests/unit/bench/plain/test_system.py",
    r"\S*python -m voicegate.bench.peers(.embedded| --upstream) ": "tests/integration/test_bench_peers.py",
    r"\S*python -m voicegate.bench.(sample_sounds|page_animation)$": "tests/unit/bench/test_readme_media.py",
    r"python -m voicegate.clients.examples.llm_to_speech": "tests/integration/test_client_llm_example.py",
    r"python -m voicegate.clients.examples.telephone": "tests/integration/test_telephone.py",
    r"python -m voicegate.clients.examples.terminal_assistant": "tests/integration/test_assistant.py",
    r"python -m voicegate.clients.examples.pipecat_bot": "tests/integration/test_framework_examples.py",
    r"GATEWAY=\S+ python -m voicegate.clients.examples.livekit": "tests/integration/test_framework_examples.py",
    r"esbuild ": "tests/browser/test_bundlers.py",
    r"npm (pack|install) \./": "tests/integration/test_client_javascript.py",
    r"(npm install vite && )?npx vite": "tests/browser/test_bundlers.py",
    r"pip install \. \./clients/(livekit|pipecat)": "tests/packaging/test_wheels.py",
    r"python -m wyoming_openai": "tests/integration/test_wyoming.py",
    r"pip install 'ray|VOICEGATE_MODEL_DIR=\S+ serve run": "tests/soak/test_ray_serve.py",
}
NOT_RUN: Final = {
    r"docker ": "no container engine where tests run; tests/soak/test_dockerfile.py carries out the Dockerfile's lines",
    r"kubectl ": "no cluster where tests run; tests/unit/deploy/test_kubernetes.py reads the manifests",
    r"pip install (huggingface_hub|modelscope)$|hf download|modelscope download": "gigabytes of released weights",
    r"voicegate convert Fun-CosyVoice3": "the released weights; tests/unit/cli/test_convert.py has others",
    r"([A-Z]+=\S+ )*\S*bench/gpu_all.sh": "needs a GPU",
    r"voicegate (convert|doctor|serve) .*--(merged-hf|llm-backend)": "TensorRT-LLM and vLLM need a GPU",
    r"python -m voicegate.bench.(engine.llm_backends|gpu_tests)": "needs a GPU and NVIDIA's packages",
    r"pip install (-c deploy/gpu-versions.txt )?-e models": "gigabytes of CUDA's libraries",
    r"export VOICEGATE_JOBS_WEBHOOK_SECRET=": "a secret of yours; tests/integration/test_jobs_webhooks.py has one",
    r"export OPENAI_BASE_URL": "an LLM of yours; the examples' tests have one",
}
QUICKSTART: Final = "docs/quickstart-gpu.md"  # every command of it: tests/soak/test_quickstart.py
EMBEDDED_VOICES: Final = sorted(path.stem for path in (ROOT / "models/tiny/voices").glob("*.safetensors"))
SHELL: Final = sorted(
    {
        (each.document, line)
        for each in snippets()
        if each.language == "sh" and each.document != QUICKSTART
        for line in commands(each.code)
    }
)
FRAGMENTS: Final = ("clients/livekit/README.md", "clients/pipecat/README.md")  # lines of an agent, whose LLM is yours
PROGRAMS: Final = [
    each
    for each in snippets()
    if each.language == "python"
    and each.code.startswith(("import ", "from "))
    and each.document not in FRAGMENTS
    and "wyoming" not in each.code  # it has a port of its own: test_wyoming.py
]
# By name, with the test that takes them from there, or does as they do.
OTHER_BLOCKS: Final = {
    ("docs/compatibility.md", "python"): "tests/integration/test_compatibility_doc.py",
    ("docs/compatibility.md", "js"): "tests/integration/test_sdk_javascript.py",
    ("clients/livekit/README.md", "python"): "tests/integration/test_framework_examples.py",
    ("clients/pipecat/README.md", "python"): "tests/integration/test_framework_examples.py",
    ("clients/browser/README.md", "js"): "tests/browser/test_readme.py",
    ("clients/browser/player/README.md", "html"): "tests/browser/test_bundlers.py",
    ("clients/livekit-node/README.md", "js"): "tests/integration/test_plugin_livekit_node.py",
    ("clients/javascript/README.md", "html"): "tests/browser/test_bundled_client.py",
    ("clients/javascript/README.md", "js"): "tests/integration/test_client_javascript.py",
    ("docs/operations/security.md", "nginx"): "tests/browser/test_folder.py",
    ("docs/operations/security.md", "caddy"): "tests/browser/test_folder.py",
}


def kinds_of(line: str) -> list[str]:
    """In which of the tables it is."""
    tables = {"run": RUN, "elsewhere": RUN_ELSEWHERE, "not run": NOT_RUN}
    found = [name for name, table in tables.items() if any(re.match(pattern, line) for pattern in table)]
    return [*found, *(["model"] if line in WITH_A_MODEL else [])]


@pytest.mark.parametrize(("document", "line"), SHELL, ids=lambda text: text[:60])
def test_every_command_is_run_or_named(document: str, line: str) -> None:
    assert len(kinds_of(line)) == 1


def test_every_other_block_is_run_or_named() -> None:
    left = [
        (each.document, each.language, each.first_line)
        for each in snippets()
        if each.language not in ("", "sh")
        and each not in PROGRAMS
        and (each.document, each.language) not in OTHER_BLOCKS
        and not (each.language == "python" and is_configuration(each.code))
    ]
    assert left == []


def is_configuration(code: str) -> bool:
    """README's line for a framework is in the README of its plugin, which is run where that framework is."""
    (told,) = (ast.unparse(each.value) for each in ast.parse(code).body if isinstance(each, ast.Assign))
    fragments = [
        ast.unparse(ast.parse(each.code))
        for each in snippets()
        if each.document in FRAGMENTS and each.language == "python"
    ]
    return any(told.replace("localhost", "127.0.0.1") in fragment for fragment in fragments)


def test_what_is_named_is_there() -> None:
    assert [path for path in (*RUN_ELSEWHERE.values(), *OTHER_BLOCKS.values()) if not (ROOT / path).is_file()] == []
    lines = [line for _, line in SHELL]
    patterns = (*RUN, *RUN_ELSEWHERE, *NOT_RUN)
    assert [each for each in patterns if not any(re.match(each, line) for line in lines)] == []
    assert set(WITH_A_MODEL) <= set(lines)


# --- run ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Host and port of a gateway with the names of the embedded model's voices: a snippet names no other."""
    engine = FakeEngine()
    engine._voices = [*(replace(VOICES[0], name=name) for name in EMBEDDED_VOICES), *VOICES]
    async with asyncio.timeout(PATIENCE_S), running_gateway(GatewayConfig(), engine) as url:
        yield urlsplit(url).netloc


def environment(**variables: str) -> dict[str, str]:
    """The user's, with this interpreter's programs first."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("VOICEGATE_")}
    return {**ours, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}


async def ran(command: str, folder: Path, **variables: str) -> str:
    """Returns its output."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", command),
        cwd=folder,
        env=environment(**variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.mark.parametrize("line", sorted({line for _, line in SHELL if kinds_of(line) == ["run"]}))
async def test_a_command_runs_as_it_stands(line: str, address: str, tmp_path: Path) -> None:
    if line.startswith("curl "):
        required("curl")
    line = re.sub(r"\b(localhost|host):8080", address, line)
    await ran(line, tmp_path, VOICEGATE_PORT=address.partition(":")[2], KEY="any")
    for name in re.findall(r"-o (\S+)", line):
        assert (tmp_path / name).stat().st_size > 1000


# In place of a sound card: it takes what is played as fast as it comes.
SOUND_CARD: Final = """
import threading
from pathlib import Path

class PortAudioError(Exception):
    pass

class RawOutputStream:
    def __init__(self, *, callback, **_options):
        self._callback, self._ends = callback, threading.Event()
        self._thread = threading.Thread(target=self._run)
    def _run(self):
        played = b""
        while not self._ends.wait(0.001):
            output = bytearray(960)
            self._callback(output, 480, None, None)
            played += output
        Path("played").write_bytes(played.strip(b"\\0"))
    def start(self):
        self._thread.start()
    def stop(self):
        self._ends.set()
        self._thread.join()
    abort = stop
    def close(self):
        pass
"""


@pytest.mark.parametrize("snippet", PROGRAMS, ids=lambda each: f"{each.document}: {each.code.count(chr(10))} lines")
async def test_a_program_runs_as_it_stands(snippet: Snippet, address: str, tmp_path: Path) -> None:
    code = snippet.code
    (tmp_path / "program.py").write_text(code.replace("localhost:8080", address))
    (tmp_path / "sounddevice.py").write_text(SOUND_CARD)
    # Other vendors' clients call what their libraries have deprecated.
    strictly = "" if "voicegate" not in code else "-W error"
    await ran(f"python {strictly} program.py", tmp_path)
    for name in re.findall(r'"(\w+\.(?:opus|wav|mp3))"', code):
        assert (tmp_path / name).stat().st_size > 1000
    assert "SoundCard" not in code or (tmp_path / "played").stat().st_size > 10_000


async def test_a_model_is_given_a_voice_and_served(tmp_path: Path) -> None:
    """As README has it for a converted one; the embedded model stands in for that."""
    shutil.copytree(ROOT / "models/tiny", tmp_path / "my-model")
    shutil.copy(ROOT / "models/tiny/voices/woman_prompt.wav", tmp_path / "anna.wav")
    add, doctor, serve = WITH_A_MODEL
    async with asyncio.timeout(5 * PATIENCE_S):
        await ran(add, tmp_path)
        assert "fail" not in (await ran(doctor, tmp_path, VOICEGATE_PORT="0"))
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"exec {serve}"),
            cwd=tmp_path,
            env=environment(VOICEGATE_PORT="0", VOICEGATE_THREADS="1"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            told = ""
            while "ready" not in told:
                told = (await process.stdout.readline()).decode()
                assert told, "it says why on standard error"
        finally:
            process.send_signal(signal.SIGTERM)
            await process.communicate()
    assert (tmp_path / "my-model/voices/anna.safetensors").is_file()
    assert process.returncode == 0


# --- what else the first screen says ------------------------------------------------------------------------------


def test_badges_do_not_lie() -> None:
    text = (ROOT / "README.md").read_text()
    badges = re.findall(r"!\[([^\]]*)\]\(https://img\.shields\.io/badge/([^)]*)\)", text)
    assert len(badges) == len(re.findall(r"\]\(https://[^)]*(?:badge|shields)", text))
    project = (ROOT / "pyproject.toml").read_text()
    told = dict(each.split(": ", 1) if ": " in each else each.split(" ", 1) for each, _ in badges)
    assert told == {"Python": "3.11, 3.12", "License": "Apache-2.0", "Version": __version__}
    assert 'requires-python = ">=3.11,<3.13"' in project
    assert 'license = "Apache-2.0"' in project
    assert (ROOT / "LICENSE").read_text().split()[:2] == ["Apache", "License"]


def test_sounds_and_pictures_are_small_and_play_in_browsers() -> None:
    text = (ROOT / "README.md").read_text()
    sounds, pictures = re.findall(r"\((docs/sounds/[^)]+)\)", text), re.findall(r"\((docs/images/[^)]+)\)", text)
    assert len(sounds) == 2
    assert pictures
    for name in sounds:
        content = (ROOT / name).read_bytes()
        assert content[:3] == b"ID3" or content[0] == 0xFF
        assert 10_000 < len(content) < 200_000
    for name in pictures:
        assert (ROOT / name).stat().st_size < 1_000_000
    assert {Path(name).stem for name in sounds} == set(EMBEDDED_VOICES) - {"rms", "slt"}, (
        "old names are no voices of their own"
    )
