"""The tables of readings: well formed, and read right to the share that is reached."""

import pytest

from voicegate.bench.readings import languages, load

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("language", languages())
def test_tables_are_well_formed(language: str) -> None:
    rows = load(language)
    assert len({row.text for row in rows}) == len(rows)
    for row in rows:
        assert all((row.text.strip(), *map(str.strip, row.spoken), row.domain, row.source)), row
