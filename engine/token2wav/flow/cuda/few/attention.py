"""attend.cu on a device."""

import torch

from voicegate.engine.device.cuda.driver import Launch, load_function
from voicegate.engine.device.cuda.nvrtc import compile_kernel
from voicegate.engine.token2wav.flow.cuda.buffers import BatchView
from voicegate.engine.token2wav.flow.cuda.few.arguments import (
    KERNEL,
    NUM_THREADS,
    SHARED_MEMORY_BYTES,
    arguments_of,
    programs_of,
)
from voicegate.engine.token2wav.flow.cuda.tensors import FlowTensors


class FewAttention:
    def __init__(self, device: torch.device) -> None:
        """Raises KernelNotCompiled, RuntimeError for what the driver refuses."""
        code = compile_kernel(KERNEL, {}, capability=torch.cuda.get_device_capability(device))
        self._function = load_function(code, "attend", shared_memory_bytes=SHARED_MEMORY_BYTES)

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
