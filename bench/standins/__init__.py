"""Models that compute nothing, for the benches and the tests: slots, memory and borders are the real ones.

What they make tells its tokens, so that one that is lost or said twice shows. Their steps take what `Costs` says.
"""

from typing import Protocol

from voicegate.engine.device.lanes import HOST_LANE, Lane


class Costs(Protocol):
    """Called before a step's mark is set: a simulated device launches the time that the step takes on its lane."""

    @property
    def llm_lane(self) -> Lane: ...

    @property
    def token2wav_lane(self) -> Lane: ...

    def llm_step(self, num_rows: int, num_lines: int) -> None:
        """`num_lines`: of prompts and readings, fed in the same pass."""

    def euler_step(self, num_frames: int) -> None: ...

    def vocoder_call(self, num_rows: int) -> None: ...


class NoCosts:
    """A step is done when its launch returns."""

    llm_lane = HOST_LANE
    token2wav_lane = HOST_LANE

    def llm_step(self, num_rows: int, num_lines: int) -> None:
        pass

    def euler_step(self, num_frames: int) -> None:
        pass

    def vocoder_call(self, num_rows: int) -> None:
        pass


NO_COSTS = NoCosts()
