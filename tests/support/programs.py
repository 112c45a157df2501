"""Programs beside Python that some tests run: deploy/setup_programs.sh."""

import os
import shutil

import pytest


def required(name: str) -> str:
    """The program's path. Where it is not installed the test is skipped, but in CI it fails."""
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if path is None and os.environ.get("CI"):
        pytest.fail(f"CI has to have {name}: deploy/setup_programs.sh installs it")
    if path is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    return path
