"""Where the library comes from, and that whatever is wrong with a compiler or a folder ends in NoLibrary."""

import os
import subprocess
import sys
from ctypes import CDLL
from pathlib import Path

import pytest

from tests.unit.engine.llm.cpu.support import VECTORS
from voicegate.engine.llm.cpu import library
from voicegate.engine.llm.cpu.library import NoLibrary, compile_into, load_library

pytestmark = pytest.mark.skipif(not VECTORS, reason="decode.c is not written for this processor")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; where the library will be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "voicegate"


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def held(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def test_it_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(load_library(), CDLL)
    (name,) = held(folder)
    assert folder.stat().st_mode & 0o077 == 0
    made = (folder / name).stat().st_mtime_ns
    monkeypatch.setenv("CC", "false")
    assert hasattr(load_library(), "decode_avx2")
    assert (folder / name).stat().st_mtime_ns == made


def test_one_that_was_shipped_is_preferred(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    source = shipped / "decode.c"
    source.write_bytes(library.SOURCE.read_bytes())
    subprocess.run([sys.executable, "-m", library.__name__, str(shipped)], check=True)
    monkeypatch.setattr(library, "SOURCE", source)
    monkeypatch.setenv("CC", "false")
    load_library()
    assert held(folder) == []
    source.write_text("int nothing;")  # of another version
    with pytest.raises(NoLibrary, match="failed"):
        load_library()


def test_a_file_that_is_no_library_is_made_again(folder: Path) -> None:
    path = compile_into(folder)
    path.write_bytes(b"")
    assert isinstance(load_library(), CDLL)
    assert path.stat().st_size > 0


def test_two_processes_may_begin_at_once(folder: Path) -> None:
    command = [sys.executable, "-c", f"import {library.__name__} as it; it.load_library()"]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(held(folder)) == 1


def test_no_compiler(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NoLibrary, match="no C compiler: 'cc' cannot be run"):
        load_library()
    for named in (str(tmp_path / "missing"), str(tmp_path), "'"):
        monkeypatch.setenv("CC", named)
        with pytest.raises(NoLibrary, match="no C compiler"):
            load_library()
    assert held(folder) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo in file; echo 'decode.c:14: fatal error: no immintrin.h'; exit 2", r"failed \(2\): .*no immintrin.h"),
        ("exit 1", r"failed \(1\): it said nothing"),
        ("kill -9 $$", r"failed \(-9\)"),
        ("echo said 'hello'", r"cannot be written to \(No such file"),
    ],
)
def test_a_compiler_that_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    monkeypatch.setenv("CC", program(tmp_path / "cc", script))
    with pytest.raises(NoLibrary, match=message):
        load_library()
    assert held(folder) == []


def test_a_compiler_that_makes_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'for last; do [ "$before" = -o ] && echo nonsense > "$last"; before=$last; done'
    monkeypatch.setenv("CC", program(tmp_path / "cc", script))
    with pytest.raises(NoLibrary, match="cannot be loaded"):
        load_library()


def test_a_compiler_may_have_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -g0")
    assert isinstance(load_library(), CDLL)
    assert len(held(folder)) == 1


def test_a_compiler_that_hangs_is_ended_with_all_that_it_started(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child has the other end of `lives` open for writing as long as it lives."""
    lives = tmp_path / "lives"
    os.mkfifo(lives)
    monkeypatch.setenv("CC", program(tmp_path / "cc", f"sleep 600 > {lives} & wait"))
    monkeypatch.setattr(library, "_PATIENCE_S", 0.5)
    reader = os.open(lives, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(NoLibrary, match=r"has not ended after 0\.5 s"):
            load_library()
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b"", "nobody has it open any more"
    finally:
        os.close(reader)
    assert held(folder) == []


def test_a_cache_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in its place, which stops root too."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(NoLibrary, match="cannot be written to"):
        load_library()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative, which the specification has ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "cache"))
    with pytest.raises(NoLibrary, match=r"cache/\.cache/voicegate cannot be written to"):
        load_library()


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(NoLibrary, match="no home: set XDG_CACHE_HOME"):
        load_library()


def test_other_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A build stage makes none, and goes on."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(NoLibrary, match="aarch64"):
        load_library()
    monkeypatch.setattr(sys, "argv", ["library", str(tmp_path / "none")])
    assert library.main() == 0
    assert not (tmp_path / "none").exists()
    assert "aarch64" in capsys.readouterr().err


def test_a_build_stage_fails_where_its_compiler_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "false")
    monkeypatch.setattr(sys, "argv", ["library", str(tmp_path)])
    assert library.main() == 1
    assert "'false' failed" in capsys.readouterr().err
