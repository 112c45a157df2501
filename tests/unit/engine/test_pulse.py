"""When an engine is said to hang: silence while it has work, and nobody else's fault."""

from voicegate.engine.pulse import LOOK_S, PulseWatch

LIMIT_S = 2.0
NUM_LOOKS = round(LIMIT_S / LOOK_S)


def looks(watch: PulseWatch, pulses: list[int | None], *, every_s: float = LOOK_S) -> list[bool]:
    return [watch.look(pulse, 100.0 + (n + 1) * every_s) for n, pulse in enumerate(pulses)]


def test_the_same_pulse_for_the_limit_is_a_hang_and_a_new_one_ends_it() -> None:
    heard = looks(PulseWatch(LIMIT_S), [7] * (NUM_LOOKS + 3) + [8])
    assert heard == [False] * (NUM_LOOKS - 2) + [True] * 5 + [False]


def test_it_is_told_within_the_limit_whenever_the_last_step_was() -> None:
    """Between two looks it may have come right behind the first, or right before the second."""
    heard = looks(PulseWatch(LIMIT_S), [6] + [7] * NUM_LOOKS)
    assert LIMIT_S - LOOK_S <= LOOK_S * heard.index(True) <= LIMIT_S


def test_an_engine_that_rests_or_gets_on_does_not_hang() -> None:
    assert not any(looks(PulseWatch(LIMIT_S), [None] * 10 * NUM_LOOKS))
    assert not any(looks(PulseWatch(LIMIT_S), [n // (NUM_LOOKS - 2) for n in range(10 * NUM_LOOKS)]))
    assert not any(looks(PulseWatch(LIMIT_S), [None if n % NUM_LOOKS == 0 else 7 for n in range(10 * NUM_LOOKS)]))


def test_a_process_that_was_stopped_is_no_engine_that_hangs() -> None:
    assert not any(looks(PulseWatch(LIMIT_S), [7, 7, 7], every_s=3600.0))
