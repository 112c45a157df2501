"""What the vocoder refuses. A refusal leaves every stream as it was.

VocoderError
  VocoderStreamsExhausted   all streams that the runner was built for are open
  VocoderStreamTooLong      a stream passes the samples that the runner was built for
  VocoderStreamEnded        a job for a stream that is closed or has had its final job
"""


class VocoderError(Exception):
    """Base of the refusals above."""


class VocoderStreamsExhausted(VocoderError):
    pass


class VocoderStreamTooLong(VocoderError):
    pass


class VocoderStreamEnded(VocoderError):
    pass
