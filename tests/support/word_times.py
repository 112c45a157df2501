"""Promises about word times, held against everything that an utterance sent."""

from collections.abc import Sequence

from voicegate.engine import units
from voicegate.engine.interface import AlignedText, Alignment, AudioReady, Done, EngineEvent

_BYTES_PER_SAMPLE = 2


def words_in_time(events: Sequence[EngineEvent]) -> list[AlignedText]:
    """All words of an utterance in PCM; each was told before its audio, and in order."""
    told: list[AlignedText] = []
    sent_ms = latest_ms = latest_char = 0
    num_samples = 0
    for event in events:
        match event:
            case AudioReady(packets=packets):
                num_samples += sum(map(len, packets)) // _BYTES_PER_SAMPLE
                sent_ms = units.samples_to_ms(num_samples)
            case Alignment(items=items):
                assert items
                for item in items:
                    assert item.start_ms >= sent_ms, f"{item} is told when {sent_ms} ms have been sent"
                    assert latest_ms <= item.start_ms <= item.end_ms
                    assert latest_char <= item.char_start < item.char_end
                    latest_ms, latest_char = item.end_ms, item.char_end
                told += items
    if events and isinstance(events[-1], Done):
        assert latest_ms <= sent_ms, "no word is heard behind the end"
    return told
