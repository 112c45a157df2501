"""Fixtures that several of these tests share."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.unit.clients.deadline import deadline
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """URL of a gateway over a FakeEngine, with the settings as shipped."""
    async with running_gateway(GatewayConfig(), FakeEngine()) as url:
        yield url


@pytest.fixture
def no_hang() -> Iterator[None]:
    """For tests of clients, whose own waiting has no end where a server does not answer."""
    with deadline():
        yield
