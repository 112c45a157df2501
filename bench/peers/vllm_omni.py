"""vLLM-Omni as its own documents start it and speak to it. Its packages are a directory's, not this environment's.

Facts of 0.26: `vllm serve MODEL --omni` with its CosyVoice3 example's flags; `/health`; voices by `/v1/audio/voices`.
"""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from voicegate.bench import servers
from voicegate.bench.peers import reference

VOICE: Final = "reference"  # name of the uploaded voice
# Without network, flashinfer and TensorRT it does not start otherwise. The caller's environment wins.
ENVIRONMENT: Final = {
    "COSYVOICE3_TRT": "0",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
_DEPLOY: Final = Path("vllm_omni", "deploy", "cosyvoice3.yaml")
_TALKER: Final = 0  # stage of the speech LLM
_START_LIMIT_S: Final = 420.0  # 151 to 178 s were seen on an H200
_ANSWER_S: Final = 60.0
_HEALTH_S: Final = 5.0
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run it. `fixes`: a directory in front of its packages, such as one with a sitecustomize.py."""

    packages: Path
    model: Path
    talker_dtype: str | None = None  # None: as published
    fixes: Path | None = None
    fix_names: tuple[str, ...] = ()

    def settings(self, name: str) -> dict[str, Any]:
        """For the result file. Raises ValueError where packages or recording are not there."""
        reference.recording(self.model)
        versions = {each.name.lower(): each.version for each in metadata.distributions(path=[str(self.packages)])}
        return {
            "versions": {name: versions.get(name) for name in ("vllm", "vllm-omni")},
            "deploy": self.deploy(),
            "environment": {name: self.environment()[name] for name in ENVIRONMENT},
            "fixes": list(self.fix_names),
            "flattery": list(self._flattery(name)),
        }

    def _flattery(self, name: str) -> Iterator[tuple[str, str]]:
        environment = self.environment()
        if environment["COSYVOICE3_TRT"] == "0":
            yield "voicegate", f"the flow of {name} runs in eager torch, without TensorRT"
        if environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0":
            yield "voicegate", f"{name} samples without flashinfer"
        for stage in self.deploy()["stages"]:
            if "max_num_seqs" in stage:
                most = f"{stage['max_num_seqs']} sequences at once"
                yield "voicegate", f"stage {stage['stage_id']} of {name} takes {most}, as published"
            if stage.get("dtype") == "float32":
                yield "voicegate", f"the LLM of {name} runs in float32, not in bfloat16"
        yield from (("the peer", f"{name} has what its release lacks: {fix}") for fix in self.fix_names)

    def deploy(self) -> dict[str, Any]:
        """Its recommended file, with the talker's dtype where one was chosen. Raises ValueError."""
        try:
            deploy: dict[str, Any] = yaml.safe_load((self.packages / _DEPLOY).read_text(encoding="utf-8"))
            talker = next(stage for stage in deploy["stages"] if stage["stage_id"] == _TALKER)
        except (OSError, yaml.YAMLError, TypeError, KeyError, StopIteration) as error:
            told = f"{self.packages} has no vLLM-Omni that is known here ({_DEPLOY}: {error!r})"
            raise ValueError(f"{told}: fill it with `pip install --target`, version 0.26") from error
        if self.talker_dtype is not None:
            talker["dtype"] = self.talker_dtype
        return deploy

    def environment(self) -> dict[str, str]:
        paths = [str(path.resolve()) for path in (self.fixes, self.packages) if path is not None]
        return {**ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def serving(variant: Variant, log: Path) -> Iterator[tuple[str, int, float]]:
    """Its address, process id, and seconds until it was ready with its voice. Raises RuntimeError, OSError."""
    log.parent.mkdir(parents=True, exist_ok=True)
    deploy = log.with_suffix(".deploy.yaml")
    deploy.write_text(yaml.safe_dump(variant.deploy(), sort_keys=False), encoding="utf-8")
    url = f"http://127.0.0.1:{servers.free_port()}"
    command = _command(variant, deploy, port=url.rpartition(":")[2])
    began_s = time.monotonic()
    with servers.running(command, log, environment=variant.environment(), is_heard=False) as process:
        _wait_until_ready(process, url, log)
        _upload(url, variant.model)
        yield url, process.pid, time.monotonic() - began_s


def _command(variant: Variant, deploy: Path, *, port: str) -> list[str]:
    return [
        *(sys.executable, "-m", "vllm_omni.entrypoints.cli.main", "serve", str(variant.model), "--omni"),
        *("--tokenizer", str(variant.model / "CosyVoice-BlankEN"), "--deploy-config", str(deploy)),
        *("--host", "127.0.0.1", "--port", port, "--trust-remote-code"),
        *("--stage-init-timeout", "900", "--init-timeout", "1200"),
    ]


def _wait_until_ready(process: "subprocess.Popen[str]", url: str, log: Path) -> None:
    end_s = time.monotonic() + _START_LIMIT_S
    while process.poll() is None:
        try:
            servers.ask(f"{url}/health", timeout_s=_HEALTH_S)
        except OSError as error:
            if time.monotonic() > end_s:
                told = f"{servers.not_started(process, log, _START_LIMIT_S)}\n/health: {error}"
                raise RuntimeError(told) from error
            time.sleep(_POLL_S)
        else:
            return
    raise servers.not_started(process, log)


class _Taken(msgspec.Struct):
    success: bool = False


def _upload(url: str, model: Path) -> None:
    """The form of its documents."""
    told = reference.load(model)
    fields = {"name": VOICE, "consent": "bench", "ref_text": told.transcript}
    boundary = uuid.uuid4().hex
    request = urllib.request.Request(
        f"{url}/v1/audio/voices",
        data=_form(fields, reference.recording(model).read_bytes(), boundary),
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    try:
        body = servers.ask(request, timeout_s=_ANSWER_S)
        is_taken = msgspec.json.decode(body, type=_Taken).success
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"the peer took no voice: {error.code} {error.read()[:500]!r}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise RuntimeError(f"the peer took no voice: {error}") from error
    if not is_taken:
        raise RuntimeError(f"the peer took no voice: {body[:500]!r}")


def _form(fields: Mapping[str, str], audio: bytes, boundary: str) -> bytes:
    head = f"--{boundary}\r\nContent-Disposition: form-data; name="
    texts = "".join(f'{head}"{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    file = f'{head}"audio_sample"; filename="reference.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    return (texts + file).encode() + audio + f"\r\n--{boundary}--\r\n".encode()
