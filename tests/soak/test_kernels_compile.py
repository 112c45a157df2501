"""Kernels of LLM, flows and vocoders through Triton's real compiler, for a GPU that need not be here."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
]

KERNELS = {
    *("project_input_kernel", "norm_kernel", "attend_kernel", "merge_kernel", "linear_kernel", "norm_taps_kernel"),
    *("mish_taps_kernel", "euler_kernel"),
    *("positional_conv_kernel", "gather_context_kernel"),
    *("embed", "sample", "project_qkv", "attend", "project_residual", "project_gate_up", "project_scores"),
    *("zero_edges_kernel", "conv_kernel", "join_kernel", "synthesis_kernel"),
}


@pytest.mark.parametrize("gpu", ["hopper", "ada"])
def test_all_of_a_step_and_a_call_compile(gpu: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.kernel_compiler", gpu],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert {line.partition(":")[0] for line in ended.stdout.splitlines()} == KERNELS
