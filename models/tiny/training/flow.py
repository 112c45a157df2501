"""Train the flow: speech tokens, a prompt's mel and a voice -> mel. Upstream's names and loss.

    python -m models.tiny.training.flow --corpus corpus --state state --minutes 14

The stream of hidden values between blocks stays float32; what they add to it is bfloat16.
Queries and keys are bounded: without that two runs diverged (`bounded`, and README, Runs).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from . import fast, run, shards, speech_tokenizer
from .bounded import BoundedAttention
from .speech_tokenizer import NUM_CODES
from .voices import VOICES

DIM, DEPTH, HEADS, HEAD_DIM, FF_MULT, CHANNELS = 256, 6, 4, 64, 2, 384
_TIME_CHANNELS, _CONV_TAPS, _CONV_GROUPS = 256, 31, 16
_EPS: Final = 1e-6
_LOOKAHEAD: Final = 3
_BLOCK_FRAMES: Final = 50
_FRAMES_PER_CHOICE: Final = 50  # utterances are drawn for a row as if they were so short
SPEAKER_DIM: Final = 192
# (frames of a row, rows of a batch, share of the steps)
_SHAPES: Final = ((400, 96, 0.7), (900, 42, 0.3))
_UNCONDITIONED: Final = 0.2
_MASKED: Final = 0.8  # share of the steps whose attention sees whole blocks alone, as a stream's does
_WITH_PROMPT: Final = 0.7


def speaker_embeddings() -> torch.Tensor:
    """[voices, 192], unit length: fixed, drawn once. There is no speaker encoder."""
    generator = torch.Generator().manual_seed(20)
    return functional.normalize(torch.randn(len(VOICES), SPEAKER_DIM, generator=generator), dim=1)


class PreLookahead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(shards.NUM_MELS, CHANNELS, _LOOKAHEAD + 1)
        self.conv2 = nn.Conv1d(CHANNELS, shards.NUM_MELS, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.leaky_relu(self.conv1(functional.pad(x, (0, _LOOKAHEAD))))
        out: torch.Tensor = self.conv2(functional.pad(hidden, (2, 0))) + x
        return out


def _zeros(layer: nn.Linear) -> nn.Linear:
    """A network of gates that begins as none."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class _Modulation(nn.Module):
    def __init__(self, parts: int) -> None:
        super().__init__()
        self.linear = _zeros(nn.Linear(DIM, parts * DIM))

    def forward(self, time: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out: torch.Tensor = self.linear(functional.silu(time))
        return tuple(out[:, None].chunk(self.linear.out_features // DIM, dim=2))


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = HEADS * HEAD_DIM
        # A bias of all keys changes no softmax. Its gradient is rounding noise, by which Adam would let it grow.
        self.to_q, self.to_k, self.to_v = (nn.Linear(DIM, inner, bias=name != "k") for name in "qkv")
        self.to_out = nn.ModuleList([nn.Linear(inner, DIM)])

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        queries, keys, values = (
            each(x).view(*x.shape[:2], HEADS, HEAD_DIM).transpose(1, 2) for each in (self.to_q, self.to_k, self.to_v)
        )
        queries, keys = _first_head_rotated(queries, cos, sin), _first_head_rotated(keys, cos, sin).float()
        keys = (keys - keys.mean(2, keepdim=True)).to(queries.dtype)  # what all have in common would only be rounded
        out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        attended: torch.Tensor = self.to_out[0](out.transpose(1, 2).flatten(2))
        return attended


def _first_head_rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Upstream rotates before it splits heads: the first alone has positions. Channels (2i, 2i + 1) are a pair."""
    even, odd = x[:, :1, :, ::2].float(), x[:, :1, :, 1::2].float()
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=4).flatten(3)
    return torch.cat((turned.to(x.dtype), x[:, 1:]), dim=1)


class _FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(DIM, FF_MULT * DIM), nn.GELU(approximate="tanh"))
        self.ff = nn.Sequential(inner, nn.Dropout(0.0), nn.Linear(FF_MULT * DIM, DIM))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.ff(x)
        return out


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn_norm = _Modulation(6)
        self.attn = _Attention()
        self.ff = _FeedForward()

    def forward(
        self, x: torch.Tensor, time: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.attn_norm(time)
        x = x + (gate * self.attn(_norm(x) * (1 + scale) + shift, cos, sin, mask)).float()
        out: torch.Tensor = x + (gate2 * self.ff(_norm(x) * (1 + scale2) + shift2)).float()
        return out


def _norm(x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x.float(), (DIM,), eps=_EPS)


class _PositionConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in ("conv1", "conv2"):
            convolution = nn.Conv1d(DIM, DIM, _CONV_TAPS, groups=_CONV_GROUPS)
            self.add_module(name, nn.Sequential(convolution, nn.Mish()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2)
        for layer in self.children():
            x = layer(functional.pad(x, (_CONV_TAPS - 1, 0)))
        return x.transpose(1, 2)


class _InputEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4 * shards.NUM_MELS, DIM)
        self.conv_pos_embed = _PositionConvolution()


class _TimeEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(_TIME_CHANNELS, DIM), nn.SiLU(), nn.Linear(DIM, DIM))

    def forward(self, time: torch.Tensor) -> torch.Tensor:
        half = _TIME_CHANNELS // 2
        rates = torch.exp(torch.arange(half, device=time.device) * -(math.log(10_000) / (half - 1)))
        angles = 1000 * time[:, None] * rates
        out: torch.Tensor = self.time_mlp(torch.cat((angles.sin(), angles.cos()), dim=1))
        return out


class Estimator(nn.Module):
    """The velocity network. All of [B, T, 80] but `speaker` [B, 80] and `time` [B]."""

    def __init__(self) -> None:
        super().__init__()
        self.time_embed = _TimeEmbedding()
        self.input_embed = _InputEmbedding()
        self.transformer_blocks = nn.ModuleList(_Block() for _ in range(DEPTH))
        self.norm_out = _Modulation(2)
        self.proj_out = _zeros(nn.Linear(DIM, shards.NUM_MELS))

    def forward(
        self,
        x: torch.Tensor,
        mu: torch.Tensor,
        speaker: torch.Tensor,
        cond: torch.Tensor,
        time: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        spread = speaker[:, None].expand(-1, x.shape[1], -1)
        embedded_time = self.time_embed(time)
        hidden = self.input_embed.proj(torch.cat((x, cond, mu, spread), dim=2))
        hidden = hidden + self.input_embed.conv_pos_embed(hidden).float()
        places = torch.arange(x.shape[1], device=x.device)[:, None]
        angles = places * 10_000.0 ** (-torch.arange(0, HEAD_DIM, 2, device=x.device) / HEAD_DIM)
        cos, sin = angles.cos(), angles.sin()
        for block in self.transformer_blocks:
            hidden = block(hidden, embedded_time, cos, sin, mask)
        scale, shift = self.norm_out(embedded_time)
        out: torch.Tensor = self.proj_out(_norm(hidden) * (1 + scale) + shift)
        return out


class _Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.estimator = Estimator()


class Flow(nn.Module):
    """Tokens are trained as a row for each code: the phase says nothing about sound."""

    def __init__(self) -> None:
        super().__init__()
        self.input_embedding = nn.Embedding(NUM_CODES, shards.NUM_MELS)
        self.spk_embed_affine_layer = nn.Linear(SPEAKER_DIM, shards.NUM_MELS)
        self.pre_lookahead_layer = PreLookahead()
        self.decoder = _Decoder()

    def conditions(self, codes: torch.Tensor, embedding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """codes [B, n], embedding [B, 192] -> mu [B, 2n, 80] and speaker [B, 80]."""
        mu = self.pre_lookahead_layer(self.input_embedding(codes).transpose(1, 2)).transpose(1, 2)
        return mu.repeat_interleave(2, dim=1).float(), self.spk_embed_affine_layer(embedding).float()


def block_mask(frames: int, device: torch.device, *, is_streaming: bool) -> torch.Tensor:
    block = torch.arange(frames, device=device) // _BLOCK_FRAMES
    is_seen = block[None, :] <= block[:, None]
    return is_seen if is_streaming else torch.ones_like(is_seen)


class Batches:
    """Rows of exactly T frames: utterances of one voice, one after another, cut where the row is full."""

    def __init__(self, corpus: shards.Corpus, codes: torch.Tensor, device: torch.device) -> None:
        self._mel, self._codes, self._device = corpus.arrays["mel"], codes, device
        self._frames = torch.from_numpy(corpus.frames).to(device)
        self._starts = torch.from_numpy(corpus.starts).to(device)
        voices = torch.from_numpy(corpus.voices).to(device)
        own = [(number, torch.nonzero(voices == number)[:, 0]) for number in range(len(VOICES))]
        self._of_voice = [(number, each) for number, each in own if len(each)]
        self._embeddings = speaker_embeddings().to(device)

    def batch(self, frames: int, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """-> mel [B, T, 80], codes [B, T / 2], embedding [B, 192]; as many rows of each voice."""
        share = max(rows // len(self._of_voice), 1)
        index = torch.cat([self._rows(own, frames, share) for _, own in self._of_voice])
        embedding = torch.cat([self._embeddings[number].expand(share, -1) for number, _ in self._of_voice])
        return self._mel[index].float(), self._codes[index[:, ::2] // 2].long(), embedding

    def _rows(self, own: torch.Tensor, frames: int, rows: int) -> torch.Tensor:
        """[rows, T] places in the flat arrays."""
        chosen = own[torch.randint(len(own), (rows, frames // _FRAMES_PER_CHOICE), device=self._device)]
        lengths, starts = self._frames[chosen], self._starts[chosen]
        ends = lengths.cumsum(1)
        place = torch.arange(frames, device=self._device).expand(rows, -1).contiguous()
        which = torch.searchsorted(ends, place, right=True).clamp(max=chosen.shape[1] - 1)
        length = lengths.gather(1, which)
        within = place - (ends.gather(1, which) - length)
        return starts.gather(1, which) + torch.minimum(within, length - 1)


def prompts(mel: torch.Tensor) -> torch.Tensor:
    """The mel of a random beginning, zeros after it: [B, T, 80]."""
    rows, frames, _ = mel.shape
    share = torch.rand(rows, 1, device=mel.device) * 0.6
    share = share * (torch.rand(rows, 1, device=mel.device) < _WITH_PROMPT)
    return mel * (torch.arange(frames, device=mel.device) < share * frames)[:, :, None]


def spread_evenly(rows: int, device: torch.device) -> torch.Tensor:
    """[rows] between 0 and 1, at random, and one in each of `rows` equal parts: by chance alone a batch has more of the
    times whose loss is high, or fewer."""
    return (torch.randperm(rows, device=device) + torch.rand(rows, device=device)) / rows


def loaded(corpus_path: Path, state: Path, device: torch.device, hours: float) -> Batches:
    corpus = shards.load(shards.shard_paths(corpus_path), ("mel",), device, max_hours=hours)
    codes = speech_tokenizer.all_codes(speech_tokenizer.trained(state, device), corpus)
    told = ", ".join(f"{corpus.hours(number):.1f} h of {name}" for number, name in enumerate(VOICES))
    print(f"flow: {told}", flush=True)
    return Batches(corpus, codes, device)


def main(arguments: Sequence[str] | None = None) -> None:
    options = run.parser(__doc__).parse_args(arguments)
    torch.manual_seed(options.seed)
    model = Flow().to(options.device)
    training = run.Run("flow", model, options, rate=6e-4, betas=(0.9, 0.99), watched="loss", tolerance=run.TIGHT)
    bounded = BoundedAttention(model)
    batches = loaded(options.corpus, options.state, options.device, options.hours)
    fast.compile_each(model.decoder.estimator.transformer_blocks, options)
    estimate = model.decoder.estimator
    choice = torch.Generator().manual_seed(options.seed + training.num_steps)
    for _ in training.steps():
        frames, rows, _share = _SHAPES[0] if torch.rand((), generator=choice) < _SHAPES[0][2] else _SHAPES[1]
        mel, codes, embedding = batches.batch(frames, max(int(rows * options.batch_share), 2))
        mask = block_mask(frames, options.device, is_streaming=bool(torch.rand((), generator=choice) < _MASKED))
        rows = len(mel)
        time = 1 - torch.cos(spread_evenly(rows, options.device) * 0.5 * math.pi)
        noise = torch.randn_like(mel)
        x = (1 - (1 - 1e-6) * time[:, None, None]) * noise + time[:, None, None] * mel
        is_conditioned = (torch.rand(rows, device=options.device) > _UNCONDITIONED).float()
        with fast.low_precision(options):
            mu, speaker = model.conditions(codes, embedding)
            told = is_conditioned[:, None, None]
            velocity = estimate(x, mu * told, speaker * told[:, 0], prompts(mel) * told, time, mask)
        training.update({"loss": functional.mse_loss(velocity.float(), mel - (1 - 1e-6) * noise)})
        bounded.hold()


if __name__ == "__main__":
    main()
