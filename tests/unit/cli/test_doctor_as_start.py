"""`doctor` says that a start fails exactly where it does: each harm is shown to both, and neither may be the kinder."""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.golden import TINY_MODEL_DIR, TINY_VOICES
from tests.support.quick_model import quick_model
from tests.unit.engine.voices.sounds import file_of, speechlike
from voicegate.engine.config import EngineConfig
from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import EngineError
from voicegate.engine.load.build import load_engine
from voicegate.engine.model.weights import load_metadata
from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.cli.checks.machine import check_ports
from voicegate.gateway.cli.checks.model import check_model
from voicegate.gateway.cli.doctor import check_settings
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.server import Gateway

Harm = Callable[[Path], object]
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """`model`, a copy of the tiny one of which each file may be harmed, and `mine`, the user's voices."""
    model = tmp_path / "model"
    (model / "voices").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    for source in [*TINY_MODEL_DIR.glob("*.*"), *TINY_MODEL_DIR.glob("voices/*.*")]:
        target = model / source.relative_to(TINY_MODEL_DIR)
        if source.stat().st_size > 1_000_000:
            target.symlink_to(source)
        else:
            shutil.copy(source, target)
    (model / "model.json").unlink()
    shutil.copy(quick_model(tmp_path / "quick") / "model.json", model)
    return tmp_path


def written(name: str, content: bytes | str | None) -> Harm:
    """None: it is not there."""

    def apply(place: Path) -> None:
        path = place / name
        path.unlink(missing_ok=True)  # a link stays whole
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return apply


def cut(name: str) -> Harm:
    return lambda place: written(name, (place / name).read_bytes()[:-7])(place)


def tensors(name: str, change: Callable[[dict[str, torch.Tensor]], object], **texts: str | None) -> Harm:
    """With changed tensors, and texts of the header; None: without that text."""

    def apply(place: Path) -> None:
        path = place / name
        state, said = load_file(path), load_metadata(path) | texts
        change(state)
        path.unlink()
        save_file(state, path, metadata={key: text for key, text in said.items() if text is not None})

    return apply


def as_it_is(state: dict[str, torch.Tensor]) -> None:
    pass


def configured(**changes: object) -> Harm:
    def apply(place: Path) -> None:
        path = place / "model" / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return apply


def pair(name: str, text: str | bytes | None = "What it says.", *, rate_hz: int = 24_000, seconds: float = 1.5) -> Harm:
    def apply(place: Path) -> None:
        recording = file_of(speechlike(seconds, rate_hz=rate_hz), rate_hz=rate_hz)
        written(f"mine/{name}.wav", recording)(place)
        if text is not None:
            written(f"mine/{name}.txt", text)(place)

    return apply


def all_of(*harms: Harm) -> Harm:
    return lambda place: [harm(place) for harm in harms]


def copied(name: str, harm: Harm) -> Harm:
    """A file of the user's like the model's `woman`, then harmed."""
    return all_of(lambda place: shutil.copy(place / "model/voices/woman.safetensors", place / name), harm)


WOMAN = "model/voices/woman.safetensors"
MINE = "mine/anna.safetensors"
UNSPEAKABLE = "<|endofprompt|>" + "\U0001f600" * 400  # each takes several text tokens

FATAL: dict[str, Harm] = {
    "no model.json": written("model/model.json", None),
    "model.json of something else": written("model/model.json", "{}"),
    "a sample rate that is not run": configured(sample_rate=16_000),
    "no tokenizer": written("model/tokenizer.json", None),
    "tokenizer of another model": configured(endofprompt_token_id=7),
    "tokenizer not fetched": written("model/tokenizer.json", POINTER),
    "weights missing": written("model/vocoder.safetensors", None),
    "weights not fetched": written("model/flow.safetensors", POINTER),
    "weights cut short": cut("model/flow.safetensors"),
    "a tensor missing": tensors("model/llm.safetensors", lambda state: state.pop("llm.model.model.norm.weight")),
    "a tensor too many": tensors("model/flow.safetensors", lambda state: state.update(more=torch.zeros(2))),
    "a tensor of another shape": tensors(
        "model/vocoder.safetensors", lambda state: state.update({"conv_post.bias": torch.zeros(3)})
    ),
    "noise of something else": written("model/flow_noise.safetensors", b"not a file of tensors"),
    "no voice": all_of(*(written(f"model/voices/{name}.safetensors", None) for name in TINY_VOICES)),
    "no default voice": written(WOMAN, None),
    "the default voice without room": tensors(WOMAN, as_it_is, transcript=UNSPEAKABLE, prompt_text=UNSPEAKABLE),
    "no directory of voices": lambda place: (place / "mine").rmdir(),
    "a voice cut short": copied(MINE, cut(MINE)),
    "a voice without its texts": copied(MINE, tensors(MINE, as_it_is, transcript=None)),
    "a voice's tokens of another model": copied(
        MINE, tensors(MINE, lambda state: state.update(speech_tokens=state["speech_tokens"] + 60_000))
    ),
    "a voice's mel too short": copied(MINE, tensors(MINE, lambda state: state.update(mel=state["mel"][1:]))),
    "a voice's numbers not finite": copied(MINE, tensors(MINE, lambda state: state["mel"].fill_(torch.nan))),
    "a tuned voice that was edited": copied(MINE, tensors(MINE, as_it_is, tokens_per_letter="fast")),
    "a recording without text": pair("anna", None),
    "a recording of few samples a second": pair("anna", rate_hz=8_000),
    "a recording that is too short": pair("anna", seconds=0.4),
    "a recording that is no sound": all_of(written("mine/anna.wav", b"RIFF"), written("mine/anna.txt", "x")),
    "a name that no voice can have": pair("my voice"),
    "a text that is no text": pair("anna", b"\xff\xfe\xfa"),
    "a text that is not of the recording": pair("anna", "word " * 100),
    "a text with the model's marks": pair("anna", "One <|endofprompt|> two."),
    "a pair beside another voice": all_of(copied(MINE, lambda _: None), pair("anna")),
    "a pair and nothing that hears": all_of(pair("anna"), written("model/speech_tokenizer.safetensors", None)),
    "a pair and a damaged voice of its name": all_of(pair("anna"), written(MINE, b"no voice")),
}

LEFT_OUT: dict[str, Harm] = {
    "a voice without room": copied(MINE, tensors(MINE, as_it_is, transcript=UNSPEAKABLE, prompt_text=UNSPEAKABLE)),
    "a voice of another family": copied(MINE, tensors(MINE, as_it_is, prompt_text="Of another model.")),
}

FINE: dict[str, Harm] = {
    "as it is": lambda place: None,
    "a pair": pair("anna"),
    "a voice of its own": copied(MINE, lambda _: None),
}


def started(place: Path) -> list[str]:
    """Names of the voices. Raises EngineError."""
    engine = load_engine(EngineConfig(place / "model", voices_dir=place / "mine", threads=1), lambda _: None)
    engine.close()
    return [voice.name for voice in engine.info.voices]


def findings(place: Path) -> list[Finding]:
    return list(check_model(place / "model", place / "mine"))


@pytest.mark.parametrize("harm", FATAL)
def test_what_ends_a_start_fails(place: Path, harm: str) -> None:
    FATAL[harm](place)
    before = sorted(place.rglob("*"))
    told = findings(place)
    assert sorted(place.rglob("*")) == before, "doctor writes nothing"
    with pytest.raises(EngineError) as caught:
        started(place)
    failed = [finding.text for finding in told if finding.level is Level.FAIL]
    assert any(text.split("; choose another")[0] in str(caught.value) for text in failed), (failed, caught.value)


@pytest.mark.parametrize("harm", LEFT_OUT)
def test_what_a_start_leaves_out_is_warned_of(place: Path, harm: str) -> None:
    LEFT_OUT[harm](place)
    (told,) = [finding for finding in findings(place) if finding.level is not Level.OK]
    assert (told.level, told.text.startswith("anna is left out: ")) == (Level.WARN, True)
    assert started(place) == TINY_VOICES


@pytest.mark.parametrize("harm", FINE)
def test_what_a_start_takes_is_in_order(place: Path, harm: str) -> None:
    FINE[harm](place)
    told = findings(place)
    assert {finding.level for finding in told} == {Level.OK}
    names = sorted(finding.text.partition(":")[0] for finding in told if finding.subject == "voice")
    assert sorted(started(place)) == names


SETTINGS: dict[str, Callable[[Path], GatewayConfig]] = {
    "no file of keys": lambda place: GatewayConfig(api_keys_file=place / "keys.json"),
    "keys of something else": lambda place: GatewayConfig(api_keys_file=place / "model" / "model.json"),
    "keys are asked for and there are none": lambda place: GatewayConfig(require_key=True),
    "no file of words": lambda place: GatewayConfig(pronunciations_file=place / "words.json"),
    "words of something else": lambda place: GatewayConfig(pronunciations_file=place / WOMAN),
    "no certificate": lambda place: GatewayConfig(tls_cert=place / "cert.pem", tls_key=place / "key.pem"),
    "a certificate that is none": lambda place: GatewayConfig(tls_cert=place / WOMAN, tls_key=place / WOMAN),
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_files_that_settings_name(place: Path, settings: str) -> None:
    config = SETTINGS[settings](place)
    (told,) = check_settings(config)
    with pytest.raises(GatewayError) as caught:
        Gateway(config, FakeEngine())
    assert told.text == str(caught.value)
    assert list(check_settings(GatewayConfig())) == []


def test_all_ports_are_looked_at() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        told = list(check_ports(GatewayConfig(port=0, metrics_port=port, agent_port=port, wyoming_port=port)))
    assert [finding.level for finding in told] == [Level.OK, Level.FAIL, Level.FAIL, Level.FAIL]
    assert [finding.text.rpartition(" ")[2] for finding in told[1:]] == [
        "--metrics-port",
        "--agent-port",
        "--wyoming-port",
    ]
