"""How this process runs a model: device, room and pace. What the model is stands in model_config. No torch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from voicegate.engine import additions
from voicegate.engine.cores import num_usable_cores

DEVICES: Final = ("auto", "cpu", "cuda")
PRECISIONS: Final = ("bfloat16", "float32")
KV_DTYPES: Final = ("auto", "bfloat16", "float32", "float8")
FLOW_PRODUCTS: Final = ("precision", "float8")
VOCODER_PRECISIONS: Final = ("float16", "bfloat16", "tf32", "float32")
FLOW_CONTEXTS: Final = ("whole", "trimmed")
TOKEN2WAV_BACKENDS: Final = ("auto", "cuda", *additions.names("token2wav"))
LLM_BACKENDS: Final = ("auto", "cuda", *additions.names("llm"), "torch")

# Memory of a GPU whose voices' prompts are kept twice: 46 MB a second of prompt each, of some 50 GB that contexts have
# there.
_TWO_LAYOUTS_BYTES: Final = 70 << 30

# Below the 25 tokens of a flow block; the three before are the lookahead of the prompt's last whole block.
MAX_FIRST_BLOCK_TOKENS: Final = 22
_FIRST_BLOCKS: Final = (
    "first_block_tokens",
    "whole_first_block_tokens",
)

_CHOICES: Final = {
    "device": DEVICES,
    "precision": PRECISIONS,
    "kv_dtype": KV_DTYPES,
    "flow_products": FLOW_PRODUCTS,
    "vocoder_precision": VOCODER_PRECISIONS,
    "flow_context": FLOW_CONTEXTS,
    "flow_backend": TOKEN2WAV_BACKENDS,
    "vocoder_backend": TOKEN2WAV_BACKENDS,
    "llm_backend": LLM_BACKENDS,
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """Defaults depend on this."""

    memory_bytes: int
    num_multiprocessors: int
    has_float8: bool = True

    def share_of(self, num_rows: int) -> int:
        """Rows of a call that takes about as long here as one of `num_rows` on the reference, which is the most."""
        return min(max(num_rows * self.num_multiprocessors // REFERENCE_GPU.num_multiprocessors, 1), num_rows)


# An H200, where the defaults were measured.
REFERENCE_GPU: Final = Gpu(memory_bytes=140 << 30, num_multiprocessors=132)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Where 0 stands for what suits the device, `resolved` puts it in; the engine's parts take a resolved one.

    Raises ValueError naming the field whose value is none of its choices, and them.
    """

    model_dir: Path
    device: str = "auto"  # of DEVICES
    # Disaggregated (docs/adr/0024): the speech LLM on a device of its own, and flow and vocoder on each of these. Such
    # as cuda:0 and cuda:1, cuda:2. Both are set, or neither.
    llm_device: str | None = None
    token2wav_devices: tuple[str, ...] = ()
    # One of these that has work and gets none of it done for so long is said to hang. Lower -> slow is taken for
    # hanging; higher -> its listeners hear nothing for longer before they are told.
    device_patience_s: float = 10.0
    threads: int | None = None  # of torch's CPU kernels; None: one per core

    # On a GPU alone (a CPU computes in float32). Weights and activations of LLM and flow.
    precision: str = "bfloat16"
    # Keys and values that the flow keeps, 90 MB a second of context and stream in bfloat16; float8 halves that (its
    # error: docs/adr/0013). auto: float8 where the GPU has it and `precision` is not float32.
    kv_dtype: str = "auto"
    # The flow multiplies so in batches of 10 streams and more: as `precision`, or float8, which is faster and less
    # precise (docs/adr/0013).
    flow_products: str = "precision"
    # Type of the vocoder's products.
    vocoder_precision: str = "float16"
    # A family whose upstream trims the flow's view of earlier speech: all of it, or upstream's part, for comparisons
    # with it (docs/adr/0017).
    flow_context: str = "whole"  # of FLOW_CONTEXTS
    # Every kernel is launched by itself instead of replaying CUDA graphs. For finding faults.
    is_eager: bool = False

    # Backend of the speech LLM. auto: cuda on a GPU (our kernels), torch on a CPU. tensorrt-llm: docs/adr/0015.
    llm_backend: str = "auto"  # of LLM_BACKENDS
    # For a backend that is an addition: the checkpoint that it loads, written by `voicegate convert --merged-hf`, and
    # NAME=VALUE settings that it alone knows.
    merged_hf_dir: Path | None = None
    llm_options: tuple[str, ...] = ()

    # Backend of the vocoder on a GPU; a CPU has torch's operations. cuda: our kernels; tensorrt: the engines of
    # `voicegate build` (docs/adr/0016). auto: where there are engines the quicker of both, measured at every start.
    vocoder_backend: str = "auto"  # of TOKEN2WAV_BACKENDS
    # The same of the flow, for batches of a block or two: all others are our kernels' (docs/adr/0016).
    flow_backend: str = "auto"
    # Engines of `voicegate build`; None: `tensorrt` in the model's directory.
    tensorrt_dir: Path | None = None

    # Utterances at once, without those at rest: these cost no model memory, and their contexts are bounded elsewhere.
    max_utterances: int = 0
    # Text of one utterance, which is kept for as long as it lives: what it takes of memory is bounded by this.
    max_text_chars: int = 1 << 20
    # LLM passes at once: each holds an LLM slot, and flow blocks for what it has said.
    # Higher -> more streams share a step; lower -> less memory and a shorter step.
    max_active_clauses: int = 0
    # Speech tokens of one LLM pass, 40 ms each; a pass that would run on is cut here and logged.
    max_clause_tokens: int = 750

    # Audio generated ahead of real time, unless a request names its own lead, which max_lead_ms bounds. While others
    # wait for room, a clause that is begun is finished all the same: it holds flow memory for as long as it is active.
    # Higher -> survives longer stalls; lower -> a barge-in that nobody reports wastes less.
    lead_ms: int = 3_000
    max_lead_ms: int = 60_000
    # Speech tokens that the LLM may be ahead of the flow. Lower -> the LLM idles between blocks.
    llm_ahead_tokens: int = 100

    # Text that waits for more (half a sentence) is said once none has come for this long and its listener has less
    # than stall_lead_ms left to hear. 0: never; then speech depends on the text alone, not on when it came.
    # An LLM's tokens come every 10 to 60 ms, a slow one's every 200; a tool call takes seconds.
    # While a sentence is spoken as it is written, a slow writer's pause is longer (constants.PAUSE_TIMES).
    # Lower -> seams inside sentences of a jittery writer; higher -> a longer silence before a pausing one is heard.
    stall_ms: int = 350
    # Lower -> a gap in the sound at a stall; higher -> a seam where the text would still have come in time.
    stall_lead_ms: int = 500

    # Speaking while a sentence is written (core/growth.py, docs/adr/0006): of the speech tokens
    # that the known words would take at the voice's pace, the share that may be made while more text follows. 0: what
    # `voicegate tune-voice` wrote into the voice's file, or 0.8 where it was not tuned.
    # Higher -> first sound sooner, and speech that drags where it outruns its text; lower -> later, and gaps.
    growing_share: float = 0.0

    # Speech tokens in the flow's first block, behind a prompt of any length (docs/adr/0007). Lower -> first audio
    # sooner, but less of it to cover the second block, which takes longer where torch decodes on a CPU
    # (docs/adr/0018).
    first_block_tokens: int = 0
    # First block of a text that is whole when its first pass begins, where few have work, no seed was given, the speed
    # is at most 1 and a packet 20 ms: after it nothing that is still written has to be waited for (docs/adr/0007).
    whole_first_block_tokens: int = 0
    # Where the two numbers differ, a voice's prompt lies in the flow's memory twice; where that would take more than an
    # eighth of a GPU's, this one is the first.

    # The user's own voices, beside the model's: NAME.wav + NAME.txt or NAME.safetensors (engine/voices/store.py).
    # Voices added while the engine runs are kept here; without it they last until it ends.
    voices_dir: Path | None = None
    # Voices beside those of the start whose prompts the flow's memory has room for at once, and the longest prompt that
    # they and the LLM's slots have room for: a second of it costs a flow block, or two, see above. Further
    # voices take turns (core/voice_shelf.py). Higher -> more and longer voices at once; lower -> more streams.
    spare_voices: int = 2
    spare_voice_tokens: int = 250

    # Processes that encode packets beside the engine's; 0: it encodes itself, as a CPU's few streams need. 400 streams
    # keep about two cores busy. None: by device, on a GPU half the cores and at most 8.
    encoder_processes: int | None = None

    # Utterances that may wait for room in the models before new requests are refused.
    # Higher -> bursts are smoothed; lower -> a client knows sooner that it should ask another server.
    max_waiting_utterances: int = 32
    # Flow blocks (a second each) are set aside for a clause by this guess at its length; English has about 6.
    # Higher -> fewer clauses at once; lower -> a clause may have to wait for memory in the middle.
    expected_tokens_per_text_token: int = 8

    # Whole blocks, or shorter ones with as many frames, that are solved in one call: 34 on an H200, on smaller GPUs as
    # many as take about as long. The flow takes the largest of its buckets that is no larger.
    # Higher -> more throughput; lower -> less waiting for others.
    max_flow_batch: int = 0
    # Limit while every listener who waits for something has more than a second left to play.
    max_buffered_flow_batch: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
        if self.llm_device is not None or self.token2wav_devices:
            additions.load("disaggregated", "config").check(self)
        if self.llm_options and self.llm_backend not in additions.names("llm"):
            raise ValueError(f"llm_options is set, and llm_backend {self.llm_backend} has none")
        for name in _FIRST_BLOCKS:
            if not 0 <= (num_tokens := getattr(self, name)) <= MAX_FIRST_BLOCK_TOKENS:
                raise ValueError(
                    f"{name} is {num_tokens}; a flow block has room for 1 to {MAX_FIRST_BLOCK_TOKENS} after a prompt, "
                    "and 0 leaves it to the device"
                )

    def resolved(self, device_type: str, gpu: Gpu = REFERENCE_GPU, *, decodes_in_c: bool = True) -> "EngineConfig":
        """With the device's own numbers where this has 0; `device_type` is cpu or cuda.

        `decodes_in_c`: on a CPU (engine/llm/cpu); torch's decodes take twice as long.
        """
        is_gpu = device_type == "cuda"
        max_flow_batch = self.max_flow_batch or (gpu.share_of(34) if is_gpu else 4)
        # A GPU's steps are so short that a block of 10 tokens is followed in time by the next, also by words.
        first_block_tokens = self.first_block_tokens or (10 if is_gpu else 12 if decodes_in_c else 17)
        has_two = is_gpu and not self.first_block_tokens and gpu.memory_bytes >= _TWO_LAYOUTS_BYTES
        max_buffered_flow_batch = gpu.share_of(84) if is_gpu and not self.max_flow_batch else max_flow_batch
        return replace(
            self,
            max_utterances=self.max_utterances or (1024 if is_gpu else 64),
            max_active_clauses=self.max_active_clauses or (_active_clauses(gpu) if is_gpu else 8),
            kv_dtype=self._kv_dtype(gpu if is_gpu else None) if self.kv_dtype == "auto" else self.kv_dtype,
            max_flow_batch=max_flow_batch,
            max_buffered_flow_batch=self.max_buffered_flow_batch or max_buffered_flow_batch,
            first_block_tokens=first_block_tokens,
            whole_first_block_tokens=self.whole_first_block_tokens or (5 if has_two else first_block_tokens),
            encoder_processes=_encoder_processes(is_gpu) if self.encoder_processes is None else self.encoder_processes,
        )

    def _kv_dtype(self, gpu: Gpu | None) -> str:
        if gpu is None:
            return "float32"
        return "float8" if gpu.has_float8 and self.precision == "bfloat16" else self.precision


def distinct_names(devices: Sequence[str]) -> list[str]:
    """Names of parts with their place on these: the second on cpu is cpu.2."""
    seen: Counter[str] = Counter()
    names = []
    for device in devices:
        seen[device] += 1
        names.append(device if seen[device] == 1 else f"{device}.{seen[device]}")
    return names


def _active_clauses(gpu: Gpu) -> int:
    """About 3 a GiB: each has a slot of the LLM and of the vocoder, and a second or more of the flow's context."""
    return min(max(16 * round(gpu.memory_bytes / (5 << 30)), 16), 448)


def _encoder_processes(is_gpu: bool) -> int:
    return min(max(num_usable_cores() // 2, 1), 8) if is_gpu else 0
