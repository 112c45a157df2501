"""attend.cu on a device."""

import math

import torch

from voicegate.engine.device.cuda.driver import Launch, load_function
from voicegate.engine.device.cuda.nvrtc import compile_kernel
from voicegate.engine.token2wav.flow.cuda.buffers import BatchView
from voicegate.engine.token2wav.flow.cuda.lone.arguments import (
    KERNEL,
    MACROS,
    NUM_THREADS,
    SHARED_MEMORY_BYTES,
    arguments_of,
    programs_of,
)
from voicegate.engine.token2wav.flow.cuda.tensors import FlowTensors


class LoneAttention:
    def __init__(self, device: torch.device) -> None:
        """Raises KernelNotCompiled, RuntimeError for what the driver refuses."""
        code = compile_kernel(KERNEL, MACROS, capability=torch.cuda.get_device_capability(device))
        with torch.cuda.device(device):
            self._function = load_function(code, "attend", shared_memory_bytes=SHARED_MEMORY_BYTES)
        self._num_multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count

    def has_room(self, tensors: FlowTensors, batch: BatchView) -> bool:
        """Whether all programs run at once, as one does on each multiprocessor."""
        return math.prod(programs_of(tensors, batch)) <= self._num_multiprocessors

    def launch(
        self, tensors: FlowTensors, batch: BatchView, qkv: torch.Tensor, layer: int, *, out: torch.Tensor
    ) -> None:
        """As AttendOp, of what `can_attend`; on the current stream."""
        launch = Launch(
            self._function,
            programs_of(tensors, batch),
            num_threads=NUM_THREADS,
            shared_memory_bytes=SHARED_MEMORY_BYTES,
            is_pdl=tensors.is_pdl,
        )
        launch(arguments_of(tensors, batch, qkv, layer, out=out))
