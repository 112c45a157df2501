"""A flow whose guidance was distilled into it: the half without conditions is not computed."""

from dataclasses import replace

import torch

from tests.support.flow import (
    CPU,
    drain,
    flow_config,
    flow_state,
    make_prompt,
    make_runner,
    make_tokens,
    open_stream,
    render_ready,
    short_noise,
)
from tests.unit.engine.flow.cuda.support import EAGER
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import load_prompt
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.torch.offline import render_offline
from voicegate.engine.flow.torch.solver import TorchSolver

# Nothing beside 1 in float32: both halves are computed, and one has no weight.
_NEXT_TO_NOTHING = 1e-30


def streamed(runner: FlowRunner) -> torch.Tensor:
    return drain(runner, open_stream(runner, 90, prompt_size=30))


def test_it_speaks_as_with_both_halves() -> None:
    both = streamed(make_runner(config=replace(flow_config(), cfg_rate=_NEXT_TO_NOTHING)))
    alone = streamed(make_runner(config=replace(flow_config(), cfg_rate=0.0)))
    torch.testing.assert_close(alone, both, rtol=0, atol=2e-6)


def test_the_path_of_fixed_shapes_says_the_same() -> None:
    """It computes both halves all the same, and gives the other no weight."""
    config = replace(flow_config(), cfg_rate=0.0)
    alone, fixed = (streamed(make_runner(config=config, cuda=cuda)) for cuda in (None, EAGER))
    torch.testing.assert_close(fixed, alone, rtol=0, atol=5e-6)


def test_what_streams_is_what_is_rendered_whole() -> None:
    config = replace(flow_config(), cfg_rate=0.0)
    model = FlowModel(config, flow_state(), device=CPU, dtype=torch.float32, noise=short_noise())
    prompt = load_prompt(model, make_prompt(30))
    whole = render_offline(model, prompt, make_tokens(90), streaming=True, is_final=True)
    torch.testing.assert_close(streamed(make_runner(config=config)), whole, rtol=0, atol=1e-5)


def test_half_of_the_memory_is_never_touched() -> None:
    config = replace(flow_config(), cfg_rate=0.0)
    model = FlowModel(config, flow_state(), device=CPU, dtype=torch.float32, noise=short_noise())
    steps = config.num_euler_steps
    pool = BlockPool(config.estimator, num_steps=steps, num_blocks=9, device=CPU, dtype=torch.float32, poison=True)
    runner = FlowRunner(model, pool, TorchSolver(model, pool, max_streams=1), max_streams=1)
    prepared = runner.prepare(make_prompt(30))
    stream = runner.open(prepared)
    stream.append(make_tokens(40))
    render_ready(runner, [stream])
    conditioned, other = pool.keys_values.chunk(2, dim=4)
    assert not conditioned.isnan().all()
    assert other.isnan().all()
