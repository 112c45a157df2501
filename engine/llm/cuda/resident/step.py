"""A decode step of one line by decode_step.cu, on DecoderBody's buffers."""

import torch

from voicegate.engine.llm.cuda.resident.arguments import Buffers, KernelInputs
from voicegate.engine.llm.cuda.resident.compiling import (
    Launch,
    compile_kernel,
    is_shared,
    load_function,
    tensor_map,
)
from voicegate.engine.llm.cuda.resident.plan import NUM_WARPS, ResidentPlan
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.model.config import LlmConfig


class DeviceShared(RuntimeError):
    pass


class ResidentStep:
    """What `embed` has left of line 0 -> its keys and values in the cache, and its scores.

    Launches follow one another: they share what programs exchange.
    """

    def __init__(
        self,
        config: LlmConfig,
        weights: DecoderWeights,
        plan: ResidentPlan,
        buffers: Buffers,
        *,
        scale: float,
    ) -> None:
        """`scale` of scores, to the base 2.

        Raises KernelNotCompiled, RuntimeError for what the driver refuses, and DeviceShared: of two such kernels each
        would wait for the multiprocessors that the other has.
        """
        if is_shared(buffers.cache.device):
            raise DeviceShared("the GPU is shared by MPS: another engine's step might wait for ours, and ours for it")
        self._inputs = KernelInputs(config, weights, plan, buffers, tensor_map, scale=scale)
        capability = torch.cuda.get_device_capability(buffers.cache.device)
        code = compile_kernel(self._inputs.macros, capability=capability)
        self._launch = Launch(
            load_function(code, shared_memory_bytes=plan.shared_memory_bytes),
            self._inputs.arguments,
            num_programs=plan.num_programs,
            num_threads=32 * (NUM_WARPS + 1),
            shared_memory_bytes=plan.shared_memory_bytes,
        )

    def launch(self) -> None:
        """On the current stream."""
        self._launch()
