"""A decode step of one line by decode_step.cu, on DecoderBody's buffers."""

from functools import partial

import torch

from voicegate.engine.device.cuda.driver import Launch, is_shared, load_function, tensor_map
from voicegate.engine.device.cuda.nvrtc import compile_kernel
from voicegate.engine.llm.cuda.resident.arguments import KERNEL, Buffers, KernelInputs
from voicegate.engine.llm.cuda.resident.plan import BOX, NUM_WARPS, ResidentPlan
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
        self._inputs = KernelInputs(config, weights, plan, buffers, partial(tensor_map, box=BOX), scale=scale)
        capability = torch.cuda.get_device_capability(buffers.cache.device)
        code = compile_kernel(KERNEL, self._inputs.macros, capability=capability)
        self._launch = Launch(
            load_function(code, "decode_step", shared_memory_bytes=plan.shared_memory_bytes),
            (plan.num_programs, 1, 1),
            num_threads=32 * (NUM_WARPS + 1),
            shared_memory_bytes=plan.shared_memory_bytes,
            is_pdl=True,
        )

    def launch(self) -> None:
        """On the current stream."""
        self._launch(self._inputs.arguments)
