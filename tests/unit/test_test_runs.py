"""How tests are run: what each run takes, what it leaves out, and what it must not write."""

import re
import subprocess
import sys
from pathlib import Path

from tests import conftest
from tests.distribution import next_scope

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


def test_a_worker_takes_its_own_kind_first_and_then_the_other() -> None:
    scopes = ["tests/packaging/", "tests/browser/test_page.py", "tests/parity/test_vocoder.py", "tests/unit/test_a.py"]
    assert next_scope(scopes, waiting=True) == "tests/packaging/"
    assert next_scope(scopes, waiting=False) == "tests/parity/test_vocoder.py"
    assert next_scope(scopes[:2], waiting=False) is None
