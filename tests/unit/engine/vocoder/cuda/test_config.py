"""Buckets and tiles are chosen from tables; what does not fit is refused by name."""

import pytest

from voicegate.engine.vocoder.cuda.config import PRECISIONS, Tile, VocoderCudaConfig


@pytest.mark.parametrize("buckets", [(), (0, 1), (2, 2), (4, 1)])
@pytest.mark.parametrize("name", ["batch_buckets", "frame_buckets"])
def test_bad_buckets_are_named(name: str, buckets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=name):
        VocoderCudaConfig(**{name: buckets})


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(ValueError, match="'int8'"):
        VocoderCudaConfig(precision="int8")


def test_the_smallest_bucket_that_holds_it() -> None:
    config = VocoderCudaConfig(batch_buckets=(1, 4), frame_buckets=(8, 50))
    assert [config.batch_bucket(rows) for rows in (1, 2, 4)] == [1, 4, 4]
    assert [config.frame_bucket(frames) for frames in (0, 8, 9, 50)] == [8, 8, 50, 50]
    assert (config.max_batch, config.max_frames) == (4, 50)


def test_the_tile_that_keeps_a_multiprocessor_busy_for_the_shortest_time() -> None:
    large, small = Tile(128, 128, 8, 3, 1.0), Tile(64, 32, 4, 4, 0.3)
    config = VocoderCudaConfig(tiles=(large, small), num_multiprocessors=10)
    assert config.tile(num_columns=128, num_outputs=128, num_products=1) == small  # 1 program of 10, or 8 small ones
    assert config.tile(num_columns=1280, num_outputs=128, num_products=1) == large  # 1 each, or 8 small ones
    assert config.tile(num_columns=1, num_outputs=128, num_products=10) == large  # as many, of less use
    assert config.tile(num_columns=12800, num_outputs=96, num_products=1) == small  # nothing else fits


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("num_outputs", [32, 64, 640, 192])
def test_every_precision_has_a_tile_for_any_outputs(precision: str, num_outputs: int) -> None:
    config = VocoderCudaConfig(precision=precision)
    for num_columns in (8, 400, 6721):
        tile = config.tile(num_columns=num_columns, num_outputs=num_outputs, num_products=1)
        assert num_outputs % tile.outputs == 0
