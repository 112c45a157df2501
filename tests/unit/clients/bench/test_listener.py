"""A listener's notes of a turn, on a conversation that says what it is told to."""

import array

import pytest

from voicegate.clients.bench.dialects.conversation import Chunk, Ended, pcm_chunk
from voicegate.clients.bench.judge import figures
from voicegate.clients.bench.listener import Listener
from voicegate.clients.bench.plan import Outcome, Piece, Record, Turn, Visit

RATE_HZ = 24_000
TURN = Turn(pieces=(Piece("Hello.", 0.0),))


class Scripted:
    """A conversation that gives its answers one by one, whatever is said."""

    is_spent = False

    def __init__(self, *answers: Chunk | Ended) -> None:
        self._answers = list(answers)

    async def begin(self, turn: Turn) -> None: ...

    async def say(self, text: str) -> None: ...

    async def end(self) -> None: ...

    async def cancel(self, played_ms: int) -> bool:
        return False

    async def receive(self) -> Chunk | Ended:
        return self._answers.pop(0)

    async def close(self) -> None: ...


def samples(*runs: tuple[int, int]) -> Chunk:
    """PCM of (value, how often)."""
    return pcm_chunk(array.array("h", [value for value, num in runs for _ in range(num)]).tobytes(), RATE_HZ)


async def told(*answers: Chunk | Ended, wanted: Outcome = Outcome.DONE) -> Record:
    listener = Listener(Scripted(*answers), TURN, Visit(due_s=0.0, turns=(TURN,)), due_s=0.0)
    outcome = await listener.listen(until_s=float("inf"))
    assert outcome is wanted
    return listener.record(0, 0, outcome)


@pytest.mark.parametrize("loud", [-32_768, -329, 329, 32_767])
async def test_silence_before_the_first_audible_sample_counts(loud: int) -> None:
    quiet, begins = samples((0, 240), (328, 240)), samples((-328, 120), (loud, 1), (0, 119))
    record = await told(quiet, begins, samples((loud, 240)), Ended())
    assert [num_48k for _, num_48k in record.arrivals] == [960, 480, 480]
    assert record.audible_48k == 960 + 240


async def test_sound_from_the_first_sample_on_is_audible_there() -> None:
    assert (await told(samples((1_000, 240)), Ended())).audible_48k == 0


async def test_nothing_is_known_of_coded_audio() -> None:
    assert (await told(Chunk(num_48k=960), Ended())).audible_48k is None


@pytest.mark.parametrize(
    ("answers", "message"),
    [((), "no audio"), ((Chunk(num_48k=0),), "no audio"), ((samples((0, 240), (328, 240)),), "silence")],
)
async def test_who_hears_nothing_to_the_end_was_failed(answers: tuple[Chunk, ...], message: str) -> None:
    record = await told(*answers, Ended(), wanted=Outcome.FAILED)
    assert message in record.message
    row = figures([record], window_s=(record.due_s, record.ended_s))
    assert (row["first_audio_ms"], row["outcomes"]["failed"]) == (None, 1)
