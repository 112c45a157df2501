"""The block pool: references, all-or-nothing allocation, reuse, poison."""

import pytest
import torch

from tests.support.flow import CPU, flow_config
from voicegate.engine.flow.backend import BlocksExhausted
from voicegate.engine.flow.block_pool import BlockPool, bytes_per_block


def make_pool(num_blocks: int = 4, *, poison: bool = False) -> BlockPool:
    return BlockPool(
        flow_config().estimator, num_steps=2, num_blocks=num_blocks, device=CPU, dtype=torch.float32, poison=poison
    )


def test_allocates_distinct_blocks_until_empty() -> None:
    pool = make_pool()
    blocks = pool.allocate(3) + pool.allocate(1)
    assert sorted(blocks) == [0, 1, 2, 3]
    assert pool.num_free == 0


def test_allocation_is_all_or_nothing() -> None:
    pool = make_pool()
    pool.allocate(2)
    with pytest.raises(BlocksExhausted, match="3 blocks wanted, 2 free") as caught:
        pool.allocate(3)
    assert (caught.value.wanted, caught.value.free) == (3, 2)
    assert pool.num_free == 2


def test_a_block_is_free_when_its_last_reference_goes() -> None:
    pool = make_pool()
    blocks = pool.allocate(2)
    pool.retain(blocks)
    pool.release(blocks)
    assert pool.num_free == 2
    pool.release(blocks[:1])
    assert pool.num_free == 3
    pool.release(blocks[1:])
    assert pool.num_free == 4


def test_the_block_freed_last_is_reused_first() -> None:
    pool = make_pool()
    first, second = pool.allocate(2)
    pool.release([second])
    pool.release([first])
    assert pool.allocate(2) == [first, second]


def test_releasing_a_free_block_is_caught() -> None:
    pool = make_pool()
    (block,) = pool.allocate(1)
    pool.release([block])
    with pytest.raises(AssertionError, match="free already"):
        pool.release([block])


def test_poison_fills_free_blocks_and_nothing_else() -> None:
    pool = make_pool(poison=True)
    assert pool.keys_values.isnan().all()
    assert pool.tails[: pool.before_first].isnan().all()
    kept, freed = pool.allocate(2)
    pool.keys_values[[kept, freed]] = 1.0
    pool.tails[[kept, freed]] = 1.0
    pool.release([freed])
    assert pool.keys_values[freed].isnan().all()
    assert pool.tails[freed].isnan().all()
    assert (pool.keys_values[kept] == 1).all()
    assert (pool.tails[pool.before_first] == 0).all()


def test_bytes_per_block_is_what_a_block_takes() -> None:
    pool = make_pool(num_blocks=3)
    taken = (pool.keys_values[0].numel() + pool.tails[0].numel()) * 4
    assert bytes_per_block(flow_config().estimator, num_steps=2, dtype=torch.float32) == taken
