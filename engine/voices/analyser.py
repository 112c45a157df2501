"""What hears a recording the way a checkpoint was trained to: the seam between enrolment and a model's own encoders."""

from typing import Protocol

import torch

from voicegate.engine.voices.features import PromptAudio


class Analyser(Protocol):
    @property
    def identity(self) -> str:
        """Tells this checkpoint's encoders from others; known without loading them."""

    def speech_tokens(self, audio: PromptAudio) -> torch.Tensor:
        """[n] int64, 25 a second, as the LLM and the flow were trained on. Raises EngineError."""

    def embedding(self, audio: PromptAudio) -> torch.Tensor:
        """[192] float32, of the speaker, before normalisation. Raises EngineError."""
