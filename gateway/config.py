"""GatewayConfig: everything that may be set, once, at start. Read from VOICEGATE_* variables and from flags.

Each field carries its help text; its variable and flag are derived from its name. Only `from_environment` reads
strings. Engine fields are carried here and mean nothing to the gateway. Raises ConfigError.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

from voicegate.gateway.config_fields import PREFIX, ConfigError, ConfigField, describe, parse, unknown

# A byte of text may be written as six in JSON (\u001f); the rest of a message is small.
_JSON_BYTES_PER_BYTE: Final = 6
_JSON_OVERHEAD_BYTES: Final = 1024

_MAX_METRIC_TAGS: Final = 64

# Lower lets people choose keys that can be guessed.
_MIN_KEY_CHARS: Final = 16

# What a host may be named: a balancer finds it in an address.
_INSTANCE: Final = re.compile(r"[A-Za-z0-9-]{1,63}")

# Among `gpus`: an engine process on the CPU.
CPU: Final = "cpu"

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["bfloat16", "float32"]
KvDtype = Literal["auto", "bfloat16", "float32", "float8"]
FlowProducts = Literal["precision", "float8"]
FlowContext = Literal["whole", "trimmed"]
Networks = tuple[IPv4Network | IPv6Network, ...]
VocoderBackend = Literal["auto", "cuda", "tensorrt"]
LlmBackend = Literal["auto", "cuda", "tensorrt-llm", "torch"]
TensorrtLlmSampling = Literal["nvidia", "repetition-aware"]
VocoderPrecision = Literal["float16", "bfloat16", "tf32", "float32"]


def listed(text: str) -> tuple[str, ...]:
    """The items of a setting that holds several, with commas between them."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    host: str = field(default="127.0.0.1", metadata=_help("address to listen on; 0.0.0.0 for all"))
    port: int = field(default=8080, metadata=_help("port to listen on; 0 for any free one"))
    model_dir: Path | None = field(
        default=None, metadata=_help("directory of the model to serve; unset: the tiny model")
    )
    voices_dir: Path | None = field(
        default=None,
        metadata=_help("directory of your own voices: NAME.wav with NAME.txt, which says what it says; unset: none"),
    )
    log_level: LogLevel = field(
        default="info", metadata=_help("least severe log lines shown; debug may contain user text")
    )
    log_format: LogFormat = field(default="json", metadata=_help("json for machines, console for people"))
    log_lines_per_s: int = field(
        default=100,
        metadata=_help("log lines a second of one kind; of those that come faster the log tells the number"),
    )
    contexts_per_socket: int = field(default=256, metadata=_help("contexts open at once on one socket"))
    contexts_per_address: int | None = field(
        default=None, metadata=_help("contexts open at once from one address; unset: no such limit")
    )
    utterances_per_address: int | None = field(
        default=None, metadata=_help("contexts of one address with something to say; unset: no such limit")
    )
    waiting_contexts: int = field(
        default=64, metadata=_help("contexts that may wait for room in the engine; further ones are refused at once")
    )
    waiting_s: float = field(
        default=1.0, metadata=_help("time for which they wait, then they are refused; 0: none wait")
    )
    max_contexts: int = field(default=16_384, metadata=_help("contexts open at once on all sockets together"))
    context_idle_s: float = field(
        default=600.0, metadata=_help("a context with nothing to say ends after hearing nothing for this long")
    )
    context_life_s: float = field(default=14_400.0, metadata=_help("a context ends after this long, whatever it does"))
    enrolment: bool = field(
        default=False, metadata=_help("clients may add, replace and take away voices: POST and DELETE at /v1/voices")
    )
    max_voices: int = field(default=256, metadata=_help("voices until there are so many, those of the model included"))
    voice_aliases: str = field(
        default="",
        metadata=_help("voices by the names of other protocols' clients, with commas: alloy=anna,nova=bob"),
    )
    pronunciations_file: Path | None = field(
        default=None,
        metadata=_help(
            'JSON file of words and how they are said, read again on SIGHUP: {"SQL": "sequel"}; unset: none'
        ),
    )
    metric_tags: str = field(
        default="",
        metadata=_help("tags of clients, with commas, that /metrics tells apart; all others count as one"),
    )
    allowed_origins: str = field(
        default="",
        metadata=_help("other sites whose pages may connect, with commas: https://app.example; * for all, null too"),
    )
    allowed_hosts: str = field(
        default="",
        metadata=_help("names, with commas, by which pages know this server; unset: any, on loopback only localhost"),
    )
    trusted_proxies: str = field(
        default="",
        metadata=_help("networks, with commas, whose X-Forwarded-For tells the client's address: 10.0.0.0/8"),
    )
    api_keys_file: Path | None = field(
        default=None,
        metadata=_help("file of API keys, read again on SIGHUP; `voicegate keys` makes it; unset: none is asked for"),
    )
    api_key: str | None = field(
        default=None,
        repr=False,
        metadata=_help("an API key that clients must name, beside those of the file") | {"secret": True},
    )
    token_secret: str | None = field(
        default=None,
        repr=False,
        metadata=_help("signs tokens for browsers; the same on all servers behind one address; unset: made at start")
        | {"secret": True},
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=_help("certificate with its chain, in PEM, read again on SIGHUP: the port speaks TLS; unset: no TLS"),
    )
    tls_key: Path | None = field(default=None, metadata=_help("the certificate's key, in PEM without a password"))
    require_key: bool = field(default=False, metadata=_help("do not start where no API key is asked for"))
    max_sockets: int = field(default=1024, metadata=_help("sockets open at once; further ones get HTTP 503"))
    sockets_per_address: int | None = field(
        default=None, metadata=_help("of those, from one address; further ones get HTTP 429; unset: no such limit")
    )
    text_bytes: int = field(default=64 * 1024, metadata=_help("UTF-8 bytes of text in one message"))
    context_text_bytes: int = field(default=1024 * 1024, metadata=_help("UTF-8 bytes of text over a context's life"))
    max_message_bytes: int = field(
        default=1024 * 1024, metadata=_help("bytes in one WebSocket message; a longer one closes the socket")
    )
    messages_per_s: int = field(
        default=1000,
        metadata=_help("WebSocket messages and pings a second that a socket may send; more are read more slowly"),
    )
    write_stall_s: float = field(
        default=10.0, metadata=_help("a peer that reads nothing for this long while data waits is dropped")
    )
    metrics_port: int | None = field(
        default=None, metadata=_help("port for Prometheus, GET /metrics without a key; 0 for any free one; unset: none")
    )
    metrics_host: str = field(default="127.0.0.1", metadata=_help("address to tell metrics on"))
    tracing: bool = field(
        default=False, metadata=_help("a span for each utterance, by OpenTelemetry (OTLP); OTEL_* say where to")
    )
    agent_port: int | None = field(
        default=None,
        metadata=_help("port that tells HAProxy's agent-check how much room is left; 0 for any free one; unset: none"),
    )
    agent_host: str = field(default="127.0.0.1", metadata=_help("address to tell that on"))
    instance: str | None = field(
        default=None,
        metadata=_help(
            "this server's name behind a balancer: sessions' ids begin with it, see --resume-s; unset: none"
        ),
    )
    engine_timeout_s: float = field(
        default=10.0,
        metadata=_help(
            "an engine that gets nothing done is said to hang, within this time: /healthz, and clients, hear so"
        ),
    )
    resume_s: int = field(
        default=30, metadata=_help("a session waits for so long for a client whose socket dropped; 0: it ends at once")
    )
    resume_session_bytes: int = field(
        default=2 * 1024 * 1024,
        metadata=_help("kept of what one client may have missed; one that has missed more cannot come back"),
    )
    resume_total_bytes: int = field(
        default=256 * 1024 * 1024, metadata=_help("kept for all clients; above it those who need most cannot come back")
    )
    drain_s: float = field(default=30.0, metadata=_help("time from SIGTERM to exit, for contexts to finish in"))
    lead_ms: int = field(
        default=3_000, metadata=_help("audio made ahead of real time, where a client names no lead; lower wastes less")
    )
    stall_ms: int = field(
        default=350, metadata=_help("a client that pauses for this long has what it sent spoken; 0: only flush does")
    )
    max_utterances: int | None = field(
        default=None, metadata=_help("utterances spoken at once; unset: as many as the device carries")
    )
    threads: int | None = field(default=None, metadata=_help("CPU threads of the engine; unset: chosen by the engine"))
    device: Device = field(default="auto", metadata=_help("where the engine runs; auto takes CUDA where there is one"))
    gpus: str = field(
        default="",
        metadata=_help(
            "an engine process on each of these GPUs, with commas: 0,1; cpu,cpu to try it without; unset: none, the "
            "engine runs in this process"
        ),
    )
    llm_device: str | None = field(
        default=None,
        metadata=_help("disaggregated: the speech LLM's own GPU, such as cuda:0, see --token2wav-devices; unset: none"),
    )
    token2wav_devices: str = field(
        default="",
        metadata=_help(
            "disaggregated: GPUs with a flow and a vocoder each, with commas: cuda:1,cuda:2; cpu,cpu to try it without"
        ),
    )
    llm_backend: LlmBackend = field(
        default="auto",
        metadata=_help("what runs the speech LLM; auto: cuda (our kernels) on a GPU, torch on a CPU"),
    )
    merged_hf_dir: Path | None = field(
        default=None, metadata=_help("for tensorrt-llm: the checkpoint that `voicegate convert --merged-hf` wrote")
    )
    tensorrt_llm_worker: bool = field(
        default=False, metadata=_help("run TensorRT-LLM's executor in a process of its own instead of in this one")
    )
    tensorrt_llm_sampling: TensorrtLlmSampling = field(
        default="nvidia", metadata=_help("nvidia: as its CosyVoice runtime; repetition-aware: the model's, slower")
    )
    tensorrt_llm_stream_interval: int = field(
        default=2, metadata=_help("decode steps between TensorRT-LLM's outputs; higher takes less Python a token")
    )
    tensorrt_llm_overlap: bool = field(
        default=True, metadata=_help("TensorRT-LLM's overlap scheduler; off: a lone stream hears a step sooner")
    )
    tensorrt_llm_reuse: bool = field(
        default=True, metadata=_help("TensorRT-LLM's prefix cache; off: for finding faults")
    )
    vocoder_backend: VocoderBackend = field(
        default="auto",
        metadata=_help(
            "what runs the vocoder on a GPU: cuda (our kernels) or tensorrt, the engines of `voicegate build`; auto: "
            "where there are engines the quicker one, measured at the start"
        ),
    )
    tensorrt_dir: Path | None = field(
        default=None, metadata=_help("directory of TensorRT's engines; unset: `tensorrt` in the model's directory")
    )
    max_active_clauses: int | None = field(
        default=None,
        metadata=_help("clauses at once, each with memory of its own; unset: 3 a GiB of a GPU, up to 448; 8 on a CPU"),
    )
    max_flow_batch: int | None = field(
        default=None, metadata=_help("clauses whose audio is made in one call; unset: up to 34 on a GPU, 4 on a CPU")
    )
    encoder_processes: int | None = field(
        default=None,
        metadata=_help("processes that encode Opus; 0: the engine itself; unset: on a GPU half the cores, at most 8"),
    )
    precision: Precision = field(
        default="bfloat16", metadata=_help("on a GPU: of the speech LLM and the flow; a CPU computes in float32")
    )
    kv_dtype: KvDtype = field(
        default="auto",
        metadata=_help("on a GPU: of the context that the flow keeps; auto: float8, half the memory, if it can"),
    )
    flow_products: FlowProducts = field(
        default="precision",
        metadata=_help("on a GPU: what the flow multiplies in large batches; float8 is faster and less precise"),
    )
    vocoder_precision: VocoderPrecision = field(
        default="float16", metadata=_help("on a GPU: of the vocoder's products")
    )
    flow_context: FlowContext = field(
        default="whole",
        metadata=_help("of a Step-Audio2 model: trimmed keeps of earlier speech what upstream does, to compare"),
    )
    eager: bool = field(default=False, metadata=_help("on a GPU: no CUDA graphs; slower, for finding faults"))

    def __post_init__(self) -> None:
        for check in _RANGES:
            value = getattr(self, check.name)
            if value is not None and not check.minimum <= value <= check.maximum:
                most = "" if check.maximum == float("inf") else f" and at most {check.maximum}"
                raise ConfigError(f"{check.name} is {value}; it must be at least {check.minimum}{most}")
        for config_field in config_fields():
            value = getattr(self, config_field.name)
            choices = (True, False) if config_field.value_type is bool else config_field.choices
            if choices and value not in choices:
                raise ConfigError(f"{config_field.name} is {value!r}; it must be one of {config_field.choices_text}")
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
        """Of `gpus`: a GPU's number, or cpu, for each engine process; empty: the engine runs in this process."""
        places = listed(self.gpus)
        if not all(place == CPU or place.isdecimal() for place in places):
            raise ConfigError(f"gpus is {self.gpus!r}; it must be numbers of GPUs such as 0,1, or cpu,cpu")
        if places and self.device != "auto":
            raise ConfigError(f"gpus and device ({self.device}) are both set: gpus says where the engines run")
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
            "no model is named (--model-dir), and the tiny one is not installed: `pip install 'voicegate[server]'`"
        ) from error
    return installed


def _is_strong(key: str) -> bool:
    return len(key) >= _MIN_KEY_CHARS and all("!" <= char <= "~" for char in key)


@dataclass(frozen=True, slots=True)
class _Range:
    name: str
    minimum: float
    maximum: float = float("inf")


_RANGES: Final = (
    _Range("port", 0, 65_535),
    _Range("log_lines_per_s", 1),
    _Range("contexts_per_socket", 1, 32_768),  # half of the handles, so that none is used again at once
    _Range("contexts_per_address", 1),
    _Range("utterances_per_address", 1),
    _Range("waiting_contexts", 0),
    _Range("waiting_s", 0, 60),
    _Range("max_contexts", 1),
    _Range("max_voices", 1),
    _Range("context_idle_s", 1, 86_400),
    _Range("context_life_s", 1, 86_400),  # audio messages count their time modulo a day
    _Range("max_sockets", 1),
    _Range("sockets_per_address", 1),
    _Range("text_bytes", 1),
    _Range("context_text_bytes", 1),
    _Range("max_message_bytes", 1),
    _Range("messages_per_s", 1),
    _Range("write_stall_s", 0.05, 86_400),
    _Range("metrics_port", 0, 65_535),
    _Range("agent_port", 0, 65_535),
    _Range("engine_timeout_s", 1, 3600),
    _Range("resume_s", 0, 3600),
    _Range("resume_session_bytes", 64 * 1024),
    _Range("resume_total_bytes", 64 * 1024),
    _Range("drain_s", 0, 86_400),
    _Range("lead_ms", 200),
    _Range("stall_ms", 0, 60_000),
    _Range("max_utterances", 1),
    _Range("threads", 1),
    _Range("tensorrt_llm_stream_interval", 1),
    _Range("max_active_clauses", 1, 1024),  # the largest CUDA graph of the speech LLM
    _Range("max_flow_batch", 1, 84),  # the flow's
    _Range("encoder_processes", 0, 64),
)


def config_fields() -> tuple[ConfigField, ...]:
    """Every field of GatewayConfig in order, for help texts and flags."""
    hints = get_type_hints(GatewayConfig)
    return tuple(describe(item, hints[item.name]) for item in dataclasses.fields(GatewayConfig))


def from_environment(env: Mapping[str, str], overrides: Mapping[str, object] | None = None) -> GatewayConfig:
    """Defaults, then VOICEGATE_* of `env`, then `overrides` by field name (flags: text or typed, None is not given)."""
    by_env = {config_field.env: config_field for config_field in config_fields()}
    by_name = {config_field.name: config_field for config_field in config_fields()}
    values: dict[str, Any] = {}
    for variable, text in env.items():
        if variable.startswith(PREFIX):
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
