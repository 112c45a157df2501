"""The wall clock is set while speech runs, forwards, backwards and to 1970: nobody hears it, and no deadline moves."""

import time
from itertools import cycle

import pytest

from tests.integration.wire_client import serving
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

JUMPS_S = (3600.0, -3600.0, 86_400.0 * 365, -1e9, 0.0)


async def test_a_wall_clock_that_jumps_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "it is later than you think. " * 4
    pcm = wire.Format(codec="pcm_s16le")
    script = Script(real_time_factor=0.05, chunk_ms=60)
    async with serving(script, context_idle_s=1.0, waiting_s=0.5) as served, served.client() as client:
        await client.speak("before", text, format=pcm)
        before = (await client.until_done("before")).packets
        real_time, jumps = time.time, cycle(JUMPS_S)
        monkeypatch.setattr(time, "time", lambda: real_time() + next(jumps))
        await client.send(wire.Open(context="idle"))
        await client.speak("amid", text, format=pcm)
        amid = (await client.until_done("amid")).packets
        assert sum(map(len, amid)) == sum(map(len, before))
        while not (told := [each for each in client.heard["idle"][0].messages if isinstance(each, wire.Error)]):
            await client.receive()  # a busy machine may have been told long ago
        assert [each.code for each in told] == ["expired"], "by the time that has passed, and no other"
