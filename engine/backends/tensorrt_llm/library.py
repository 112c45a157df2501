"""All that is asked of the `tensorrt_llm` package, for 1.2.x: one LLM, its requests and what comes of them.

The package is imported by `open_library`, late: who does not choose it need not have it. The protocols name every
member that is used of its objects; tests hold them, and the calls, against NVIDIA's signatures.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol, cast

from voicegate.engine.backends.legged.executor import Made
from voicegate.engine.backends.legged.legs import Leg
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import LlmConfig, SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

# Read once by the package, before its first executor.
SINGLE_PROCESS: Final = "TLLM_WORKER_USE_SINGLE_PROCESS"

# NVIDIA's own runtime for CosyVoice samples with these (runtime/triton_trtllm of FunAudioLLM/CosyVoice).
_TEMPERATURE: Final = 0.8
_TOP_P: Final = 0.95
_TOP_K: Final = 50
_REPETITION_PENALTY: Final = 1.1

_SEED_BITS: Final = (1 << 63) - 1


class Completion(Protocol):
    @property
    def token_ids_diff(self) -> Sequence[int]:
        """Tokens since it was last read: once per response."""

    @property
    def finish_reason(self) -> str | None: ...


class Result(Protocol):
    """Result of one request; iterating gives the object itself after every response. Only on the loop that asked for
    it."""

    @property
    def outputs(self) -> Sequence[Completion]: ...

    @property
    def finished(self) -> bool: ...

    @property
    def cached_tokens(self) -> int | None: ...

    def abort(self) -> None: ...

    def __aiter__(self) -> AsyncIterator["Result"]: ...


class Llm(Protocol):
    def generate_async(
        self, inputs: list[int], sampling_params: object = None, *, streaming: bool = False
    ) -> Result: ...

    def shutdown(self) -> None: ...


class Package(Protocol):
    """`tensorrt_llm`."""

    LLM: Callable[..., Llm]
    SamplingParams: Callable[..., object]


class LlmApi(Protocol):
    """`tensorrt_llm.llmapi`."""

    KvCacheConfig: Callable[..., object]
    CudaGraphConfig: Callable[..., object]
    RequestError: type[Exception]


class LegRequest:
    """Implements executor.Request."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def abort(self) -> bool:
        self._result.abort()
        return True  # its last response follows

    async def __aiter__(self) -> AsyncIterator[Made]:
        async for response in self._result:
            output = response.outputs[0]
            ids = tuple(output.token_ids_diff)  # once a turn: it is what came since it was last asked for
            if response.finished:
                yield Made(ids, output.finish_reason or "without a reason", response.cached_tokens or 0)
            else:
                yield Made(ids)


class TensorrtLlmLibrary:
    """Implements executor.Library: one executor on the GPU."""

    name = "TensorRT-LLM"

    def __init__(
        self,
        package: Package,
        llm: Llm,
        refusals: tuple[type[Exception], ...],
        settings: TensorrtLlmConfig,
        config: LlmConfig,
        sampling: SamplingConfig,
        vocabulary: MergedVocabulary,
    ) -> None:
        self.refusals = refusals  # what `submit` and a Result raise for one request alone
        self._package = package
        self._llm = llm
        self._settings = settings
        self._config = config
        self._sampling = sampling
        self._vocabulary = vocabulary

    def submit(self, leg: Leg) -> LegRequest:
        sampling_params = self._sampling_params(leg)
        result = self._llm.generate_async(list(leg.prompt_ids), sampling_params=sampling_params, streaming=True)
        return LegRequest(result)

    def shutdown(self) -> None:
        self._llm.shutdown()

    def _sampling_params(self, leg: Leg) -> object:
        """New for each request: the package writes into it."""
        # Other ids that end speech end the sequence in legs.py: with a single one, the package's check is a cheap one.
        common: dict[str, Any] = {
            "end_id": self._vocabulary.eos_id,
            "pad_id": self._vocabulary.eos_id,
            "max_tokens": leg.max_tokens,
            "detokenize": False,
        }
        if not self._settings.is_repetition_aware:
            return self._package.SamplingParams(
                **common,
                temperature=_TEMPERATURE,
                top_p=_TOP_P,
                top_k=_TOP_K,
                repetition_penalty=_REPETITION_PENALTY,
                # Unset it is the same for everybody. A leg behind another does not draw that one's numbers again.
                seed=(leg.seed + len(leg.spoken)) & _SEED_BITS,
            )
        # Its class is one of the package's: it is not there before.
        from voicegate.engine.backends.tensorrt_llm.ras_processor import RepetitionAwareProcessor  # noqa: PLC0415

        first_speech_id = self._vocabulary.first_speech_id
        processor = RepetitionAwareProcessor(leg, self._sampling, self._config, first_speech_id=first_speech_id)
        return self._package.SamplingParams(**common, top_k=1, logits_processor=processor)


def open_library(
    settings: TensorrtLlmConfig, config: LlmConfig, sampling: SamplingConfig, vocabulary: MergedVocabulary
) -> TensorrtLlmLibrary:
    """Import the package and load the checkpoint. Raises EngineError where that does not go, with the remedy."""
    if settings.has_worker_process:
        os.environ.pop(SINGLE_PROCESS, None)
    else:
        os.environ[SINGLE_PROCESS] = "1"
    try:
        package = cast(Package, import_module("tensorrt_llm"))
        llmapi = cast(LlmApi, import_module("tensorrt_llm.llmapi"))
    except Exception as error:  # MPI's and the CUDA libraries' own among them
        raise EngineError(
            f"tensorrt_llm is installed, but cannot be imported ({error}); its release container has all that it needs "
            "(docs/operations/tensorrt.md)"
        ) from error
    try:
        llm = package.LLM(
            model=str(settings.checkpoint_dir),
            skip_tokenizer_init=True,
            max_batch_size=settings.num_slots,
            max_num_tokens=settings.max_step_tokens,
            max_seq_len=settings.max_positions,
            kv_cache_config=llmapi.KvCacheConfig(
                max_tokens=settings.max_cached_tokens, enable_block_reuse=settings.has_reuse
            ),
            # Without padding, batches of other sizes than the captured ones run without a graph.
            cuda_graph_config=None
            if settings.is_eager
            else llmapi.CudaGraphConfig(enable_padding=True, max_batch_size=settings.num_slots),
            disable_overlap_scheduler=not settings.has_overlap,
            stream_interval=settings.stream_interval,
            # The other one ignores a repetition penalty, without a word.
            sampler_type="TorchSampler" if settings.is_repetition_aware else "TRTLLMSampler",
        )
    except Exception as error:
        raise EngineError(f"TensorRT-LLM cannot load {settings.checkpoint_dir}: {error}") from error
    return TensorrtLlmLibrary(package, llm, (llmapi.RequestError, ValueError), settings, config, sampling, vocabulary)
