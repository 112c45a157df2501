"""With Ray's packages, run by test_ray_serve.py: two replicas of the tiny model, and what clients hear of them."""

import asyncio
import json
import sys
from typing import Any
from urllib.request import Request, urlopen

import ray
from ray import serve
from voicegate_serve import VoiceGateway

from tests.support.ports import reserved_port
from voicegate.clients.python.client import connect
from voicegate.clients.python.errors import ConnectFailed

TEXTS = ("Good morning.", "It rains.", "Good night.")


async def speak(url: str, text: str) -> dict[str, Any]:
    async with connect(url) as gate:
        context = await gate.open(seed=1)
        await context.say(text)
        await context.end()
        packets = [packet.hex() async for audio in context for packet in audio.packets]
        assert context.result is not None
        return {
            "packets": packets,
            "told": getattr(context.result, "packets", None),
            "resume_seconds": gate.ready.limits.resume_seconds,
        }


async def refused(url: str) -> str:
    try:
        async with connect(f"{url}/nowhere"):
            return "it was let in"
    except ConnectFailed as error:
        return str(error)


async def hear(url: str) -> dict[str, Any]:
    alone = await speak(url, TEXTS[0])
    together = await asyncio.gather(*(speak(url, text) for text in (*TEXTS, *TEXTS)))
    return {"alone": alone, "together": together, "refused": await refused(url)}


def main() -> None:
    with reserved_port() as port:
        json.dump(heard_through_ray(port), sys.stdout)


def heard_through_ray(port: int) -> dict[str, Any]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        replicas = VoiceGateway.options(
            num_replicas=2, autoscaling_config=None, ray_actor_options={"num_gpus": 0, "num_cpus": 1}
        )
        serve.run(replicas.bind({"VOICEGATE_DEVICE": "cpu", "VOICEGATE_THREADS": "1"}), route_prefix="/")
        heard = asyncio.run(hear(f"ws://127.0.0.1:{port}"))
        with urlopen(f"http://127.0.0.1:{port}/v1/capacity", timeout=30) as answer:
            heard["capacity"] = json.load(answer)
        asked = json.dumps({"model": "tts-1", "voice": "woman", "input": TEXTS[0], "response_format": "wav"}).encode()
        speech = Request(
            f"http://127.0.0.1:{port}/v1/audio/speech", asked, headers={"Content-Type": "application/json"}
        )
        with urlopen(speech, timeout=60) as answer:
            heard["wav"] = answer.read()[:4].decode()
        (application,) = serve.status().applications.values()
        (deployment,) = application.deployments.values()
        heard["replicas"] = dict(deployment.replica_states)
    finally:
        serve.shutdown()
        ray.shutdown()
    return heard


if __name__ == "__main__":
    main()
