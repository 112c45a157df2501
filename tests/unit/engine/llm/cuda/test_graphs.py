"""Which sizes are run at start-up, and in which order."""

from typing import cast

from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.graphs import BucketedBody


class RecordingBody:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def fill_with_padding(self) -> None:
        self.calls.append(("padding", 0))

    def run(self, num_lines: int) -> None:
        self.calls.append(("lines", num_lines))

    def sample(self, num_samples: int) -> None:
        self.calls.append(("samples", num_samples))


def test_every_size_is_run_once_the_largest_first_and_with_padding_alone() -> None:
    body = RecordingBody()
    buckets = BucketedBody(cast(DecoderBody, body), line_buckets=(1, 4, 16), num_slots=3, stream=None, is_eager=True)
    seen: list[int] = []
    buckets.graphs.compile(lambda: seen.append(len(body.calls)))
    assert len(seen) == buckets.graphs.num_buckets == 7
    assert seen == sorted(set(seen)), "after each"
    steps = [("lines", 4), ("samples", 4), ("lines", 1), ("samples", 1)]
    alone = [("samples", 4), ("samples", 1), ("lines", 16), ("lines", 4), ("lines", 1)]
    assert body.calls.count(("padding", 0)) == 7, "before each"
    assert [call for call in body.calls if call[0] != "padding"] == [*steps, *alone]
