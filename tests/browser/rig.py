"""A nearly blank page of a gateway, and in it a player whose output is recorded, sample by sample."""

import base64
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import numpy.typing as npt
from playwright.async_api import Page

from tests.integration.wire_client import Heard, connect_to
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway

Samples = npt.NDArray[np.float32]


def origin_of(url: str) -> str:
    """The origin of the pages, given the stream's."""
    return "http://" + url.removeprefix("ws://").partition("/")[0]


@contextlib.asynccontextmanager
async def serving(script: Script | None = None, **settings: Any) -> AsyncIterator[tuple[str, FakeEngine]]:
    """A gateway's origin, and the engine behind it."""
    engine = FakeEngine(script)
    async with running_gateway(GatewayConfig(**settings), engine) as url:
        yield origin_of(url), engine


async def reference(text: str, script: Script | None = None) -> Heard:
    """The first context of a gateway of its own: the same bytes as the first that a browser hears."""
    async with running_gateway(GatewayConfig(), FakeEngine(script)) as url, connect_to(url) as client:
        await client.speak("reference", text)
        return await client.until_done("reference")


class Rig:
    def __init__(self, page: Page) -> None:
        self.page = page

    @classmethod
    async def create(cls, page: Page, origin: str, **options: Any) -> "Rig":
        """`options` are the Player's, and `sampleRate` of its AudioContext."""
        await page.goto(f"{origin}/healthz")
        await page.mouse.click(5, 5)  # sound may start from here on
        await page.evaluate(
            """async (options) => {
                window.harness = await import("/test/harness.js");
                window.rig = await harness.createRig(options);
            }""",
            options,
        )
        return cls(page)

    async def run(self, script: str, argument: Any = None) -> Any:
        """`script`: the body of an async function of `player`, `rig`, `harness` and `argument`."""
        return await self.page.evaluate(
            f"async (argument) => {{ const {{rig, harness}} = window, {{player}} = rig; {script} }}", argument
        )

    async def recording(self) -> Samples:
        """From the first sample that was not silence."""
        await self.run("await harness.settle(rig)")
        return floats(await self.run("return harness.recordingOf(rig)"))


def floats(encoded: str) -> Samples:
    """Floats that harness.encodeFloats gives."""
    return np.frombuffer(base64.b64decode(encoded), np.float32)


def snr_db(expected: Samples, heard: Samples) -> float:
    """Signal to noise; both from their first sample, `heard` may go on longer. Infinite where they are equal."""
    assert len(heard) >= len(expected)
    noise = heard[: len(expected)] - expected
    if not noise.any():
        return math.inf
    return float(10 * np.log10(np.sum(np.square(expected, dtype=float)) / np.sum(np.square(noise, dtype=float))))
