"""The plain way's decoder: one pass at a time, one token a step, eager.

As the reference runtime of CosyVoice 3 decodes (cosyvoice/llm/llm.py and utils/common.py): Hugging Face's Qwen2 with
the cache and attention that it takes by default, the speech head on its last hidden state, and a sampler that reads the
device candidate by candidate.
"""

import importlib
import importlib.metadata
from collections.abc import Generator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch

from voicegate.engine.llm.backend import LlmPrompt
from voicegate.engine.llm.feed import Rows
from voicegate.engine.llm.sequence import Unistream
from voicegate.engine.llm.torch.model import BODY, HEAD, SPEECH_TABLE, check_state_dict
from voicegate.engine.model.config import HeadBias, ModelConfig, SamplingConfig
from voicegate.engine.model.qwen2 import qwen2_sizes


class TransformersLlm:
    """Kinder to it than upstream: no text head beside the speech head; no mask, which one sequence does not need."""

    def __init__(
        self,
        model: ModelConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Raises ImportError without transformers, and WeightsError."""
        transformers = importlib.import_module("transformers")
        check_state_dict(model.llm, state_dict)
        if not isinstance(model.sampling, SamplingConfig) or model.llm.head_bias is HeadBias.USED:
            raise ValueError("transformers' loop here has repetition-aware sampling and a head without bias alone")
        self._config, self._sampling, self._device = model.llm, model.sampling, device
        self._speech_table, self._head = (state_dict[name].to(device, dtype) for name in (SPEECH_TABLE, HEAD))
        sizes = {
            **qwen2_sizes(model.llm),
            "vocab_size": model.llm.vocab_size,
            "rope_parameters": {"rope_type": "default", "rope_theta": model.llm.rope_theta},
        }
        with torch.device(device):
            self._body = transformers.Qwen2Model(transformers.Qwen2Config(**sizes)).eval()
        body = {name.removeprefix(BODY): tensor for name, tensor in state_dict.items() if name.startswith(BODY)}
        # Assigned: a cast of the whole module would round the rotary frequencies too.
        self._body.load_state_dict({name: tensor.to(device, dtype) for name, tensor in body.items()}, assign=True)
        self._text_table: torch.Tensor = self._body.embed_tokens.weight

    def describe(self) -> dict[str, str]:
        return {
            "transformers": importlib.metadata.version("transformers"),
            "attention": self._body.config._attn_implementation,
        }

    def speech(
        self, prompt: LlmPrompt, text_ids: Sequence[int], *, seed: int, max_tokens: int
    ) -> Generator[int, None, None]:
        """One pass: its speech tokens, each decoded when it is asked for."""
        sequence = Unistream(self._config, prompt, tuple(text_ids), max_tokens=max_tokens)
        generator = torch.Generator(self._device).manual_seed(seed)
        cache = None
        while (feed := sequence.feed) is not None:
            logits, cache = self.logits(feed.rows, cache)
            drawn = self._draw(logits, sequence.decoded, generator, ignore_eos=feed.ignore_eos)
            token = sequence.advance(drawn)
            if token is not None:
                yield token

    @torch.inference_mode()
    def logits(self, rows: Rows, cache: Any) -> tuple[torch.Tensor, Any]:
        """[num_speech_rows] float32 behind the last of `rows`, and the cache with them; None: it is the first call."""
        output = self._body(inputs_embeds=self._embed(rows)[None], past_key_values=cache, use_cache=True)
        logits = torch.nn.functional.linear(output.last_hidden_state[0, -1], self._head)
        return logits.float(), output.past_key_values

    def _embed(self, rows: Rows) -> torch.Tensor:
        """[N, hidden]: a look-up for every run of ids of one table."""
        first_speech_row = self._config.vocab_size
        tables = {False: (self._text_table, 0), True: (self._speech_table, first_speech_row)}
        embedded = []
        for is_speech, run in groupby(rows.tolist(), key=lambda row: row >= first_speech_row):
            table, first_row = tables[is_speech]
            embedded.append(table[torch.tensor([row - first_row for row in run], device=self._device)])
        return torch.cat(embedded)

    @torch.inference_mode()
    def _draw(
        self, logits: torch.Tensor, decoded: Sequence[int], generator: torch.Generator, *, ignore_eos: bool
    ) -> int:
        scores = logits.log_softmax(-1)
        if ignore_eos:
            scores[self._config.speech_token_size] = -torch.inf  # upstream's quirk: see RepetitionAwareSampler
        return draw(scores, decoded, self._sampling, generator)


def nucleus(scores: torch.Tensor, sampling: SamplingConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates' ids [n] int64 and probabilities [n], n <= top_k, of scores [N]; the way upstream gathers them.

    Every comparison of the sum and every candidate that goes into the result waits for the device.
    """
    probabilities, order = scores.softmax(0).sort(descending=True, stable=True)
    ids: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []
    total: float | torch.Tensor = 0.0
    while total < sampling.top_p and len(ids) < sampling.top_k:
        ids.append(order[len(ids)])
        weights.append(probabilities[len(weights)])
        total = total + weights[-1]
    return torch.tensor(ids, device=scores.device), torch.tensor(weights, device=scores.device)


def draw(scores: torch.Tensor, decoded: Sequence[int], sampling: SamplingConfig, generator: torch.Generator) -> int:
    """Repetition-aware sampling of one token: scores [N] float32, **overwritten**; `decoded` all tokens so far."""
    ids, weights = nucleus(scores, sampling)
    token = ids[weights.multinomial(1, generator=generator)]
    recent = torch.tensor(decoded[-sampling.window :], dtype=torch.int64, device=scores.device)
    if (recent == token).sum().item() >= sampling.window * sampling.tau_r:
        scores[token] = -torch.inf
        token = scores.softmax(0).multinomial(1, generator=generator)
    return int(token.item())
