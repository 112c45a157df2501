"""Generated weights that end speech as a trained model does: about six speech tokens for each text token.

How: one head of the LLM's first layer looks at all positions alike and so adds up what each is worth: a text token 5 to
7 speech tokens, a speech token minus one. Its sum passes through all layers untouched, and the head gives the end of
speech a logit that rises above all others where the sum falls below zero. A prompt whose recording is as long as its
transcript is worth adds nothing. So nobody but the weights knows a length before it is spoken; seeds do not change it.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from voicegate.bench.full_size.source import generated_numbers
from voicegate.bench.sentences import EVERYDAY, PARAGRAPH
from voicegate.clients.bench.sentences import ENGLISH
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT
from voicegate.engine.llm.torch.model import BODY, HEAD, SPEECH_TABLE, TEXT_TABLE
from voicegate.engine.model.config import ModelConfig

# Speech tokens that a text token is worth; English of a trained model takes about 6.
_LEAST_WORTH: Final = 5.0
_MOST_WORTH: Final = 7.0
# 3 to 10 s, of different residues of the flow's block.
PROMPT_TOKENS: Final = (75, 110, 143, 181, 214, 250)
# About four characters a text token, as Qwen2's own has of English.
_NUM_MERGES: Final = 800

# Channels of the residual stream: what a position is worth, and the sum.
_WORTH: Final = 0
_SUM: Final = 1
# Scale of the embeddings' channel per speech token. Higher -> a token with much worth has a longer embedding, whose
# norm takes it back: the end of the prompt's instruction is worth a hundred.
_UNIT: Final = 0.001
# Gain of the end's logit: a token too many in 400 weighs about 20. Lower -> sentences end some tokens late.
_STOP_GAIN: Final = 20_000.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt of a generated voice: its text, and its number of speech tokens."""

    transcript: str
    num_tokens: int


def english_merges() -> list[tuple[str, str]]:
    """Merges of a byte-level vocabulary, learnt from the benches' sentences."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + _NUM_MERGES, initial_alphabet=alphabet, show_progress=False
    )
    texts = [*ENGLISH.short, *ENGLISH.sentences, *ENGLISH.paragraphs, *EVERYDAY, PARAGRAPH]
    tokenizer.train_from_iterator(texts, trainer)
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]


class SpeechCounts:
    """Speech tokens that each text id is worth."""

    def __init__(self, model: ModelConfig, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.by_id = generated_numbers("natural.worth").uniform(_LEAST_WORTH, _MOST_WORTH, model.llm.vocab_size)
        instruction = self._ids(model.instruct_prefix.removesuffix(END_OF_PROMPT))
        # Text before it is not spoken.
        self.by_id[tokenizer.token_to_id(END_OF_PROMPT)] = -self.by_id[instruction].sum()

    def of(self, text: str) -> float:
        return float(self.by_id[self._ids(text)].sum())

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def prompts(speech_counts: SpeechCounts) -> Iterator[Prompt]:
    """As long as their transcripts are worth: near PROMPT_TOKENS, one each."""
    words = " ".join(ENGLISH.sentences).split()
    for number, wanted in enumerate(PROMPT_TOKENS):
        begin = number * len(words) // len(PROMPT_TOKENS)
        end = begin + 1
        while speech_counts.of(" ".join(words[begin:end])) < wanted - _MOST_WORTH:
            end += 1
        transcript = " ".join(words[begin:end])
        yield Prompt(transcript, round(speech_counts.of(transcript)))


def teach_lengths(state: Mapping[str, torch.Tensor], model: ModelConfig, speech_counts: SpeechCounts) -> None:
    """Changes the LLM's weights of source.generate, made with `never_stop`, in place."""
    llm = model.llm
    text_table, speech_table = state[TEXT_TABLE], state[SPEECH_TABLE]
    text_table[:, _WORTH] = _UNIT * torch.from_numpy(speech_counts.by_id.astype(np.float32))
    speech_table[:, _WORTH] = -_UNIT
    speech_table[[llm.sos_id, llm.task_id], _WORTH] = 0
    text_table[:, _SUM] = 0
    speech_table[:, _SUM] = 0
    for index in range(llm.num_layers):
        state[f"{BODY}layers.{index}.self_attn.o_proj.weight"][_SUM] = 0
        state[f"{BODY}layers.{index}.mlp.down_proj.weight"][_SUM] = 0
    _sum_up(state, f"{BODY}layers.0.", head_dim=llm.head_dim, hidden_size=llm.hidden_size)
    state[f"{BODY}norm.weight"][_SUM] = 1
    state[HEAD][llm.eos_id] = 0
    state[HEAD][llm.eos_id, _SUM] = -_STOP_GAIN


def _sum_up(state: Mapping[str, torch.Tensor], layer: str, *, head_dim: int, hidden_size: int) -> None:
    """The first head: no query, so all positions weigh the same; its first value channel is what they are worth."""
    state[f"{layer}input_layernorm.weight"][_WORTH] = 1
    state[f"{layer}self_attn.q_proj.weight"][:head_dim] = 0
    state[f"{layer}self_attn.q_proj.bias"][:head_dim] = 0
    state[f"{layer}self_attn.v_proj.weight"][0] = 0
    # An embedding's norm is about 1, so RMSNorm makes it larger by the root of its width.
    state[f"{layer}self_attn.v_proj.weight"][0, _WORTH] = 1 / (_UNIT * math.sqrt(hidden_size))
    state[f"{layer}self_attn.v_proj.bias"][0] = 0
    state[f"{layer}self_attn.o_proj.weight"][_SUM, 0] = 1
