"""TensorRT-LLM's answers to the core."""

from typing import Final

from voicegate.engine.backends.legged.addition import LeggedAddition
from voicegate.engine.backends.legged.options import FLAGS, one_of, whole_number
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.backends.tensorrt_llm.library import open_library
from voicegate.engine.backends.tensorrt_llm.requirements import check_requirements
from voicegate.engine.load.seams import LlmAddition

ADDITION: Final[LlmAddition] = LeggedAddition(
    "TensorRT-LLM",
    {
        "worker": ("has_worker_process", one_of(FLAGS)),
        "sampling": ("is_repetition_aware", one_of({"nvidia": False, "repetition-aware": True})),
        "stream-interval": ("stream_interval", whole_number),
        "overlap": ("has_overlap", one_of(FLAGS)),
        "reuse": ("has_reuse", one_of(FLAGS)),
    },
    version=lambda device: check_requirements(device),
    settings=lambda given, *_: TensorrtLlmConfig(**given),
    opened=open_library,
)
