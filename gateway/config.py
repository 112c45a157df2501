"""GatewayConfig: everything that may be set, once, at start. Read from VOICEGATE_* variables and from flags.

Each field carries its help text and its range; its variable and flag are derived from its name. Only
`from_environment` reads strings. Engine fields are carried here and mean nothing to the gateway. Raises ConfigError.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

from voicegate.gateway.config_fields import (
    PREFIX,
    ConfigError,
    ConfigField,
    check,
    describe,
    is_service_link,
    parse,
    setting,
    unknown,
)
from voicegate.gateway.install_command import install_command

# A byte of text may be written as six in JSON (\u001f); the rest of a message is small.
_JSON_BYTES_PER_BYTE: Final = 6
_JSON_OVERHEAD_BYTES: Final = 1024

_MAX_METRIC_TAGS: Final = 64

# Lower lets people choose keys that can be guessed.
_MIN_KEY_CHARS: Final = 16

# Allowed names of a host: a balancer finds it in an address.
_INSTANCE: Final = re.compile(r"[A-Za-z0-9-]{1,63}")

# Among `gpus`: an engine process on the CPU.
CPU: Final = "cpu"

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
Device = Literal["auto", "cpu", "cuda"]
EngineProcess = Literal["auto", "own", "shared"]
Precision = Literal["bfloat16", "float32"]
KvDtype = Literal["auto", "bfloat16", "float32", "float8"]
FlowProducts = Literal["precision", "float8"]
FlowContext = Literal["whole", "trimmed"]
Networks = tuple[IPv4Network | IPv6Network, ...]
Token2wavBackend = Literal["auto", "cuda", "tensorrt"]
LlmBackend = Literal["auto", "cuda", "tensorrt-llm", "vllm", "torch"]
VocoderPrecision = Literal["float16", "bfloat16", "tf32", "float32"]


def listed(text: str) -> tuple[str, ...]:
    """The items of a setting that holds several, with commas between them."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 for all of IPv4, :: for all of both kinds")
    port: int = setting(8080, "port to listen on; 0 for any free one", at_least=0, at_most=65_535)
    model_dir: Path | None = setting(None, "directory of the model to serve; unset: the tiny model")
    voices_dir: Path | None = setting(
        None, "directory of your own voices: NAME.wav with NAME.txt, which says what it says; unset: none"
    )
    log_level: LogLevel = setting("info", "least severe log lines shown; debug may contain user text")
    log_format: LogFormat = setting(
        "auto", "json for machines, console for people; auto: console where stderr is a terminal, else json"
    )
    log_lines_per_s: int = setting(
        100, "log lines a second of one kind; of those that come faster the log tells the number", at_least=1
    )
    # At most: half of the handles, so that none is used again at once.
    contexts_per_socket: int = setting(256, "contexts open at once on one socket", at_least=1, at_most=32_768)
    contexts_per_address: int | None = setting(
        None, "contexts open at once from one address; unset: no such limit", at_least=1
    )
    utterances_per_address: int | None = setting(
        None, "contexts of one address with something to say; unset: no such limit", at_least=1
    )
    waiting_contexts: int = setting(
        64, "contexts that may wait for room in the engine; further ones are refused at once", at_least=0
    )
    waiting_s: float = setting(
        1.0, "time for which they wait, then they are refused; 0: none wait", at_least=0, at_most=60
    )
    max_contexts: int = setting(16_384, "contexts open at once on all sockets together", at_least=1)
    context_idle_s: float = setting(
        600.0, "a context that is not ended ends after so long without a message or audio", at_least=1, at_most=86_400
    )
    # At most: audio messages count their time modulo a day.
    context_life_s: float = setting(
        14_400.0, "a context ends after this long, whatever it does", at_least=1, at_most=86_400
    )
    enrolment: bool = setting(False, "clients may add, replace and take away voices: POST and DELETE at /v1/voices")
    max_voices: int = setting(256, "voices until there are so many, those of the model included", at_least=1)
    voice_aliases: str = setting(
        "", "voices by the names of other protocols' clients, with commas: alloy=anna,nova=bob"
    )
    pronunciations_file: Path | None = setting(
        None, 'JSON file of words and how they are said, read again on SIGHUP: {"SQL": "sequel"}; unset: none'
    )
    metric_tags: str = setting("", "tags of clients, with commas, that /metrics tells apart; all others count as one")
    allowed_origins: str = setting(
        "", "other sites whose pages may connect, with commas: https://app.example; * for all, null too"
    )
    allowed_hosts: str = setting(
        "", "names, with commas, by which pages know this server; unset: any, on loopback only localhost"
    )
    trusted_proxies: str = setting(
        "", "networks, with commas, whose X-Forwarded-For tells the client's address: 10.0.0.0/8"
    )
    api_keys_file: Path | None = setting(
        None, "file of API keys, read again on SIGHUP; `voicegate keys` makes it; unset: none is asked for"
    )
    api_key: str | None = setting(None, "an API key that clients must name, beside those of the file", is_secret=True)
    token_secret: str | None = setting(
        None,
        "signs tokens for browsers; the same on all servers behind one address; unset: made at start",
        is_secret=True,
    )
    tls_cert: Path | None = setting(
        None, "certificate with its chain, in PEM, read again on SIGHUP: the port speaks TLS; unset: no TLS"
    )
    tls_key: Path | None = setting(None, "the certificate's key, in PEM without a password")
    require_key: bool = setting(False, "do not start where no API key is asked for")
    max_sockets: int = setting(1024, "sockets open at once; further ones get HTTP 503", at_least=1)
    sockets_per_address: int | None = setting(
        None, "of those, from one address; further ones get HTTP 429; unset: no such limit", at_least=1
    )
    text_bytes: int = setting(64 * 1024, "UTF-8 bytes of text in one message", at_least=1)
    context_text_bytes: int = setting(1024 * 1024, "UTF-8 bytes of text over a context's life", at_least=1)
    max_message_bytes: int = setting(
        1024 * 1024, "bytes in one WebSocket message; a longer one closes the socket", at_least=1
    )
    messages_per_s: int = setting(
        1000, "WebSocket messages and pings a second that a socket may send; more are read more slowly", at_least=1
    )
    write_stall_s: float = setting(
        10.0, "a peer that reads nothing for this long while data waits is dropped", at_least=0.05, at_most=86_400
    )
    metrics_port: int | None = setting(
        None,
        "port for Prometheus, GET /metrics without a key; 0 for any free one; unset: none",
        at_least=0,
        at_most=65_535,
    )
    metrics_host: str = setting("127.0.0.1", "address to tell metrics on")
    tracing: bool = setting(False, "a span for each utterance, by OpenTelemetry (OTLP); OTEL_* say where to")
    agent_port: int | None = setting(
        None,
        "port that tells HAProxy's agent-check how much room is left; 0 for any free one; unset: none",
        at_least=0,
        at_most=65_535,
    )
    agent_host: str = setting("127.0.0.1", "address to tell that on")
    wyoming_port: int | None = setting(
        None,
        "port of --host for Wyoming, Home Assistant's protocol, which has no keys; 0 for any free one; unset: none",
        at_least=0,
        at_most=65_535,
    )
    wyoming_zeroconf: str | None = setting(
        None, "name by which Home Assistant finds that port (Zeroconf), such as voicegate; unset: it is not announced"
    )
    jobs_dir: Path | None = setting(
        None, "folder for jobs, which are spoken in places that live streams leave free; unset: no jobs are taken"
    )
    jobs_queue: str | None = setting(
        None,
        "redis://HOST:PORT of a queue that gateways with one --jobs-dir share; unset: it is in that folder",
    )
    jobs_queue_password: str | None = setting(None, "its password", is_secret=True)
    max_jobs: int = setting(1000, "jobs that have not ended; further ones get HTTP 503", at_least=1)
    jobs_per_key: int = setting(100, "of those, with one key; further ones get HTTP 429", at_least=1)
    jobs_text_bytes: int = setting(
        2 * 1024 * 1024, "UTF-8 bytes of text in one job", at_least=1, at_most=16 * 1024 * 1024
    )
    jobs_keep_s: float = setting(604_800.0, "an ended job and its audio are deleted after this long", at_least=1)
    jobs_spare_bytes: int = setting(
        1024 * 1024 * 1024, "space on the disk of --jobs-dir that jobs leave free", at_least=0
    )
    jobs_webhooks: str = setting(
        "", "addresses, with commas, below which a job's webhook may be: https://app.example/hooks; unset: none"
    )
    jobs_webhook_secret: str | None = setting(
        None, "signs webhooks: whsec_ and 24 bytes or more in base64", is_secret=True
    )
    instance: str | None = setting(
        None, "this server's name behind a balancer: sessions' ids begin with it, see --resume-s; unset: none"
    )
    engine_timeout_s: float = setting(
        10.0,
        "an engine that gets nothing done is said to hang, within this time: /healthz, and clients, hear so",
        at_least=1,
        at_most=3600,
    )
    resume_s: int = setting(
        30,
        "a session waits for so long for a client whose socket dropped; 0: it ends at once",
        at_least=0,
        at_most=3600,
    )
    resume_session_bytes: int = setting(
        2 * 1024 * 1024,
        "kept of what one client may have missed; one that has missed more cannot come back",
        at_least=64 * 1024,
    )
    resume_total_bytes: int = setting(
        256 * 1024 * 1024, "kept for all clients; above it the largest sessions cannot come back", at_least=64 * 1024
    )
    drain_s: float = setting(30.0, "time from SIGTERM to exit, for contexts to finish in", at_least=0, at_most=86_400)
    lead_ms: int = setting(
        3_000, "audio made ahead of real time, where a client names no lead; lower wastes less", at_least=200
    )
    stall_ms: int = setting(
        350,
        "a client that pauses for this long has what it sent spoken; 0: only flush does",
        at_least=0,
        at_most=60_000,
    )
    max_utterances: int | None = setting(
        None, "utterances spoken at once; unset: as many as the device carries", at_least=1
    )
    threads: int | None = setting(None, "CPU threads of the engine; unset: chosen by the engine", at_least=1)
    device: Device = setting("auto", "where the engine runs; auto takes CUDA where there is one")
    gpus: str = setting(
        "",
        "an engine process on each of these GPUs, with commas: 0,1; cpu,cpu to try it without; unset: one engine",
    )
    engine_process: EngineProcess = setting(
        "auto", "where one engine runs: own, in a process beside the sockets'; shared, in theirs; auto: own with a GPU"
    )
    llm_device: str | None = setting(
        None, "disaggregated: the speech LLM's own GPU, such as cuda:0, see --token2wav-devices; unset: none"
    )
    token2wav_devices: str = setting(
        "", "disaggregated: GPUs with a flow and a vocoder each, with commas: cuda:1,cuda:2; cpu,cpu to try it without"
    )
    llm_backend: LlmBackend = setting(
        "auto", "what runs the speech LLM; auto: cuda (our kernels) on a GPU, torch on a CPU"
    )
    merged_hf_dir: Path | None = setting(
        None, "for tensorrt-llm and vllm: the checkpoint that `voicegate convert --merged-hf` wrote"
    )
    llm_options: str = setting("", "of an LLM backend that has some: NAME=VALUE with commas, such as stream-interval=4")
    vocoder_backend: Token2wavBackend = setting(
        "auto",
        "what runs the vocoder on a GPU: cuda (our kernels) or tensorrt, the engines of `voicegate build`; auto: "
        "where there are engines the quicker one, measured at the start",
    )
    flow_backend: Token2wavBackend = setting(
        "auto",
        "what runs the flow on a GPU: cuda (our kernels) or tensorrt, the engines of `voicegate build` for a block or "
        "two, our kernels for all others; auto: where there are engines those that are quicker, measured at the start",
    )
    tensorrt_dir: Path | None = setting(
        None, "directory of TensorRT's engines; unset: `tensorrt` in the model's directory"
    )
    # At most: the largest CUDA graph of the speech LLM.
    max_active_clauses: int | None = setting(
        None,
        "clauses at once, each with memory of its own; unset: 3 a GiB of a GPU, up to 448; 8 on a CPU",
        at_least=1,
        at_most=1024,
    )
    # At most: the flow's largest.
    max_flow_batch: int | None = setting(
        None, "clauses whose audio is made in one call; unset: up to 34 on a GPU, 4 on a CPU", at_least=1, at_most=84
    )
    encoder_processes: int | None = setting(
        None,
        "processes that encode Opus; 0: the engine itself; unset: on a GPU half the cores, at most 8",
        at_least=0,
        at_most=64,
    )
    precision: Precision = setting("bfloat16", "on a GPU: of the speech LLM and the flow; a CPU computes in float32")
    kv_dtype: KvDtype = setting(
        "auto", "on a GPU: of the context that the flow keeps; auto: float8, half the memory, if it can"
    )
    flow_products: FlowProducts = setting(
        "precision", "on a GPU: what the flow multiplies in large batches; float8 is faster and less precise"
    )
    vocoder_precision: VocoderPrecision = setting("float16", "on a GPU: of the vocoder's products")
    flow_context: FlowContext = setting(
        "whole", "of a Step-Audio2 model: trimmed keeps of earlier speech what upstream does, to compare"
    )
    eager: bool = setting(False, "on a GPU: no CUDA graphs; slower, for finding faults")

    def __post_init__(self) -> None:
        for config_field in config_fields():
            check(config_field, getattr(self, config_field.name))
        if self.instance is not None and not _INSTANCE.fullmatch(self.instance):
            raise ConfigError(f"instance is {self.instance!r}; it must be 1 to 63 letters, digits and hyphens")
        _ = self.trusted_networks, self.named_voices, self.counted_tags, self.engine_places  # raise
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise ConfigError(f"{missing} is unset; a certificate and its key go together")
        for name in ("api_key", "token_secret"):
            secret = getattr(self, name)
            if secret is None or _is_strong(secret):
                continue
            raise ConfigError(
                f"{name} must be at least {_MIN_KEY_CHARS} printable ASCII characters without spaces; "
                "`openssl rand -hex 32` makes one"
            )
        if self.wyoming_port is not None and (self.require_key or self.api_key or self.api_keys_file):
            raise ConfigError(
                "wyoming_port is set, and keys are asked for: any client of that port would speak without one. Run a "
                "server without keys for Wyoming, where only those who may speak reach it"
            )
        if self.wyoming_zeroconf is not None and self.wyoming_port is None:
            raise ConfigError("wyoming_zeroconf is set, and wyoming_port is not: there is nothing to announce")
        needed = self.text_bytes * _JSON_BYTES_PER_BYTE + _JSON_OVERHEAD_BYTES
        if self.max_message_bytes < needed:
            raise ConfigError(
                f"max_message_bytes is {self.max_message_bytes}; text of {self.text_bytes} bytes can need {needed}"
            )

    @property
    def trusted_networks(self) -> Networks:
        try:
            return tuple(ip_network(item) for item in listed(self.trusted_proxies))
        except ValueError as error:
            raise ConfigError(
                f"trusted_proxies is {self.trusted_proxies!r}; it must be networks such as 10.0.0.0/8 ({error})"
            ) from error

    @property
    def has_files_to_read_again(self) -> bool:
        """At SIGHUP."""
        return any(path is not None for path in (self.api_keys_file, self.pronunciations_file, self.tls_cert))

    @property
    def named_voices(self) -> dict[str, str]:
        pairs = [item.partition("=") for item in listed(self.voice_aliases)]
        if not all(theirs and ours for theirs, _, ours in pairs):
            raise ConfigError(f"voice_aliases is {self.voice_aliases!r}; it must be pairs such as alloy=anna,nova=bob")
        return {theirs.strip(): ours.strip() for theirs, _, ours in pairs}

    @property
    def counted_tags(self) -> tuple[str, ...]:
        tags = tuple(dict.fromkeys(listed(self.metric_tags)))
        if len(tags) > _MAX_METRIC_TAGS:
            raise ConfigError(f"metric_tags has {len(tags)} tags; at most {_MAX_METRIC_TAGS}, each is three series")
        return tags

    @property
    def engine_places(self) -> tuple[str, ...]:
        """Places in `gpus`: a GPU's number, or cpu, for each engine process; empty: there is one engine."""
        places = listed(self.gpus)
        if not all(place == CPU or place.isdecimal() for place in places):
            raise ConfigError(f"gpus is {self.gpus!r}; it must be numbers of GPUs such as 0,1, or cpu,cpu")
        if places and self.device != "auto":
            raise ConfigError(f"gpus and device ({self.device}) are both set: gpus says where the engines run")
        if places and self.engine_process == "shared":
            raise ConfigError("gpus is set, and engine_process is shared: each of these has a process of its own")
        if places and (self.llm_device is not None or self.token2wav_devices):
            raise ConfigError(
                "gpus is set, and llm_device or token2wav_devices too: have a whole engine on each GPU, or one with "
                "its models on several"
            )
        return places

    def found_model_dir(self) -> Path:
        """Raises ConfigError where none is set and the tiny model is not here."""
        return tiny_model_dir() if self.model_dir is None else self.model_dir


def tiny_model_dir() -> Path:
    """This source tree's, or the installed one. Raises ConfigError."""
    in_tree = Path(__file__).resolve().parent.parent / "models" / "tiny"
    if in_tree.is_dir():
        return in_tree
    try:
        installed: Path = import_module("voicegate_tiny_model").MODEL_DIR
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"no model is named (--model-dir), and the tiny one is not installed: {install_command('server')}"
        ) from error
    return installed


def _is_strong(key: str) -> bool:
    return len(key) >= _MIN_KEY_CHARS and all("!" <= char <= "~" for char in key)


def config_fields() -> tuple[ConfigField, ...]:
    """Every field of GatewayConfig in order, for help texts and flags."""
    hints = get_type_hints(GatewayConfig)
    return tuple(describe(item, hints[item.name]) for item in dataclasses.fields(GatewayConfig))


def from_environment(env: Mapping[str, str], overrides: Mapping[str, object] | None = None) -> GatewayConfig:
    """Defaults, then VOICEGATE_* of `env`, then `overrides` by field name (flags: text or typed, None is not given).

    What Kubernetes tells every pod of a Service whose name begins with "voicegate" is no setting.
    """
    by_env = {config_field.env: config_field for config_field in config_fields()}
    by_name = {config_field.name: config_field for config_field in config_fields()}
    values: dict[str, Any] = {}
    for variable, text in env.items():
        if variable.startswith(PREFIX) and not is_service_link(variable, text):
            if variable not in by_env:
                raise ConfigError(unknown(variable, list(by_env)))
            values[by_env[variable].name] = parse(by_env[variable], text, source=variable)
    for name, value in (overrides or {}).items():
        if name not in by_name:
            raise ConfigError(unknown(name, list(by_name)))
        if isinstance(value, str):
            values[name] = parse(by_name[name], value, source=by_name[name].flag)
        elif value is not None:
            values[name] = value
    return GatewayConfig(**values)
