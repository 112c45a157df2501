"""Shared by several LLM tests: configurations, a state dict for them, and a driver that records what is fed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt
import torch

from tests.support.golden import tiny_config, weight
from voicegate.engine.llm.backend import LlmPrompt, SequenceOutput
from voicegate.engine.llm.bistream import Bistream
from voicegate.engine.llm.feed import Feed, SequenceState
from voicegate.engine.llm.runner import LlmRunner
from voicegate.engine.llm.sequence import LlmSequence, Unistream
from voicegate.engine.model.config import LlmConfig
from voicegate.engine.model.model_json import llm_config

SOS, EOS, TASK, FILL = 6561, 6562, 6563, 6564
END_OF_PROMPT = 151646

Arrays = dict[str, npt.NDArray[Any]]


def golden_llm_config() -> LlmConfig:
    """The configuration that the golden traces were made with."""
    raw = tiny_config()
    llm = {"qwen2": raw["llm"], "speech_token_size": raw["speech_token_size"], "mix_ratio": raw["mix_ratio"]}
    ids = {"sos_token_id": SOS, "eos_token_id": EOS, "task_token_id": TASK, "fill_token_id": FILL}
    return llm_config({"llm": llm, **ids, "endofprompt_token_id": END_OF_PROMPT})


def small_llm_config() -> LlmConfig:
    """Quick to build: few ids, two layers, grouped heads; text id 3 ends the instruction; 300 speech ids."""
    return replace(
        golden_llm_config(),
        vocab_size=32,
        hidden_size=24,
        intermediate_size=40,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        max_positions=512,
        speech_token_size=300,
        sos_id=300,
        eos_id=301,
        task_id=302,
        fill_id=303,
        end_of_prompt_id=3,
    )


def small_state_dict(dtype: torch.dtype = torch.float32, *, config: LlmConfig | None = None) -> dict[str, torch.Tensor]:
    """Weights for `small_llm_config` by the golden rule, with a head that seldom chooses special ids.

    The tied text head is there, as in real files.
    """
    config = config or small_llm_config()
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "llm.model.model.embed_tokens.weight": (config.vocab_size, hidden),
        "llm.model.lm_head.weight": (config.vocab_size, hidden),
        "llm.model.model.norm.weight": (hidden,),
        "speech_embedding.weight": (config.num_speech_rows, hidden),
        "llm_decoder.weight": (config.num_speech_rows, hidden),
    }
    for index in range(config.num_layers):
        layer = f"llm.model.model.layers.{index}."
        for part, width in (("q", query), ("k", key), ("v", key)):
            shapes[f"{layer}self_attn.{part}_proj.weight"] = (width, hidden)
            shapes[f"{layer}self_attn.{part}_proj.bias"] = (width,)
        shapes[f"{layer}self_attn.o_proj.weight"] = (hidden, query)
        shapes[f"{layer}mlp.gate_proj.weight"] = (inner, hidden)
        shapes[f"{layer}mlp.up_proj.weight"] = (inner, hidden)
        shapes[f"{layer}mlp.down_proj.weight"] = (hidden, inner)
        shapes[f"{layer}input_layernorm.weight"] = (hidden,)
        shapes[f"{layer}post_attention_layernorm.weight"] = (hidden,)
    state = {name: torch.from_numpy(weight(name, shape)) for name, shape in shapes.items()}
    specials = torch.full((config.num_speech_rows - config.speech_token_size, 1), 0.0)
    specials[[config.eos_id - config.speech_token_size, config.fill_id - config.speech_token_size]] = 1.5
    state["llm_decoder.weight"] *= torch.cat([torch.full((config.speech_token_size, 1), 3.0), specials])
    return {name: tensor.to(dtype) for name, tensor in state.items()}


def ids(array: npt.NDArray[Any]) -> tuple[int, ...]:
    return tuple(array.tolist())


def golden_prompt(golden: Arrays, trace: str) -> LlmPrompt:
    return LlmPrompt(ids(golden[f"{trace}.prompt_text"]), ids(golden[f"{trace}.prompt_speech"]))


def fed_ids(config: LlmConfig, rows: Iterable[int]) -> list[int]:
    """Text and speech ids alike."""
    return [row - config.vocab_size if row >= config.vocab_size else row for row in rows]


# (the feed, number of the sampling call, from 0) -> token
Sampler = Callable[[Feed, int], int]


@dataclass
class Recording:
    """One run of a sequence, in the golden traces' terms."""

    fed: list[int] = field(default_factory=list)  # rows of the joint table
    fed_lens: list[int] = field(default_factory=list)
    yielded: list[int] = field(default_factory=list)
    masked: list[int] = field(default_factory=list)  # per sampling call: the id that ignore_eos masks, or -1

    def assert_equals(self, golden: Arrays, trace: str) -> None:
        config = golden_llm_config()
        assert [int(row >= config.vocab_size) for row in self.fed] == golden[f"{trace}.fed_kind"].tolist()
        assert fed_ids(config, self.fed) == golden[f"{trace}.fed_ids"].tolist()
        assert self.fed_lens == golden[f"{trace}.fed_lens"].tolist()
        assert self.yielded == golden[f"{trace}.yielded"].tolist()
        assert self.masked == golden[f"{trace}.masked"].tolist()
        assert len(self.masked) == golden[f"{trace}.sampler_calls"]


def advance_once(
    sequence: LlmSequence, sample: Sampler, recording: Recording, on_feed: Callable[[Feed], None] = lambda _: None
) -> None:
    """Record and feed `sequence.feed`, sample unless it forces a fill, and take what comes of it."""
    feed = sequence.feed
    assert feed is not None
    recording.fed += feed.rows.tolist()
    recording.fed_lens.append(len(feed.rows))
    on_feed(feed)
    token = None
    if not feed.is_forced_fill:
        token = sample(feed, len(recording.masked))
        recording.masked.append(SOS if feed.ignore_eos else -1)
    emitted = sequence.advance(token)
    if emitted is not None:
        recording.yielded.append(emitted)


def run_until_stuck(
    sequence: LlmSequence,
    sample: Sampler,
    recording: Recording,
    *,
    on_feed: Callable[[Feed], None] = lambda _: None,
    max_steps: int = 1000,
) -> None:
    """Advance until the sequence ends or waits for text."""
    for _ in range(max_steps):
        if sequence.feed is None:
            return
        advance_once(sequence, sample, recording, on_feed)
    raise AssertionError("the sequence runs on")


def run_bistream(
    sequence: Bistream,
    text: Iterable[int],
    sample: Sampler,
    on_feed: Callable[[Feed], None] = lambda _: None,
) -> Recording:
    """Text one token at a time, decoding as far as possible before the next: upstream's order."""
    recording = Recording()
    for text_id in text:
        if sequence.state is SequenceState.FAILED:
            break
        sequence.push_text([text_id])
        run_until_stuck(sequence, sample, recording, on_feed=on_feed)
    if sequence.state is not SequenceState.FAILED:
        sequence.end_text()
        run_until_stuck(sequence, sample, recording, on_feed=on_feed)
    return recording


def run_unistream(sequence: Unistream, sample: Sampler, on_feed: Callable[[Feed], None] = lambda _: None) -> Recording:
    recording = Recording()
    run_until_stuck(sequence, sample, recording, on_feed=on_feed)
    return recording


def scripted(tokens: Sequence[int]) -> Sampler:
    """Returns the n-th token at call n, whatever was fed."""
    return lambda _, call: tokens[call]


def tokens(outputs: Iterable[SequenceOutput]) -> list[int]:
    return [token for output in outputs for token in output.tokens]


def drain(
    runner: LlmRunner, after_step: Callable[[int], None] = lambda _: None, ids: Iterable[int] = range(10)
) -> dict[int, list[SequenceOutput]]:
    """Step everything that is runnable until nothing is."""
    outputs: dict[int, list[SequenceOutput]] = {}
    for step in range(2000):
        runnable = [sequence_id for sequence_id in ids if runner.is_runnable(sequence_id)]
        if not runnable:
            return outputs
        results = runner.step(runnable)
        assert [output.sequence_id for output in results] == runnable
        for output in results:
            outputs.setdefault(output.sequence_id, []).append(output)
        after_step(step)
    raise AssertionError("the sequences run on")
