"""All tests here compile decode.c, or have it compiled."""

import pytest

from tests.support.programs import required


@pytest.fixture(autouse=True, scope="session")
def compiler() -> str:
    return required("gcc")
