"""decode_step.cu's programs on a CPU (support/cuda_emulator.py): they come to an end, and to what others compute.

Not to the bit, which is for tests/gpu and for the check at each start: the reference here has no bfloat16 between.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.cuda_emulator import EmulatedKernel, Stuck, map_on_cpu
from tests.unit.engine.llm.support import small_llm_config
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import AttentionTile, Tile, TileTable
from voicegate.engine.llm.cuda.packing import USE_LAST_TOKEN
from voicegate.engine.llm.cuda.resident.arguments import KERNEL, Buffers, KernelInputs
from voicegate.engine.llm.cuda.resident.plan import ResidentPlan, make_plan
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.model import llm_shapes
from voicegate.engine.model.config import HeadBias, SamplingConfig

pytestmark = pytest.mark.unit

# Of the model in use the proportions: more gate and up than slots of `out`, a first warp with two shares, splits.
CONFIG = replace(
    small_llm_config(),
    num_layers=3,
    hidden_size=192,
    num_heads=3,
    num_kv_heads=1,
    head_dim=64,
    intermediate_size=768,
    head_bias=HeadBias.USED,
    max_positions=1024,
)
SLOT, MAX_POSITIONS = 1, 520
_TILE = ((1, Tile(16, 32, 64, 1)),)
TILES = TileTable(
    qkv=_TILE,
    out=_TILE,
    gate_up=_TILE,
    down=((1, Tile(16, 32, 64, 1, num_splits=4)),),
    head=_TILE,
    ahead=None,
    attention=AttentionTile(num_stages=1),
)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).float()


class Both:
    """The body that computes in float32 by Triton's interpreter, and the kernel on copies of its buffers."""

    def __init__(self, folder: Path) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(name: str, shape: tuple[int, ...]) -> torch.Tensor:
            scale = 1.0 if len(shape) == 1 or "embed" in name else shape[-1] ** -0.5
            return rounded(torch.randn(shape, generator=generator) * scale)

        state = {
            name: torch.ones(shape) if name.endswith("norm.weight") else normal(name, shape)
            for name, shape in llm_shapes(CONFIG).items()
        }
        weights = DecoderWeights(CONFIG, state, device=torch.device("cpu"), dtype=torch.float32)
        self.body = DecoderBody(
            CONFIG,
            SamplingConfig(),
            weights,
            num_slots=2,
            max_positions=MAX_POSITIONS,
            max_lines=1,
            max_samples=1,
            tiles=TILES,
        )
        half = DecoderWeights(CONFIG, state, device=torch.device("cpu"), dtype=torch.bfloat16)
        self.buffers = Buffers(
            line=torch.zeros(4, dtype=torch.int32),
            cache=self.body.cache.bfloat16(),
            x=torch.zeros(CONFIG.hidden_size, dtype=torch.bfloat16),
            squares=torch.zeros(CONFIG.hidden_size // 32, 3),
            residual=torch.zeros(CONFIG.hidden_size),
            scores=torch.zeros(self.body.scores.shape[1]),
        )
        plan = make_plan(CONFIG, num_programs=34, shared_memory_bytes=232_448, num_splits=4, decode_keys=128)
        assert plan is not None
        self.plan: ResidentPlan = plan
        self.inputs = KernelInputs(CONFIG, half, plan, self.buffers, map_on_cpu, scale=1.4426950408889634 / 8)
        self.kernel = EmulatedKernel(KERNEL, folder, macros=self.inputs.macros)
        self._table = half.table

    def reference(self, position: int, token: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores, and the keys and values of the line, behind a context that the kernel finds too."""
        body, context = self.body, self.body.cache[:, :, SLOT]
        context.copy_(rounded(torch.randn(context.shape, generator=torch.Generator().manual_seed(position))))
        self.buffers.cache[:, :, SLOT] = context.bfloat16()
        self.buffers.cache[:, :, SLOT, :, position:] = torch.nan  # of a sequence before, anything
        words = np.zeros(body.layout.num_words, np.int32)
        body.layout.pad(words, padding_slot=body.padding_slot)
        body.layout.lines(words, 1)[0] = USE_LAST_TOKEN, SLOT, position, 0
        body.work.copy_(torch.from_numpy(words))
        body.last_token[SLOT] = token
        body.run(1)
        body.score(1)
        return body.scores[0, : CONFIG.num_speech_rows].clone(), context[:, :, :, position].clone()

    def launch(self, position: int, token: int, *, seed: int, kernel: EmulatedKernel | None = None) -> None:
        """Behind what `embed` leaves."""
        value = self._table[CONFIG.vocab_size + token].float()
        self.buffers.line.copy_(torch.tensor([USE_LAST_TOKEN, SLOT, position, 0]))
        self.buffers.residual.copy_(value)
        self.buffers.x.copy_(value)
        self.buffers.squares.zero_()
        self.buffers.squares[0, 0] = value.square().sum()
        self.buffers.scores.fill_(torch.nan)
        (kernel or self.kernel).launch(
            self.inputs.arguments,
            (self.plan.num_programs, 1, 1),
            shared_memory_bytes=self.plan.shared_memory_bytes,
            seed=seed,
        )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize("position", [0, 1, 129, 512])
def test_scores_keys_and_values_are_those_of_all_other_kernels(both: Both, position: int) -> None:
    """Launches follow one another on the same memory; threads in another order each time."""
    scores, stored = both.reference(position, token=position % 50)
    both.launch(position, position % 50, seed=position)
    found = both.buffers.scores[: CONFIG.num_speech_rows]
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found, scores, rtol=0, atol=0.02 * float(scores.abs().max()))
    found_stored = both.buffers.cache[:, :, SLOT, :, position].float()
    torch.testing.assert_close(found_stored, stored, rtol=0, atol=0.02 * float(stored.abs().max()))


def test_no_order_of_threads_changes_a_bit(both: Both) -> None:
    found = []
    for seed in range(2):
        both.reference(150, token=3)
        both.launch(150, 3, seed=1000 + seed)
        found.append(both.buffers.scores[: CONFIG.num_speech_rows].clone())
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_a_kernel_that_waits_for_ever_is_seen(both: Both, tmp_path: Path) -> None:
    """As one was whose fetching warp looked for a phase of a barrier that was over."""
    kernel, made = tmp_path / "kernel", tmp_path / "made"
    kernel.mkdir()
    made.mkdir()
    for source in KERNEL.parent.iterdir():
        text = source.read_text()
        (kernel / source.name).write_text(text.replace("wait_for(empty, fill - 1)", "wait_for(empty, fill)"))
    broken = EmulatedKernel(kernel / KERNEL.name, made, macros=both.inputs.macros)
    both.reference(150, token=3)
    with pytest.raises(Stuck, match=r"everybody waits|more arrivals"):
        both.launch(150, 3, seed=0, kernel=broken)
