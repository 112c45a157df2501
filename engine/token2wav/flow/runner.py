"""Speech tokens -> mel in blocks of 50 frames, each frame computed exactly once, for many streams at a time.

Exact: a stream's frames equal those of upstream's streaming mode over its whole sequence, however tokens arrive
and whatever else runs (tests/parity/test_flow_streaming.py). One thread at a time.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from voicegate.engine.model.config import FlowConfig
from voicegate.engine.policy.batch_size import BatchSize
from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.cuda.config import FlowCudaConfig
from voicegate.engine.token2wav.flow.cuda.solver import CudaSolver
from voicegate.engine.token2wav.flow.errors import StreamsExhausted
from voicegate.engine.token2wav.flow.model import FlowModel
from voicegate.engine.token2wav.flow.offline import render_offline
from voicegate.engine.token2wav.flow.plain_solver import PlainSolver
from voicegate.engine.token2wav.flow.prompt import FlowPrompt, PreparedPrompt, load_prompt
from voicegate.engine.token2wav.flow.stream import FlowBatch, FlowStream


class FlowRunner:
    def __init__(
        self,
        config: FlowConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        num_blocks: int,
        max_streams: int,
        device: torch.device,
        dtype: torch.dtype | None = None,
        cuda: FlowCudaConfig | None = None,
        noise: torch.Tensor | None = None,
        poison_freed: bool = False,
    ) -> None:
        """Blocks are shared by all streams and prompts: see block_pool.bytes_per_block for what one costs.

        `dtype` of weights and activations: by default bfloat16 on CUDA, else float32. `cuda` chooses the path of fixed
        shapes, the default on CUDA; it runs on a CPU too if graphs and kernels are off.
        `noise` [80, 50k] instead of upstream's buffer. `poison_freed` fills blocks with NaN when they are freed.
        Raises WeightsError; ImportError if Triton is needed and missing.
        """
        if device.type == "cuda":
            cuda = cuda or FlowCudaConfig()
            # cuDNN's default. It would cost the offline path's convolutions three digits.
            torch.backends.cudnn.allow_tf32 = False
        dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        self._model = FlowModel(config, state_dict, device=device, dtype=dtype, noise=noise)
        self._pool = BlockPool(
            config.estimator,
            num_steps=config.num_euler_steps,
            num_blocks=num_blocks,
            device=device,
            dtype=dtype,
            kv_dtype=cuda.kv_dtype if cuda is not None else None,
            poison=poison_freed,
        )
        self._solver: PlainSolver | CudaSolver = (
            CudaSolver(self._model, self._pool, cuda)
            if cuda is not None
            else PlainSolver(self._model, self._pool, max_streams=max_streams)
        )
        self._max_streams = max_streams
        self._num_open = 0

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    def batch_size(self, max_rows: int) -> BatchSize:
        """What a batch of up to `max_rows` whole blocks may hold, such that little is computed in vain.

        Shorter blocks leave room for more of them. One block fits always.
        """
        return self._solver.batch_size(max_rows)

    @property
    def num_free_lanes(self) -> int:
        """Batches that can begin before another is done; on the CPU never the limit."""
        return self._solver.num_free_lanes

    @property
    def num_graphs(self) -> int:
        """CUDA graphs captured so far; constant after `capture`."""
        return self._solver.num_graphs if isinstance(self._solver, CudaSolver) else 0

    @property
    def num_launches(self) -> int:
        """CUDA graphs launched so far; 0 where there are none."""
        return self._solver.num_launches if isinstance(self._solver, CudaSolver) else 0

    @property
    def num_buckets(self) -> int:
        """That `compile` runs."""
        return self._solver.num_buckets if isinstance(self._solver, CudaSolver) else 0

    def compile(self, advance: Callable[[], None] = lambda: None) -> None:
        """Run every bucket once, before the first `prepare`, so that its kernels are compiled. Nothing on a CPU.

        `advance` is called after each.
        """
        if isinstance(self._solver, CudaSolver):
            self._solver.compile(advance)

    def capture(self, report: Callable[[str], None]) -> None:
        """Compile and capture everything, before the first `prepare`; `report` gets a line. Nothing to do on a CPU."""
        if isinstance(self._solver, CudaSolver):
            self._solver.capture(report)

    def prepare(self, prompt: FlowPrompt) -> PreparedPrompt:
        """Render the complete blocks of a prompt. Raises ValueError, StreamTooLong, BlocksExhausted."""
        prepared = load_prompt(self._model, self._pool, prompt)
        stream = FlowStream(self._model, prepared)
        try:
            while stream.is_ready:
                batch = self.begin([stream])
                while not batch.advance():
                    pass
                batch.result()
        except BaseException:
            self._abandon(stream)
            raise
        prepared.blocks = tuple(stream.blocks)
        return prepared

    def open(self, prepared: PreparedPrompt) -> FlowStream:
        """Raises StreamsExhausted; ValueError if the prompt was released."""
        if prepared.is_released:
            raise ValueError("the prompt was released")
        if self._num_open == self._max_streams:
            raise StreamsExhausted(f"all {self._max_streams} streams are open")
        self._num_open += 1
        self._pool.retain(prepared.blocks)
        return FlowStream(self._model, prepared)

    def close(self, stream: FlowStream) -> None:
        """Give its blocks back, at once or when the batch that it is in is done. Idempotent."""
        if not stream.is_closed:
            self._num_open -= 1
            self._abandon(stream)

    def begin(self, streams: Sequence[FlowStream]) -> FlowBatch:
        """The next block of each. All must be ready.

        Raises ValueError for streams that are not, or more than fit a batch; BlocksExhausted; LanesExhausted. Then
        nothing has changed.
        """
        if not streams or len(set(streams)) != len(streams) or not all(stream.is_ready for stream in streams):
            raise ValueError("a batch takes one or more different streams that are ready")
        return FlowBatch(self._model, self._pool, self._solver, streams)

    def render_offline(
        self, prompt: FlowPrompt, token_ids: Sequence[int], *, streaming: bool, is_final: bool
    ) -> torch.Tensor:
        """[80, frames]: upstream's computation over the whole sequence at once, without pool or stream."""
        return render_offline(
            self._model, load_prompt(self._model, self._pool, prompt), token_ids, streaming=streaming, is_final=is_final
        )

    def _abandon(self, stream: FlowStream) -> None:
        stream.is_closed = True
        if stream.batch is not None:
            stream.batch.drop(stream)
        self._pool.release(stream.blocks)
        stream.blocks.clear()
