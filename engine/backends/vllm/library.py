"""All that is asked of the `vllm` package, for 0.26: one AsyncLLM, its requests and what comes of them.

The package is imported by `open_library`, late: who does not choose it need not have it. The protocols name every
member that is used of its objects.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import import_module
from itertools import count
from typing import Any, Final, Protocol

from voicegate.engine.backends.legged.executor import Made
from voicegate.engine.backends.legged.legs import Leg
from voicegate.engine.backends.vllm.config import VllmConfig
from voicegate.engine.backends.vllm.request_args import KEY, RequestArgs
from voicegate.engine.child_process import before_multiprocessing
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import LlmConfig, SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

PROCESSOR: Final = "voicegate.engine.backends.vllm.ras_processor:RepetitionAwareProcessor"
ENDS_WITH_ENGINE: Final = "voicegate.engine.backends.vllm.ends_with_engine.EndsWithEngine"


class Completion(Protocol):
    @property
    def token_ids(self) -> Sequence[int]:
        """New ids, as DELTA was asked for."""

    @property
    def finish_reason(self) -> str | None: ...


class Output(Protocol):
    @property
    def outputs(self) -> Sequence[Completion]: ...

    @property
    def finished(self) -> bool: ...

    @property
    def num_cached_tokens(self) -> int | None: ...


class AsyncLlm(Protocol):
    def generate(self, prompt: object, sampling_params: object, request_id: str) -> AsyncIterator[Output]:
        """Submits when it is first iterated. Where that is cancelled, the request is aborted."""

    def shutdown(self) -> None: ...


class LegRequest:
    """Implements executor.Request."""

    def __init__(self, outputs: AsyncIterator[Output]) -> None:
        self._outputs = outputs

    def abort(self) -> bool:
        return False  # who listens is cancelled, by which vLLM aborts it

    async def __aiter__(self) -> AsyncIterator[Made]:
        async for output in self._outputs:
            completion = output.outputs[0]
            if output.finished:
                reason = completion.finish_reason or "without a reason"
                yield Made(tuple(completion.token_ids), reason, output.num_cached_tokens or 0)
            else:
                yield Made(tuple(completion.token_ids))


class VllmLibrary:
    """Implements executor.Library: one engine, which runs in a process of its own."""

    name = "vLLM"

    def __init__(
        self,
        llm: AsyncLlm,
        make_params: Callable[..., object],
        refusals: tuple[type[Exception], ...],
        settings: VllmConfig,
        config: LlmConfig,
        sampling: SamplingConfig,
        vocabulary: MergedVocabulary,
    ) -> None:
        self.refusals = refusals
        self._llm = llm
        self._make_params = make_params
        self._settings = settings
        self._config = config
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._numbers = count()

    def submit(self, leg: Leg) -> LegRequest:
        prompt = {"prompt_token_ids": list(leg.prompt_ids)}
        return LegRequest(self._llm.generate(prompt, self._sampling_params(leg), f"leg-{next(self._numbers)}"))

    def shutdown(self) -> None:
        self._llm.shutdown()

    def _sampling_params(self, leg: Leg) -> object:
        common: dict[str, Any] = {
            "max_tokens": leg.max_tokens,
            "stop_token_ids": [self._vocabulary.eos_id],  # others that end speech end the sequence in legs.py
            "temperature": 1.0,
        }
        sampling = self._sampling
        if not self._settings.is_repetition_aware:
            return self._make_params(**common, top_p=sampling.top_p, top_k=sampling.top_k)
        args = RequestArgs(
            first_speech_id=self._vocabulary.first_speech_id,
            speech_token_size=self._config.speech_token_size,
            num_speech_rows=self._config.num_speech_rows,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            window=sampling.window,
            tau_r=sampling.tau_r,
            min_tokens=leg.min_tokens,
            num_spoken=len(leg.spoken),
            last_spoken=list(leg.spoken[-sampling.window :]),
        )
        return self._make_params(**common, extra_args={KEY: args.as_dict()})


def open_library(
    settings: VllmConfig, config: LlmConfig, sampling: SamplingConfig, vocabulary: MergedVocabulary
) -> VllmLibrary:
    """Import the package and load the checkpoint. Raises EngineError where that does not go, with the remedy."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # it would tell its makers of this machine
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout is this server's own
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # this process has threads, and perhaps CUDA
    if settings.is_repetition_aware:
        os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")  # the first one has logits processors
    try:
        arguments, params = import_module("vllm.engine.arg_utils"), import_module("vllm.sampling_params")
        async_llm, exceptions = import_module("vllm.v1.engine.async_llm"), import_module("vllm.v1.engine.exceptions")
    except Exception as error:  # CUDA's own libraries' among them
        told = f"vllm is installed, but cannot be imported ({error}); see docs/operations/vllm.md"
        raise EngineError(told) from error
    before_multiprocessing()
    try:
        llm = async_llm.AsyncLLM.from_engine_args(
            arguments.AsyncEngineArgs(
                model=str(settings.checkpoint_dir),
                skip_tokenizer_init=True,
                dtype="bfloat16",
                max_model_len=settings.max_positions,
                max_num_seqs=settings.num_slots,
                max_num_batched_tokens=settings.max_step_tokens,
                gpu_memory_utilization=settings.gpu_memory_utilization,
                enable_prefix_caching=settings.has_reuse,
                enforce_eager=settings.is_eager,
                # The processor needs the newest ids.
                async_scheduling=not settings.is_repetition_aware,
                logits_processors=[PROCESSOR] if settings.is_repetition_aware else None,
                worker_extension_cls=ENDS_WITH_ENGINE,
                disable_log_stats=True,
            )
        )
    except Exception as error:
        raise EngineError(f"vLLM cannot load {settings.checkpoint_dir}: {error}") from error

    def make_params(**given: Any) -> object:
        return params.SamplingParams(**given, detokenize=False, output_kind=params.RequestOutputKind.DELTA)

    refusals = (exceptions.EngineGenerateError, ValueError)
    return VllmLibrary(llm, make_params, refusals, settings, config, sampling, vocabulary)
