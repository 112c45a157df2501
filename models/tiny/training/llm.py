"""Train the speech LLM: text and what was said before -> codes.

    python -m models.tiny.training.llm --corpus corpus --state state --tokenizer models/tiny/tokenizer.json --minutes 12

A token is a code and a phase (RECIPE.md says why), so the two 6761-row tables are trained as a row for each code and
one for each phase; their sum is exactly upstream's table, and the softmax over it factors. A code's row is the sum of
its own and of one for each of its levels: rare codes have much in common with others.
"""

import argparse
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from . import codes, fast, run
from .codes import Told
from .speech_tokenizer import LEVELS, NUM_CODES, PHASES, levels_of
from .voices import VOICES

HIDDEN, LAYERS, HEADS, HEAD_DIM, FEED_FORWARD, VOCABULARY = 320, 8, 5, 64, 768, 1536
_EPS: Final = 1e-6
_ROPE_BASE: Final = 10_000.0
SOS, EOS, TASK, FILL = range(4)  # rows of the special table, upstream's 6561 .. 6564
NUM_SPECIAL: Final = 4
NUM_UNUSED: Final = 6761 - NUM_CODES * PHASES - NUM_SPECIAL  # rows of upstream's tables that must never be drawn
PREFIX: Final = "You are a helpful assistant.<|endofprompt|>"
_LENGTH, _BATCH = 512, 128
_MIX_TEXT, _MIX_SPEECH = 5, 15
_IGNORED: Final = -1
_DROPOUT: Final = 0.08
# A document's end, so that a clause which ends with a comma is not gone on with: the engine gives the LLM nothing more.
_ENDS, _ENDS_AT_COMMA = 0.12, 0.8
# Documents whose last text is still being written, as the engine's re-prefills have it (core/reprefills.py): where its
# first words are said they end, so that the LLM says no more than it knows.
_GROWING = 0.2
_MOST_REPEATED: Final = 4  # times, a voice with less speech than another
_SPECIAL_BASE: Final = NUM_CODES  # ids in a document: codes, then specials; text has ids of its own
_NUM_HELD_OUT: Final = 256  # utterances that are not trained on: by their loss is judged
_CHECKED_EVERY: Final = 250  # steps


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM)
        self.k_proj = nn.Linear(HIDDEN, HEAD_DIM)
        self.v_proj = nn.Linear(HIDDEN, HEAD_DIM)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        queries = self.q_proj(x).view(batch, length, HEADS, HEAD_DIM).transpose(1, 2)
        keys = self.k_proj(x).view(batch, length, 1, HEAD_DIM).transpose(1, 2)
        values = self.v_proj(x).view(batch, length, 1, HEAD_DIM).transpose(1, 2)
        queries, keys = _rotated(queries, cos, sin), _rotated(keys, cos, sin)
        keys, values = keys.expand(-1, HEADS, -1, -1), values.expand(-1, HEADS, -1, -1)
        out = functional.scaled_dot_product_attention(queries, keys, values.to(queries.dtype), is_causal=True)
        attended: torch.Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return attended


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.down_proj = nn.Linear(FEED_FORWARD, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(HIDDEN, _EPS)
        self.self_attn = Attention()
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, _EPS)
        self.mlp = Mlp()

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + functional.dropout(self.self_attn(self.input_layernorm(x), cos, sin), _DROPOUT, self.training)
        return x + functional.dropout(self.mlp(self.post_attention_layernorm(x)), _DROPOUT, self.training)


class SpeechLlm(nn.Module):
    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, _EPS)
        # Each twice: rows that are fed, rows that score.
        self.code_rows = nn.ParameterList(_rows(NUM_CODES) for _ in range(2))
        self.level_rows = nn.ParameterList(_rows(sum(LEVELS)) for _ in range(2))
        self.phase_rows = nn.ParameterList(_rows(PHASES) for _ in range(2))
        self.special_rows = nn.ParameterList(_rows(NUM_SPECIAL + 1) for _ in range(2))  # the last: any unused id
        nn.init.normal_(self.embed_tokens.weight, std=0.05)
        angles = torch.arange(4096)[:, None] * _ROPE_BASE ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def forward(self, ids: torch.Tensor, phases: torch.Tensor, is_text: torch.Tensor) -> torch.Tensor:
        """ids [B, L] of the text's table or of the documents' -> [B, L, 320]. `phases` [B, L], PHASES for none."""
        table = torch.cat((code_table(self.code_rows[0], self.level_rows[0]), self.special_rows[0]))
        phase_table = functional.pad(self.phase_rows[0], (0, 0, 0, 1))
        speech = table[ids.clamp(max=len(table) - 1) * ~is_text] + phase_table[phases]
        x = torch.where(is_text[..., None], self.embed_tokens(ids * is_text), speech)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        hidden: torch.Tensor = self.norm(x)
        return hidden

    def loss(self, hidden: torch.Tensor, targets: torch.Tensor, phases: torch.Tensor) -> torch.Tensor:
        """[n, 320], documents' ids [n] and phases [n] -> [n]: exactly the softmax over upstream's 6761 rows."""
        codes = (hidden @ code_table(self.code_rows[1], self.level_rows[1]).T.to(hidden.dtype)).float()
        phase = (hidden @ self.phase_rows[1].T.to(hidden.dtype)).float()
        special = (hidden @ self.special_rows[1].T.to(hidden.dtype)).float()
        special = special + torch.tensor([0.0] * NUM_SPECIAL + [math.log(NUM_UNUSED)], device=hidden.device)
        total = torch.logaddexp(codes.logsumexp(1) + phase.logsumexp(1), special.logsumexp(1))
        is_code = targets < NUM_CODES
        code = codes.gather(1, (targets * is_code)[:, None])[:, 0] + phase.gather(1, (phases % PHASES)[:, None])[:, 0]
        other = special.gather(1, ((targets - NUM_CODES) * ~is_code)[:, None])[:, 0]
        return total - torch.where(is_code, code, other)


def code_table(code_rows: torch.Tensor, level_rows: torch.Tensor) -> torch.Tensor:
    """[codes, 320]: of each code its own row, and those of its levels."""
    levels = levels_of(torch.arange(NUM_CODES, device=code_rows.device))
    has_level = torch.cat([functional.one_hot(each, count) for each, count in zip(levels, LEVELS, strict=True)], dim=1)
    return code_rows + has_level.to(level_rows.dtype) @ level_rows


def _rows(number: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(number, HIDDEN) * 0.05)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


class Documents(IterableDataset[tuple[torch.Tensor, ...]]):
    """Batches of documents: utterances of one voice joined until 512 places are full, half of them interleaved."""

    def __init__(self, told: Told, tokenizer: Path, indices: Sequence[int], batch: int, seed: int) -> None:
        self._codes, self._texts, self._words = told.codes, told.texts, told.words
        self._tokenizer_path = tokenizer
        self._by_voice = [[index for index in indices if told.voices[index] == number] for number in range(len(VOICES))]
        self._by_voice = [each for each in self._by_voice if each]
        self._batch, self._seed = batch, seed

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        info = torch.utils.data.get_worker_info()
        rng = random.Random(self._seed * 1000 + (info.id if info else 0))
        plain = Tokenizer.from_file(str(self._tokenizer_path))
        dropping = Tokenizer.from_file(str(self._tokenizer_path))
        dropping.model.dropout = 0.12
        prefix = plain.encode(PREFIX).ids
        while True:
            yield self._batch_of(rng, plain, dropping, prefix)

    def _batch_of(self, rng: random.Random, plain: Any, dropping: Any, prefix: list[int]) -> tuple[torch.Tensor, ...]:
        arrays = [np.full((self._batch, _LENGTH), fill, np.int64) for fill in (0, PHASES, 0, _IGNORED, 0)]
        for row in range(self._batch):
            document = self._document(rng, plain, dropping, len(prefix))
            text, codes = list(itertools.chain(*document.text)), np.concatenate(document.codes)
            is_mixed = rng.random() < 0.5 and len(codes) > len(text) * _MIX_SPEECH / _MIX_TEXT
            layout = _mixed if is_mixed and not document.is_growing else _whole
            for array, column in zip(arrays, layout(prefix, text, codes), strict=True):
                array[row, : len(column)] = column
        return tuple(map(torch.from_numpy, arrays))

    def _document(self, rng: random.Random, plain: Any, dropping: Any, num_prefix: int) -> "_Document":
        sizes = [len(each) for each in self._by_voice]
        voice = rng.choices(self._by_voice, [min(_MOST_REPEATED * size, max(sizes)) for size in sizes])[0]
        tokenizer = dropping if rng.random() < 0.25 else plain
        document = _Document([], [np.zeros(0, np.int64)])
        last = ""
        room = _LENGTH - num_prefix - 3
        for index in rng.choices(voice, k=8):
            written = (" " if last and rng.random() < 0.5 else "") + self._texts[index]
            ids = tokenizer.encode(written).ids
            needed = len(ids) + len(self._codes[index])
            if needed > room:
                if last:
                    break
                continue
            room -= needed
            document.text.append(ids)
            document.codes.append(self._codes[index])
            last, words = written, self._words[index]
            if rng.random() < (_ENDS_AT_COMMA if written.endswith(",") else _ENDS):
                break
        if last and rng.random() < _GROWING:
            document.cut(last, words, rng, plain)
        return document


@dataclass(slots=True)
class _Document:
    text: list[list[int]]  # of each utterance, its ids
    codes: list[npt.NDArray[np.int64]]
    is_growing: bool = False  # the last text is not finished

    def cut(self, last: str, num_said: npt.NDArray[np.uint8], rng: random.Random, tokenizer: Any) -> None:
        """Leaves the first words of `last`, the text of the last utterance, and the speech of these.

        num_said: of its words, before each code. Texts of two words stay, as do those that were read as more or fewer
        words than are written.
        """
        words = last.split()
        if len(words) < 3 or num_said[-1] != len(words) - 1:
            return
        num_known = rng.randint(2, len(words) - 1)
        space = last[: len(last) - len(last.lstrip())]
        ids = tokenizer.encode(space + " ".join(words[:num_known])).ids
        if len(ids) > len(self.text[-1]):  # a row may be full, and dropout cuts a text otherwise each time
            return
        self.text[-1] = ids
        self.codes[-1] = self.codes[-1][: int(np.searchsorted(num_said, num_known))]
        self.is_growing = True


Columns = tuple[list[int], list[int], list[int], list[int], list[int]]


def _whole(prefix: list[int], text: list[int], codes: npt.NDArray[np.int64]) -> Columns:
    """ids, phases, whether text, targets, targets' phases: sos, text, task, speech, and the end as last target."""
    return _closed(_opening(prefix + text), codes.tolist(), 0)


def _mixed(prefix: list[int], text: list[int], codes: npt.NDArray[np.int64]) -> Columns:
    """Five text tokens, fifteen of speech, and so on, as upstream trains it: after fifteen comes `fill`, never fed."""
    ids, phases, is_text, targets, target_phases = _opening(prefix)
    speech = codes.tolist()
    num_blocks = len(text) // _MIX_TEXT
    for block in range(num_blocks):
        first = block * _MIX_SPEECH
        said = speech[first : first + _MIX_SPEECH]
        ids += text[block * _MIX_TEXT : (block + 1) * _MIX_TEXT] + said
        is_text += [1] * _MIX_TEXT + [0] * _MIX_SPEECH
        phases += [PHASES] * _MIX_TEXT + [(first + place) % PHASES for place in range(_MIX_SPEECH)]
        targets += [_IGNORED] * (_MIX_TEXT - 1) + said + [_SPECIAL_BASE + FILL]
        target_phases += [0] * (_MIX_TEXT - 1) + [(first + place) % PHASES for place in range(_MIX_SPEECH)] + [0]
    rest = text[num_blocks * _MIX_TEXT :]
    ids += rest
    phases += [PHASES] * len(rest)
    is_text += [1] * len(rest)
    targets += [_IGNORED] * len(rest)
    target_phases += [0] * len(rest)
    return _closed((ids, phases, is_text, targets, target_phases), speech, num_blocks * _MIX_SPEECH)


def _opening(text: list[int]) -> Columns:
    length = len(text) + 1
    return [_SPECIAL_BASE + SOS, *text], [PHASES] * length, [0] + [1] * len(text), [_IGNORED] * length, [0] * length


def _closed(columns: Columns, speech: list[int], done: int) -> Columns:
    """`columns`, then the task's row, the speech after its first `done` codes, and the end as last target."""
    ids, phases, is_text, targets, target_phases = columns
    rest = speech[done:]
    places = [(done + place) % PHASES for place in range(len(rest))]
    return (
        [*ids, _SPECIAL_BASE + TASK, *rest],
        [*phases, PHASES, *places],
        [*is_text, *[0] * (len(rest) + 1)],
        [*targets, *rest, _SPECIAL_BASE + EOS],
        [*target_phases, *places, 0],
    )


def _disturbed(ids: torch.Tensor, phases: torch.Tensor) -> torch.Tensor:
    """1 to 8 % of the codes that are fed become others, so that one slip at inference is not the next one's cause."""
    share = torch.rand(len(ids), 1, device=ids.device) * 0.07 + 0.01
    is_hit = (torch.rand(ids.shape, device=ids.device) < share) & (phases < PHASES)
    return torch.where(is_hit, torch.randint_like(ids, NUM_CODES), ids)


class _Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        told = [
            codes.load(path) if path.is_file() else codes.of_corpus(path, options.state, options.device, options.hours)
            for path in options.corpus
        ]
        self._told, self._num_of_last = codes.joined(told), len(told[-1].texts)
        hours = [round(self._told.hours(number), 2) for number in range(len(VOICES))]
        num_used = len(np.unique(np.concatenate(self._told.codes)))
        print(f"llm: {hours} hours, {num_used} codes used", flush=True)
        self.model = SpeechLlm().to(options.device)
        fast.compile_each(self.model.layers, options)
        self._loss_of_each = fast.compiled(self.model.loss, options)

    def loss(self, columns: Sequence[torch.Tensor], *, is_training: bool) -> torch.Tensor:
        device = self._options.device
        ids, phases, is_text, targets, target_phases = (column.to(device, non_blocking=True) for column in columns)
        is_target = targets >= 0
        with fast.low_precision(self._options):
            fed = _disturbed(ids, phases) if is_training else ids
            hidden = self.model(fed, phases, is_text.bool())
            of_each = self._loss_of_each(hidden.flatten(0, 1), targets.clamp(min=0).flatten(), target_phases.flatten())
        return (of_each * is_target.flatten()).sum() / is_target.sum()

    @torch.no_grad()
    def held_out_loss(self, columns: Sequence[torch.Tensor]) -> float:
        self.model.eval()
        loss = float(self.loss(columns, is_training=False))
        self.model.train()
        return loss

    def batches(self, indices: npt.NDArray[np.int64], seed: int, processes: int) -> Iterator[Sequence[torch.Tensor]]:
        batch = max(int(_BATCH * self._options.batch_share), 2)
        documents = Documents(self._told, self._options.tokenizer, indices.tolist(), batch, seed)
        is_cuda = self._options.device.type == "cuda"
        return iter(DataLoader(documents, batch_size=None, num_workers=processes, pin_memory=is_cuda))

    def split(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Utterances to train on, and those held out: of the last corpus, which a state may not have had before.

        A larger corpus deals them anew.
        """
        num_before = len(self._told.texts) - self._num_of_last
        order = np.random.default_rng(0).permutation(self._num_of_last) + num_before
        num_held_out = min(_NUM_HELD_OUT, len(order) // 10)
        return np.concatenate((np.arange(num_before), order[num_held_out:])), order[:num_held_out]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = run.parser(__doc__, num_corpora="+")
    parser.add_argument("--tokenizer", type=Path, required=True, help="the text tokenizer, tokenizer.json")
    parser.add_argument("--readers", type=int, default=6, help="processes that join documents")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    trainer = _Trainer(options)
    training = run.Run(
        "llm", trainer.model, options, rate=1.5e-3, decay=0.05, average=0.9985, betas=(0.9, 0.95), watched="loss"
    )
    own, held_out_indices = trainer.split()
    batches = trainer.batches(own, options.seed + training.num_steps, options.readers)
    held_out = next(trainer.batches(held_out_indices, 0, 0)) if len(held_out_indices) else None
    for step in training.steps():
        training.update({"loss": trainer.loss(next(batches), is_training=True)})
        if held_out is not None and step % _CHECKED_EVERY == _CHECKED_EVERY - 1:
            training.judge(trainer.held_out_loss(held_out))


if __name__ == "__main__":
    main()
