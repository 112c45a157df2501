"""Draws of the CUDA sampling kernel on scores of one's own, on a GPU or by Triton's interpreter."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine.llm.cuda import packing
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import default_tiles
from voicegate.engine.llm.cuda.draws import RepetitionAwareDraws, RepetitionPenaltyDraws
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.torch.model import llm_shapes
from voicegate.engine.model.config import LlmConfig, Sampling, SamplingConfig

REPETITION_AWARE = SamplingConfig()


_NUMBER = 7  # of the sequences that draw, in their slots


class KernelSampler:
    """Sample i draws for slot i. The network around it is all zeros and never run."""

    def __init__(
        self, config: LlmConfig, *, num_slots: int, device: str, sampling: Sampling = REPETITION_AWARE
    ) -> None:
        self.config = replace(config, num_layers=1, vocab_size=8, end_of_prompt_id=3)
        self.device = torch.device(device)
        state = {name: torch.zeros(shape) for name, shape in llm_shapes(self.config).items()}
        self.body = DecoderBody(
            self.config,
            sampling,
            DecoderWeights(self.config, state, device=self.device, dtype=torch.float32),
            num_slots=num_slots,
            max_positions=16,
            max_lines=16,
            max_samples=num_slots,
            tiles=default_tiles(is_float32=True),
        )

    def set_history(self, history: npt.NDArray[np.int64]) -> None:
        """[slots, window], -1 where there is none."""
        assert isinstance(self.body.draws, RepetitionAwareDraws)
        self.body.draws.history[: len(history), : history.shape[1]] = torch.from_numpy(history).to(self.device)

    def remember(self, token: int, place: int) -> None:
        """Slot 0 has drawn it."""
        assert isinstance(self.body.draws, RepetitionAwareDraws)
        self.body.draws.history[0, place] = token

    def set_fed(self, fed: npt.NDArray[np.bool_]) -> None:
        """[slots, speech ids]: what the sequences that draw were fed."""
        assert isinstance(self.body.draws, RepetitionPenaltyDraws)
        self.body.draws.fed_by[: len(fed), : fed.shape[1]] = torch.from_numpy(np.where(fed, _NUMBER, _NUMBER - 1))

    def draw(
        self,
        scores: torch.Tensor,
        uniforms: npt.NDArray[np.float64],
        *,
        flags: npt.NDArray[np.int64] | int = 0,
        history_places: npt.NDArray[np.int64] | int = 0,
    ) -> list[int]:
        """scores [B, num_speech_rows], uniforms [B, 2] -> B ids."""
        num_samples = len(scores)
        words = np.zeros(self.body.layout.num_words, np.int32)
        samples = self.body.layout.samples(words, num_samples)
        samples[:, 1] = np.arange(num_samples)
        samples[:, 2] = flags
        samples[:, 3] = history_places
        samples[:, 4:] = uniforms.view(np.int32)
        self.body.layout.lines(words, 1)[:, 3] = _NUMBER
        self.body.work.copy_(torch.from_numpy(words))
        self.body.scores[:num_samples, : scores.shape[1]] = scores.to(self.device)
        self.body.draw(num_samples)
        drawn: list[int] = self.body.tokens[:num_samples].tolist()
        return drawn


def flags_of(ignore_eos: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.where(ignore_eos, packing.IS_IGNORING_EOS, 0).astype(np.int64)
