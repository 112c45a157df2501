"""Arguments of a request for the logits processor in vLLM's process (`extra_args`): plain values. No vLLM, no torch."""

from dataclasses import asdict, dataclass
from typing import Any, Final

KEY: Final = "voicegate"


@dataclass(frozen=True, slots=True)
class RequestArgs:
    # The model's.
    first_speech_id: int
    speech_token_size: int
    num_speech_rows: int
    top_p: float
    top_k: int
    window: int
    tau_r: float
    # The leg's.
    min_tokens: int  # of the sequence; see Unistream
    num_spoken: int  # speech tokens before it
    last_spoken: list[int]  # the last of them, as many as the window has

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
