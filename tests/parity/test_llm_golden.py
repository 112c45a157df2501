"""The network and the sequences together against upstream's traces: hidden states, scores and every token."""

import numpy as np
import pytest
import torch

from tests.support.golden import golden_state_dict, load_arrays
from tests.unit.engine.llm.support import (
    fed_ids,
    golden_llm_config,
    golden_prompt,
    ids,
    run_unistream,
)
from voicegate.engine.llm.feed import Feed
from voicegate.engine.llm.sequence import Unistream
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.llm.torch.sampler import RepetitionAwareSampler
from voicegate.engine.model.config import SamplingConfig

CONFIG = golden_llm_config()
GOLDEN = load_arrays("llm.npz")
# Ten times what two correct float32 implementations differ by (golden README).
HIDDEN_TOLERANCE = 3e-5


@pytest.fixture(scope="module")
def model() -> LlmModel:
    return LlmModel(CONFIG, golden_state_dict("llm"))


class Greedy:
    """The traces' sampler: argmax below 6561, but for given calls; runs the network on the feeds in between."""

    def __init__(self, model: LlmModel, forced: dict[int, int] | None = None) -> None:
        self.model = model
        self.cache = KvCache(CONFIG, num_slots=1, max_positions=256, device="cpu", dtype=torch.float32)
        self.length = 0
        self.forced = forced or {}
        self.embeddings: list[torch.Tensor] = []
        self.hidden: list[torch.Tensor] = []
        self.scores: list[torch.Tensor] = []  # as the sampler sees them, [num_speech_rows] each

    def feed(self, feed: Feed) -> None:
        rows = torch.from_numpy(feed.rows)
        self.embeddings.append(self.model.embed(rows))
        span = Span(0, self.length, len(rows))
        self.hidden.append(self.model.forward(self.embeddings[-1], RaggedAttention(self.cache, [span])))
        self.length += len(rows)

    def __call__(self, feed: Feed, call: int) -> int:
        scores = self.model.logits(self.hidden[-1][-1:])[0].log_softmax(-1)
        if feed.ignore_eos:
            scores[CONFIG.speech_token_size] = -torch.inf
        self.scores.append(scores)
        return self.forced.get(call, int(scores[: CONFIG.speech_token_size].argmax()))


def uni(name: str = "uni", *, max_tokens: int | None = None) -> Unistream:
    text = GOLDEN["uni.text"]
    prompt = golden_prompt(GOLDEN, "uni")
    if name == "uni_noprompt":
        prompt = type(prompt)(prompt.text_ids)
    return Unistream(CONFIG, prompt, ids(text), max_tokens=max_tokens)


def test_unistream_states_scores_and_tokens(model: LlmModel) -> None:
    greedy = Greedy(model)
    recording = run_unistream(uni(max_tokens=24), greedy, greedy.feed)
    assert recording.yielded == GOLDEN["uni.tokens"].tolist()
    np.testing.assert_array_equal(greedy.embeddings[0], GOLDEN["uni.prefill_embeds"])
    np.testing.assert_allclose(torch.cat(greedy.hidden), GOLDEN["uni.hidden_all"], atol=HIDDEN_TOLERANCE, rtol=0)
    np.testing.assert_allclose(torch.stack(greedy.scores[:4]), GOLDEN["uni.logp_first4"], atol=1e-4, rtol=0)
    top = [float(scores[:6561].max()) for scores in greedy.scores]
    np.testing.assert_allclose(top, GOLDEN["uni.top_logp"], atol=1e-4, rtol=0)


def test_embeddings_by_table(model: LlmModel) -> None:
    state = golden_state_dict("llm")
    text, speech = torch.tensor([0, 151935]), torch.tensor([0, 6760])
    torch.testing.assert_close(model.embed(text), state["llm.model.model.embed_tokens.weight"][text])
    speech_rows = speech + model.first_speech_row
    torch.testing.assert_close(model.embed(speech_rows), state["speech_embedding.weight"][speech])


def test_unistream_without_prompt_speech(model: LlmModel) -> None:
    greedy = Greedy(model)
    recording = run_unistream(uni("uni_noprompt", max_tokens=6), greedy, greedy.feed)
    assert recording.yielded == GOLDEN["uni_noprompt.tokens"].tolist()
    assert fed_ids(CONFIG, recording.fed) == GOLDEN["uni_noprompt.fed_ids"].tolist()
    assert recording.fed_lens == GOLDEN["uni_noprompt.fed_lens"].tolist()


def test_unistream_with_torchs_own_draws(model: LlmModel) -> None:
    """`uni_ras_seed1234`: real ras_sampling on torch's CPU generator, one multinomial after the other."""
    generator = torch.Generator().manual_seed(1234)

    def multinomial(weights: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        if (
            weights.shape[1] == SamplingConfig().top_k
        ):  # the candidates; what is beyond the nucleus is 0 here, absent there
            weights = weights[:, : int((weights > 0).sum())]
        return weights.multinomial(1, replacement=True, generator=generator)[:, 0]

    sampler = RepetitionAwareSampler(SamplingConfig(), CONFIG, draw=multinomial)
    greedy = Greedy(model)
    sequence = uni(max_tokens=24)

    def sample(feed: Feed, _: int) -> int:
        history = [*sequence.decoded[-10:], *[-1] * 10][:10]
        drawn = sampler.sample(
            model.logits(greedy.hidden[-1][-1:]),
            history=torch.tensor([history]),
            ignore_eos=torch.tensor([feed.ignore_eos]),
            uniforms=torch.zeros(1, 2),
        )
        return int(drawn)

    assert run_unistream(sequence, sample, greedy.feed).yielded == GOLDEN["uni_ras_seed1234.tokens"].tolist()
