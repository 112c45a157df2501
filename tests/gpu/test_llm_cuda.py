"""The speech LLM on a GPU: upstream's numbers in float32; in bfloat16 the same tokens alone, batched and ahead."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from tests.support.golden import golden_state_dict, load_arrays
from tests.support.lanes import fetch_oldest
from tests.support.llm_draws import KernelSampler, flags_of
from tests.unit.engine.llm.support import (
    EOS,
    FILL,
    golden_llm_config,
    golden_prompt,
    ids,
    run_bistream,
    run_unistream,
    small_llm_config,
    small_state_dict,
)
from voicegate.bench.kernels.llm_model import FULL_SIZE, fill_work, make_body, random_state_dict, small
from voicegate.engine.llm.backend import LlmPrompt, SequenceOutput, SequenceRequest
from voicegate.engine.llm.bistream import Bistream, BistreamPolicy
from voicegate.engine.llm.cuda import packing
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import CudaLlmConfig, TileTable, default_tiles
from voicegate.engine.llm.cuda.runner import CudaLlmRunner
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.feed import Feed, SequenceState
from voicegate.engine.llm.sequence import Unistream
from voicegate.engine.llm.torch.penalty_sampler import RepetitionPenaltySampler
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import HeadBias, LlmConfig, PenaltySamplingConfig, SamplingConfig, StopRule

pytestmark = pytest.mark.gpu

GOLDEN_CONFIG = golden_llm_config()
# Ten times what two correct float32 implementations differ by (golden README).
HIDDEN_TOLERANCE = 3e-5
NUM_LAYERS = 24
CONFIG = small(FULL_SIZE, NUM_LAYERS)
NUM_TOKENS = 24


@cache
def golden() -> dict[str, np.ndarray]:
    return load_arrays("llm.npz")


# --- float32 against upstream -------------------------------------------------------------------------------------


class CudaGreedy:
    """As tests/parity/test_llm_golden.py's Greedy: argmax below 6561, but for given calls, over our kernels."""

    def __init__(self, forced: dict[int, int] | None = None) -> None:
        weights = DecoderWeights(
            GOLDEN_CONFIG, golden_state_dict("llm"), device=torch.device("cuda"), dtype=torch.float32
        )
        self.body = DecoderBody(
            GOLDEN_CONFIG,
            SamplingConfig(),
            weights,
            num_slots=1,
            max_positions=256,
            max_lines=256,
            max_samples=1,
            tiles=default_tiles(is_float32=True),
        )
        self.norm = weights.norm
        self.body.cache.fill_(torch.nan)
        self.length = 0
        self.forced = forced or {}
        self.hidden: list[torch.Tensor] = []
        self.scores: list[torch.Tensor] = []

    def feed(self, feed: Feed) -> None:
        count = len(feed.rows)
        words = np.zeros(self.body.layout.num_words, np.int32)
        lines = self.body.layout.lines(words, count)
        lines[:, 0] = feed.rows
        lines[:, 2] = self.length + np.arange(count)
        self.body.layout.samples(words, 1)[0, :3] = [count - 1, 0, packing.IS_FRESH]
        self.body.work.copy_(torch.from_numpy(words))
        self.body.run(count)
        self.body.score(1)
        self.length += count
        residual = self.body.residual[:count]
        self.hidden.append(torch.rms_norm(residual, residual.shape[1:], self.norm, GOLDEN_CONFIG.rms_norm_eps).cpu())

    def __call__(self, feed: Feed, call: int) -> int:
        scores = self.body.scores[0, : GOLDEN_CONFIG.num_speech_rows].cpu().log_softmax(-1)
        if feed.ignore_eos:
            scores[GOLDEN_CONFIG.speech_token_size] = -torch.inf
        self.scores.append(scores)
        return self.forced.get(call, int(scores[: GOLDEN_CONFIG.speech_token_size].argmax()))


def test_unistream_states_scores_and_tokens() -> None:
    greedy = CudaGreedy()
    sequence = Unistream(GOLDEN_CONFIG, golden_prompt(golden(), "uni"), ids(golden()["uni.text"]), max_tokens=24)
    recording = run_unistream(sequence, greedy, greedy.feed)
    assert recording.yielded == golden()["uni.tokens"].tolist()
    np.testing.assert_allclose(torch.cat(greedy.hidden), golden()["uni.hidden_all"], atol=HIDDEN_TOLERANCE, rtol=0)
    np.testing.assert_allclose(torch.stack(greedy.scores[:4]), golden()["uni.logp_first4"], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("trace", "forced"),
    [
        ("bi_normal", {60: EOS}),
        ("bi_earlyfill", {4: FILL, 55: EOS}),
        ("bi_exhaust", {60: EOS}),
        ("bi_noprompt", {40: EOS}),
        ("bi_prompt30", {70: EOS}),
    ],
)
def test_bistream_traces(trace: str, forced: dict[int, int]) -> None:
    greedy = CudaGreedy(forced)
    sequence = Bistream(GOLDEN_CONFIG, golden_prompt(golden(), trace), policy=BistreamPolicy.UPSTREAM)
    recording = run_bistream(sequence, ids(golden()[f"{trace}.text"]), greedy, greedy.feed)
    recording.assert_equals(golden(), trace)
    assert sequence.state is not SequenceState.FAILED


def test_tokens_equal_the_cpu_runners_in_float32() -> None:
    config, state = small_llm_config(), small_state_dict()
    prompt = LlmPrompt((1, 2, 3, 9, 8), (5, 6, 7))  # a forced fill comes after 12 tokens
    wanted = [
        SequenceRequest(index, prompt, tuple(range(10, 14 + index)), index % 2 == 1, index, 30) for index in range(8)
    ]
    cpu = TorchLlmRunner(config, SamplingConfig(), state, num_slots=8, max_positions=128)
    cuda = CudaLlmRunner(config, SamplingConfig(), state, num_slots=8, max_positions=128, dtype=torch.float32)
    cuda.graphs.capture()
    assert tokens_of(cuda, wanted) == tokens_of(cpu, wanted)


# --- the sampler --------------------------------------------------------------------------------------------------


def test_sampling_follows_upstreams_trace() -> None:
    trace = load_arrays("ras.npz")
    sampler = KernelSampler(GOLDEN_CONFIG, num_slots=1, device="cuda")
    used = iter(trace["unif_used"].tolist())
    drawn = []
    for step in range(60):
        at = [next(used), next(used) if trace["unif_branch"][step] else 0.5]
        scores = torch.from_numpy(trace["logits"][trace["logits_index"][step]])[None]
        flags = packing.IS_IGNORING_EOS if trace["ignore_eos"][step] else 0
        flags |= packing.IS_FRESH if step == 0 else 0
        drawn += sampler.draw(scores, np.array([at]), flags=flags, history_places=step % 10)
        sampler.remember(drawn[-1], step % 10)  # ours forgets an end, and this trace goes on after some
    assert drawn == trace["unif_tokens"].tolist()


def test_sampling_chooses_as_the_cpu_does() -> None:
    random = np.random.default_rng(3)
    count, num_ids = 512, GOLDEN_CONFIG.num_speech_rows
    sampler = KernelSampler(GOLDEN_CONFIG, num_slots=count, device="cuda")
    reference = RepetitionAwareSampler(SamplingConfig(), GOLDEN_CONFIG)
    num_different = 0
    for _ in range(8):
        scores = torch.from_numpy(random.normal(size=(count, num_ids)) * random.uniform(0, 6, size=(count, 1))).float()
        scores[::4] = scores[::4].round()  # ties
        uniforms = random.random((count, 2))
        history = scores.topk(10).indices.numpy()  # the likeliest: many draws are repeated
        history[::3] = -1
        ignore_eos = random.random(count) < 0.5
        sampler.set_history(history)
        drawn = sampler.draw(scores, uniforms, flags=flags_of(ignore_eos))
        expected = reference.sample(
            scores.clone(),
            history=torch.from_numpy(history),
            ignore_eos=torch.from_numpy(ignore_eos),
            uniforms=torch.from_numpy(uniforms),
        )
        num_different += int((torch.tensor(drawn) != expected).sum())
    # exp is rounded differently: a uniform within 1e-7 of a border between two ids may fall on the other side.
    assert num_different <= 2


def test_sampling_by_penalty_chooses_as_the_cpu_does() -> None:
    random = np.random.default_rng(4)
    count, num_ids = 512, GOLDEN_CONFIG.num_speech_rows
    sampling = PenaltySamplingConfig()
    sampler = KernelSampler(GOLDEN_CONFIG, num_slots=count, device="cuda", sampling=sampling)
    reference = RepetitionPenaltySampler(sampling, GOLDEN_CONFIG)
    num_different = 0
    for _ in range(8):
        scores = torch.from_numpy(random.normal(size=(count, num_ids)) * random.uniform(0, 6, size=(count, 1))).float()
        scores[::4] = scores[::4].round()  # ties
        scores[::3] -= 8  # few are positive
        uniforms = random.random((count, 2))
        fed = random.random((count, num_ids)) < 0.1
        ignore_eos = random.random(count) < 0.5
        sampler.set_fed(fed)
        drawn = sampler.draw(scores, uniforms, flags=flags_of(ignore_eos))
        expected = reference.sample(
            scores.clone(),
            seen=torch.from_numpy(fed),
            ignore_eos=torch.from_numpy(ignore_eos),
            uniforms=torch.from_numpy(uniforms),
        )
        num_different += int((torch.tensor(drawn) != expected).sum())
    # As above; and a quotient that is rounded differently may change places with its neighbour in the order.
    assert num_different <= 4


def test_another_familys_tokens_equal_the_cpu_runners_in_float32() -> None:
    """Bias in the head, sos and task behind its rows, a penalty on what was fed, eos alone ends."""
    config = replace(
        small_llm_config(),
        needs_end_of_prompt=False,
        num_special_rows=198,
        num_unspoken_rows=2,
        sos_id=498,
        task_id=499,
        head_bias=HeadBias.USED,
        stop=StopRule(is_eos_alone=True, min_tokens_per_text_token=0, max_tokens_per_text_token=None, max_tokens=40),
    )
    state = small_state_dict()
    state["llm_decoder.weight"] = state["llm_decoder.weight"][:498]
    state["llm_decoder.bias"] = torch.linspace(-1, 1, 498)
    prompt = LlmPrompt((1, 2), (5, 6, 7))
    wanted = [
        SequenceRequest(index, prompt, tuple(range(10, 14 + index)), index % 2 == 1, index, 30) for index in range(8)
    ]
    sampling = PenaltySamplingConfig(temperature=1.5)
    cpu = TorchLlmRunner(config, sampling, state, num_slots=8, max_positions=128)
    cuda = CudaLlmRunner(config, sampling, state, num_slots=8, max_positions=128, dtype=torch.float32)
    cuda.graphs.capture()
    expected = tokens_of(cpu, wanted)
    assert sum(map(len, expected.values())) > 60
    for _ in range(2):  # the second time in slots that were taken before
        assert tokens_of(cuda, wanted) == expected


# --- bfloat16: what a line's bits depend on ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights() -> DecoderWeights:
    return DecoderWeights(CONFIG, random_state_dict(CONFIG), device=torch.device("cuda"), dtype=torch.bfloat16)


def step_bits(body: DecoderBody, num_lines: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every line's residual and score after a step of so many lines, behind a cache that is the same each time."""
    body.cache.copy_(torch.linspace(-1, 1, body.cache[0, 0, 0].numel(), device="cuda").view(body.cache.shape[3:]))
    num_samples = min(num_lines, 512)
    fill_work(body, num_lines, num_samples, position=40)
    body.run(num_lines)
    body.score(num_samples)
    return body.residual[:num_lines].clone(), body.scores[:num_samples].clone()


def test_bits_do_not_depend_on_the_number_of_lines(weights: DecoderWeights) -> None:
    """Across all tiles of all weights, for every line that the steps have in common."""
    body = make_body(CONFIG, weights, TileTable(), max_positions=64)
    all_states, all_scores = step_bits(body, 1024)
    assert torch.isfinite(all_states).all()
    for num_lines in (1, 2, 8, 9, 16, 17, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1024):
        states, scores = step_bits(body, num_lines)
        assert torch.equal(states, all_states[: len(states)]), f"{num_lines} lines"
        assert torch.equal(scores, all_scores[: len(scores)]), f"{num_lines} lines"


def fed_bits(body: DecoderBody, ends: Sequence[int]) -> torch.Tensor:
    """Every line's residual of a feed in passes that end there, each beside 45 sequences that decode."""
    num_decodes, slot = 45, 100
    body.cache.fill_(torch.nan)
    states = []
    for begin, end in pairwise((0, *ends)):
        num_lines = num_decodes + end - begin
        fill_work(body, num_lines, 1, position=40)
        words = body.work.cpu().numpy()
        lines = body.layout.lines(words, num_lines)[num_decodes:]
        lines[:, 0] = lines[:, 2] = np.arange(begin, end)
        lines[:, 1] = slot
        body.work.copy_(torch.from_numpy(words))
        body.run(num_lines)
        states.append(body.residual[num_decodes:num_lines].clone())
    return torch.cat(states)


def test_bits_do_not_depend_on_how_a_feed_was_cut(weights: DecoderWeights) -> None:
    """Attention takes tiles of eight lines: begun in their middle, of one line, cut in two, over several key tiles."""
    body = make_body(CONFIG, weights, TileTable(), max_positions=256)
    whole = fed_bits(body, (200,))
    assert torch.isfinite(whole).all()
    for ends in ((1, 2, 200), (63, 64, 65, 200), (*range(7, 197, 7), 200), tuple(range(1, 201))):
        assert torch.equal(fed_bits(body, ends), whole), ends


def make_runner(
    state: dict[str, torch.Tensor], cuda: CudaLlmConfig, *, num_slots: int = 320, config: LlmConfig = CONFIG
) -> CudaLlmRunner:
    runner = CudaLlmRunner(config, SamplingConfig(), state, num_slots=num_slots, max_positions=256, cuda=cuda)
    runner.graphs.capture()
    return runner


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    return random_state_dict(CONFIG)


@pytest.fixture(scope="module")
def runner(state: dict[str, torch.Tensor]) -> CudaLlmRunner:
    return make_runner(state, CudaLlmConfig())


@pytest.fixture(autouse=True)
def _nothing_is_captured_late(request: pytest.FixtureRequest) -> Iterator[None]:
    if "runner" not in request.fixturenames:
        yield
        return
    runner: CudaLlmRunner = request.getfixturevalue("runner")
    num_graphs = runner.graphs.num_graphs
    yield
    assert runner.graphs.num_graphs == num_graphs
    assert runner.num_free_slots == 320


def request_of(index: int, *, is_streaming: bool = False) -> SequenceRequest:
    """Prompts of 20 to 140 positions."""
    prompt = LlmPrompt((5, 3, 7 + index % 50), tuple((index * 31 + place) % 6561 for place in range(10 + index % 90)))
    text = tuple(10 + (index + place) % 200 for place in range(5 + index % 30))
    return SequenceRequest(index, prompt, text, is_streaming=is_streaming, seed=index, max_tokens=NUM_TOKENS)


def tokens_of(
    runner: CudaLlmRunner | TorchLlmRunner, wanted: Sequence[SequenceRequest], *, joins_per_step: int = 1000
) -> dict[int, list[int]]:
    """Everybody's tokens, `joins_per_step` joining at a time, one step launched ahead."""
    waiting = list(wanted)
    drawn: dict[int, list[int]] = {each.sequence_id: [] for each in wanted}
    while True:
        for each in waiting[:joins_per_step]:
            runner.add(each)
            if each.is_streaming:
                runner.end_text(each.sequence_id)
        del waiting[:joins_per_step]
        runnable = [sequence_id for sequence_id in drawn if runner.is_runnable(sequence_id)]
        if runnable:
            runner.launch(runnable)
        elif not runner.is_busy:
            return drawn
        if len(runner._in_flight) == 2 or not runnable:
            for output in fetch_oldest(runner):
                assert output.error is None
                drawn[output.sequence_id] += output.tokens


@pytest.fixture(scope="module")
def alone(runner: CudaLlmRunner) -> dict[int, list[int]]:
    return {index: tokens_of(runner, [request_of(index)])[index] for index in range(24)}


@pytest.mark.parametrize(("num_sequences", "joins_per_step"), [(7, 1000), (64, 5), (256, 17), (320, 64)])
def test_a_batch_gives_what_each_gives_alone(
    runner: CudaLlmRunner, alone: dict[int, list[int]], num_sequences: int, joins_per_step: int
) -> None:
    together = tokens_of(runner, [request_of(index) for index in range(num_sequences)], joins_per_step=joins_per_step)
    for index in range(min(num_sequences, len(alone))):
        assert together[index] == alone[index]
    assert len({tuple(found) for found in together.values()}) > 0.9 * num_sequences
    assert sum(len(found) for found in together.values()) > 0.8 * NUM_TOKENS * num_sequences


def test_a_batch_by_repetition_penalty_gives_what_each_gives_alone(state: dict[str, torch.Tensor]) -> None:
    config = replace(CONFIG, head_bias=HeadBias.USED)
    biased = {**state, "llm_decoder.bias": torch.linspace(-0.1, 0.1, config.num_speech_rows)}
    made = [
        CudaLlmRunner(
            config,
            PenaltySamplingConfig(),
            biased,
            num_slots=64,
            max_positions=256,
            cuda=CudaLlmConfig(has_graphs=graphs),
        )
        for graphs in (True, False)
    ]
    made[0].graphs.capture()
    wanted = [request_of(index) for index in range(64)]
    together = tokens_of(made[0], wanted, joins_per_step=7)
    assert together == tokens_of(made[1], wanted, joins_per_step=64)
    for each in wanted[:8]:
        assert tokens_of(made[0], [each])[each.sequence_id] == together[each.sequence_id]


def test_streaming_text_among_others(runner: CudaLlmRunner, alone: dict[int, list[int]]) -> None:
    streams = [replace(request_of(index, is_streaming=True), sequence_id=index + 1000) for index in range(4)]
    by_themselves = {each.sequence_id: tokens_of(runner, [each])[each.sequence_id] for each in streams}
    together = tokens_of(runner, [*(request_of(index) for index in range(24)), *streams], joins_per_step=6)
    assert together == {**alone, **by_themselves}


def test_slots_are_reused_in_a_storm_of_aborts(runner: CudaLlmRunner, alone: dict[int, list[int]]) -> None:
    random = np.random.default_rng(0)
    drawn: dict[int, list[int]] = {index: [] for index in alone}
    for index in drawn:
        runner.add(request_of(index))
    next_id, doomed = 10_000, []
    for _ in range(NUM_TOKENS + 2):
        while runner.num_free_slots:
            runner.add(replace(request_of(next_id), sequence_id=next_id))
            doomed.append(next_id)
            next_id += 1
        runner.launch([*drawn, *doomed])
        for victim in random.choice(doomed, 100, replace=False).tolist():
            runner.abort(victim)
            doomed.remove(victim)
        with runner.buckets.on_stream():
            free = torch.tensor(runner._slots.free, device="cuda")
            runner.body.cache[:, :, free] = torch.nan
        for output in fetch_oldest(runner):
            if output.sequence_id in drawn:
                drawn[output.sequence_id] += output.tokens
    for id_ in doomed:
        runner.abort(id_)
    assert drawn == alone


@pytest.mark.parametrize(
    "cuda",
    [
        CudaLlmConfig(has_graphs=False),
        CudaLlmConfig(overlaps=False),
        CudaLlmConfig(max_in_flight=1),
        CudaLlmConfig(max_in_flight=4),
    ],
    ids=["eager", "one kernel after the other", "not ahead", "far ahead"],
)
def test_switches_change_no_token(
    state: dict[str, torch.Tensor], alone: dict[int, list[int]], cuda: CudaLlmConfig
) -> None:
    switched = make_runner(state, cuda, num_slots=32)
    assert tokens_of(switched, [request_of(index) for index in range(24)], joins_per_step=5) == alone


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_launch_never_waits_for_the_device(runner: CudaLlmRunner) -> None:
    outputs: list[SequenceOutput] = []
    for index in range(40):
        runner.add(request_of(index))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert runner.launch(range(40)) == runner.launch(range(40)) == []
    finally:
        torch.cuda.set_sync_debug_mode("default")
    runner.wait()
    outputs += runner.poll()
    assert len(outputs) == 80
    for index in range(40):
        runner.abort(index)


def test_a_line_that_is_not_finite_touches_no_other(runner: CudaLlmRunner, alone: dict[int, list[int]]) -> None:
    for index in (0, 1):
        runner.add(request_of(index))
    runner.step([0, 1])
    slots = runner._lives[0].slot, runner._lives[1].slot
    with runner.buckets.on_stream():
        runner.body.cache[:, :, slots[0], :, :4] = torch.nan
    drawn = list(alone[1][:1])
    while runner.is_runnable(1):
        for output in runner.step([id_ for id_ in (0, 1) if runner.is_runnable(id_)]):
            if output.sequence_id == 1:
                drawn += output.tokens
    runner.abort(0)
    assert drawn == alone[1]
