"""What every backend asks of a request before it takes a slot, and the sequence that it makes of it. No torch."""

from voicegate.engine.llm.backend import InvalidRequest, SequenceRequest
from voicegate.engine.llm.bistream import Bistream, BistreamPolicy
from voicegate.engine.llm.feed import check_text_ids, prompt_rows
from voicegate.engine.llm.sequence import Growing, LlmSequence, Unistream
from voicegate.engine.model.config import LlmConfig


def make_sequence(config: LlmConfig, request: SequenceRequest, policy: BistreamPolicy) -> LlmSequence:
    """Raises InvalidRequest for what the model cannot do."""
    if request.max_tokens is not None and request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}; it must be at least 1")
    check_text_ids(config, request.text_ids)
    prompt_rows(config, request.prompt)  # which looks at its ids, once for all that is said behind it
    if request.is_growing:
        return Growing(config, request.prompt, max_tokens=request.max_tokens)
    if not request.is_streaming:
        return Unistream(config, request.prompt, request.text_ids, max_tokens=request.max_tokens)
    sequence = Bistream(config, request.prompt, policy=policy, max_tokens=request.max_tokens)
    sequence.push_text(request.text_ids)
    return sequence


def streaming(sequence_id: int, sequence: LlmSequence) -> Bistream:
    """Raises InvalidRequest for a sequence whose text was complete from the start."""
    if not isinstance(sequence, Bistream):
        raise InvalidRequest(f"sequence {sequence_id} is not streaming: its text was complete from the start")
    return sequence


def growing(sequence_id: int, sequence: LlmSequence) -> Growing:
    """Raises InvalidRequest for a sequence of another kind."""
    if not isinstance(sequence, Growing):
        raise InvalidRequest(f"sequence {sequence_id} is not growing: it is not read again")
    return sequence
