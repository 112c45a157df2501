"""Conditions of every LLM test."""

from collections.abc import Iterator

import pytest

from tests.unit.engine.llm.support import one_thread


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
