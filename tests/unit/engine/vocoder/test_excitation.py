"""The excitation table is upstream's, bit for bit, whatever its length and however it is drawn."""

import hashlib

import pytest
import torch

from voicegate.engine.vocoder.excitation import MAX_ROWS, NUM_COLUMNS, project, upstream_excitation


def test_whole_table_is_upstreams() -> None:
    digest = hashlib.sha256()
    for block in upstream_excitation(MAX_ROWS):
        digest.update(block.numpy().tobytes())
    assert digest.hexdigest() == "2f60f92217f65e9f2728d4e662f520432603d88e7a24f78666cc88bb76247f61"


@pytest.mark.parametrize("rows_per_block", [1, 7, 1000])
def test_blocks_are_a_prefix_of_the_table(rows_per_block: int) -> None:
    (whole,) = upstream_excitation(5000)
    blocks = list(upstream_excitation(100, rows_per_block=rows_per_block))
    assert all(len(block) <= rows_per_block for block in blocks)
    assert torch.equal(torch.cat(blocks), whole[:100])


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    list(upstream_excitation(10))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("num_rows", [-1, MAX_ROWS + 1])
def test_rows_beyond_the_table_are_refused(num_rows: int) -> None:
    with pytest.raises(ValueError, match="excitation rows"):
        next(upstream_excitation(num_rows))


def test_projection_is_the_merge_of_each_row() -> None:
    weight = torch.randn(NUM_COLUMNS, generator=torch.Generator().manual_seed(1))
    (table,) = upstream_excitation(50)
    assert torch.allclose(project(upstream_excitation(50, rows_per_block=8), weight), table @ weight)
    assert project(iter(()), weight).shape == (0,)
