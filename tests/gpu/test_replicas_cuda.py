"""`serve --gpus` on the GPUs there are, two at most: equal speech from each, and from one that replaces another."""

import os
import signal

import pytest
import torch

from tests.contract.listener import Listener
from tests.support.polling import until
from voicegate.engine.interface import AudioFormat, Codec, Done, Failed, SpeakingMode
from voicegate.engine.process.front import RoutingEngine
from voicegate.gateway.cli.replicas import sites_of
from voicegate.gateway.config import GatewayConfig

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

TEXT = "Good morning, and welcome back. The train to the coast leaves at nine."
PCM = AudioFormat(codec=Codec.PCM_S16LE)
START_S = 300.0  # every kernel may have to be compiled


async def test_each_gpu_speaks_and_one_that_was_killed_speaks_again() -> None:
    num_gpus = min(torch.cuda.device_count(), 2)
    gpus = ",".join(map(str, range(num_gpus)))
    config = GatewayConfig(gpus=gpus, max_active_clauses=24, log_level="error")
    engine = RoutingEngine(sites_of(config, os.environ))
    await engine.start()
    listener = Listener(engine, timeout_s=60.0)
    try:
        before = await spoken_by_each(listener, "before", num_gpus)
        assert len(set(before)) == 1
        (first, *_) = engine._serving
        pid = engine._keepers[0].pid
        assert pid is not None
        lost = listener.submit("lost", text=TEXT)
        while first.num_placed == 0:
            await listener.next()
        os.kill(pid, signal.SIGKILL)
        assert isinstance(await listener.until_end(lost), Failed)
        await until(lambda: len(engine._serving) == num_gpus and first not in engine._serving, timeout_s=START_S)
        assert await spoken_by_each(listener, "after", num_gpus) == before
    finally:
        await engine.close()


async def spoken_by_each(listener: Listener, name: str, num_gpus: int) -> list[int]:
    """Samples of the same text, said by as many at once as there are GPUs: one goes to each."""
    said = {"text": TEXT, "end": True, "audio": PCM, "mode": SpeakingMode.CLAUSE}
    utterances = [listener.submit(f"{name}-{number}", **said) for number in range(num_gpus)]
    ends = [await listener.until_end(utterance) for utterance in utterances]
    assert all(isinstance(end, Done) for end in ends)
    return [sum(map(len, listener.packets(utterance))) // 2 for utterance in utterances]
