"""The flow with the golden weights, and random voices and token streams for it."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch

from tests.support.golden import golden_state_dict, tiny_config
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FirstBlocks
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.euler import upstream_noise
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import BlockPrompt, load_prompt
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockBatch, BlockSolver, BlockStream
from voicegate.engine.flow.torch.offline import render_offline
from voicegate.engine.flow.torch.solver import TorchSolver
from voicegate.engine.model.config import EstimatorConfig, FlowConfig

if TYPE_CHECKING:
    from voicegate.engine.backends.tensorrt.flow.engines import FlowEngines
    from voicegate.engine.flow.cuda.ops import StepOps

CPU = torch.device("cpu")
# Difference between two correct implementations of the golden modules: 1.2e-6 was seen
# (tests/golden/cosyvoice3/README.md).
PARITY_ATOL = 1.2e-5
NOISE_FRAMES = 1_000


@cache
def flow_config() -> FlowConfig:
    flow = tiny_config()["flow"]
    dit = flow["dit"]
    return FlowConfig(
        vocab_size=flow["vocab_size"],
        speaker_dim=flow["spk_embed_dim"],
        lookahead_tokens=flow["pre_lookahead_len"],
        pre_lookahead_channels=flow["pre_channels"],
        cfg_rate=tiny_config()["cfm"]["inference_cfg_rate"],
        estimator=EstimatorConfig(
            dim=dit["dim"],
            depth=dit["depth"],
            num_heads=dit["heads"],
            head_dim=dit["dim_head"],
            ff_mult=dit["ff_mult"],
            block_frames=dit["static_chunk_size"],
        ),
    )


@cache
def flow_state() -> dict[str, torch.Tensor]:
    return golden_state_dict("flow")


@cache
def short_noise() -> torch.Tensor:
    """The start of upstream's buffer: 20 s are enough here, and quicker to set up than 300."""
    return upstream_noise()[:, :NOISE_FRAMES]


def make_model() -> FlowModel:
    return FlowModel(flow_config(), flow_state(), device=CPU, dtype=torch.float32, noise=short_noise())


def make_runner(
    *,
    config: FlowConfig | None = None,
    state: Mapping[str, torch.Tensor] | None = None,
    num_blocks: int = 40,
    max_streams: int = 8,
    cuda: FlowCudaConfig | None = None,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    ops: "StepOps | None" = None,
    first_blocks: FirstBlocks = FirstBlocks(),  # noqa: B008 - frozen
    engines: "FlowEngines | None" = None,
) -> FlowRunner:
    """Free blocks hold NaN: whatever reads one shows it.

    `cuda`: the path of fixed shapes, by `ops` and `engines`; None: torch's operations, which run on a CPU.
    """
    config, state = config or flow_config(), state or flow_state()
    model = FlowModel(config, state, device=device, dtype=dtype, noise=short_noise())
    pool = BlockPool(
        config.estimator,
        num_steps=config.num_euler_steps,
        num_blocks=num_blocks,
        device=device,
        dtype=dtype,
        kv_dtype=kv_dtype,
        poison=True,
    )
    solver: BlockSolver
    if cuda is None:
        solver = TorchSolver(model, pool, max_streams=max_streams)
    else:
        from tests.support.flow_reference import FLOAT8_REFERENCE_OPS, REFERENCE_OPS
        from voicegate.engine.flow.cuda.ops import FLOAT8_STEP_OPS, STEP_OPS
        from voicegate.engine.flow.cuda.solver import CudaSolver

        float8_ops = FLOAT8_STEP_OPS if ops is STEP_OPS else FLOAT8_REFERENCE_OPS
        solver = CudaSolver(model, pool, cuda, ops=ops or REFERENCE_OPS, float8_ops=float8_ops, engines=engines)
    return FlowRunner(
        model,
        pool,
        solver,
        max_streams=max_streams,
        first_blocks=first_blocks,
    )


def make_prompt(num_tokens: int, *, seed: int = 0) -> FlowPrompt:
    generator = torch.Generator().manual_seed(1_000 + seed)
    return FlowPrompt(
        speech_ids=torch.randint(0, flow_config().vocab_size, (num_tokens,), generator=generator),
        mel=torch.randn(2 * num_tokens, 80, generator=generator),
        embedding=torch.randn(192, generator=generator),
    )


def make_tokens(num_tokens: int, *, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(2_000 + seed)
    tokens: list[int] = torch.randint(0, flow_config().vocab_size, (num_tokens,), generator=generator).tolist()
    return tokens


def open_stream(
    runner: FlowRunner, num_tokens: int = 0, *, prompt_size: int = 0, seed: int = 0, finish: bool = True
) -> BlockStream:
    """With so many tokens; `finish`: they are all that it will have."""
    stream = runner.open(runner.prepare(make_prompt(prompt_size, seed=seed)))
    stream.append(make_tokens(num_tokens, seed=seed))
    if finish:
        stream.finish()
    return stream


def render_ready(runner: FlowRunner, streams: Sequence[BlockStream]) -> list[torch.Tensor]:
    """The next block of each, in one batch."""
    batch = runner.begin(streams)
    while not batch.advance():
        pass
    return batch.result()


def drain(runner: FlowRunner, stream: BlockStream) -> torch.Tensor:
    """All frames that can be rendered now: [80, n] on the CPU, n may be 0."""
    mels = [torch.empty(80, 0)]
    while stream.is_ready:
        mels += [mel.cpu() for mel in render_ready(runner, [stream])]
    return torch.cat(mels, dim=1)


def prepare_beside(runner: FlowRunner, prompt: FlowPrompt, stream: BlockStream) -> BlockPrompt:
    """Its steps between those of the stream's batches, as an engine has it that speaks meanwhile."""
    rendering = runner.begin_prompt(prompt)
    batch: BlockBatch | None = None
    while not rendering.advance():
        if batch is None and stream.is_ready:
            batch = runner.begin([stream])
        if batch is not None and batch.advance():
            batch.result()
            batch = None
    prepared = rendering.result()
    rendering.close()
    return prepared


def render_alone(prompt: FlowPrompt, tokens: Sequence[int]) -> torch.Tensor:
    """A whole stream on a runner of its own."""
    runner = make_runner()
    stream = runner.open(runner.prepare(prompt))
    stream.append(tokens)
    stream.finish()
    return drain(runner, stream)


def offline(
    runner: FlowRunner, prompt: FlowPrompt, tokens: Sequence[int], *, streaming: bool, is_final: bool
) -> torch.Tensor:
    """[80, frames]: upstream's computation over the whole sequence at once, with a runner's weights."""
    model = runner.model
    return render_offline(model, load_prompt(model, prompt), tokens, streaming=streaming, is_final=is_final)
