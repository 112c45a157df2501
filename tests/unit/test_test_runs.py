"""How tests are run: what each run takes, what it leaves out, and what it must not write."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_results_of_long_runs_are_written_by_make_soak_alone() -> None:
    assert not hasattr(conftest, "pytest_runtest_makereport")
    (recipe,) = re.findall(r"^soak:.*\n\t(.*)", MAKEFILE, re.MULTILINE)
    assert "-p tests.soak.keeping -m soak" in recipe


def test_tests_start_without_torch() -> None:
    code = "import sys, tests.conftest; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_what_make_check_leaves_out_is_there() -> None:
    (listed,) = re.findall(r"^SLOW := ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    patterns = listed.replace("\\\n", " ").split()
    assert len(patterns) > 10
    assert [pattern for pattern in patterns if not list((ROOT / "tests" / "unit").glob(pattern))] == []
