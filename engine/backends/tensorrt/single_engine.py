"""An engine that runs alone, with tensors of its own: for checking and measuring it."""

import torch

from voicegate.engine.backends.tensorrt.library import LoadedEngine


class SingleEngine:
    def __init__(self, engine: LoadedEngine) -> None:
        """Everything that goes in is zeros. Raises TensorrtError."""
        self._device = device = engine.device
        self.tensors = {
            name: torch.zeros(spec.shape, dtype=spec.dtype, device=device) for name, spec in engine.tensors.items()
        }
        scratch = torch.empty(max(engine.scratch_bytes, 1), dtype=torch.uint8, device=device)
        self.enqueue = engine.bind(self.tensors, scratch).enqueue
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def run(self) -> None:
        """To its end. Raises TensorrtError."""
        if self._stream is None:
            self.enqueue(0)
            return
        torch.cuda.synchronize(self._device)
        self.enqueue(self._stream.cuda_stream)
        self._stream.synchronize()
