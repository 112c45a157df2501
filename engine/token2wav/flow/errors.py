"""What the flow refuses. A refusal leaves every stream as it was.

FlowError
  BlocksExhausted    the block pool has too few free blocks
  StreamsExhausted   all streams that the runner was built for are open
  LanesExhausted     as many batches run as the CUDA path has buffers for
  StreamTooLong      prompt and tokens pass the end of the noise buffer
"""


class FlowError(Exception):
    """Base of the refusals above."""


class BlocksExhausted(FlowError):
    def __init__(self, *, wanted: int, free: int) -> None:
        super().__init__(f"{wanted} blocks wanted, {free} free: close streams or build the flow with more blocks")
        self.wanted = wanted
        self.free = free


class StreamsExhausted(FlowError):
    pass


class LanesExhausted(FlowError):
    pass


class StreamTooLong(FlowError):
    pass
