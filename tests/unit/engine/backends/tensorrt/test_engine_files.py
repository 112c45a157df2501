"""Engines on disk: whole or not there, and taken for nothing that they were not built for."""

import fcntl
import json
from dataclasses import replace
from pathlib import Path

import pytest

from voicegate.engine.backends.tensorrt.engine_files import EngineFiles, EngineFilesError, Fingerprint

WANTED = Fingerprint("1", "a" * 64, "float16", "10.14.1", "H200, sm 9.0")


@pytest.fixture
def files(tmp_path: Path) -> EngineFiles:
    made = EngineFiles(tmp_path / "tensorrt", "vocoder")
    with made.being_built():
        assert made.keep("one", b"first plan", WANTED) == 10
        made.keep("two", memoryview(b"second plan"), WANTED)
    return made


def test_what_was_kept_is_read(files: EngineFiles) -> None:
    assert files.are_there()
    files.check(["one", "two"], WANTED)
    assert [files.read("one"), files.read("two")] == [b"first plan", b"second plan"]
    assert files.is_whole("one", WANTED)
    assert not list(files.directory.glob("*.partial"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensorrt": "11.0.0"}, "tensorrt 10.14.1 then, 11.0.0 now"),
        ({"gpu": "L4"}, r"gpu H200, sm 9\.0 then, L4 now"),
        ({"model": "b" * 64}, "model aaaaaaaaaaaa then, bbbbbbbbbbbb now"),
        ({"precision": "bfloat16", "graph": "2"}, "graph 1 then, 2 now; precision float16 then, bfloat16 now"),
    ],
)
def test_stale_ones_are_not_taken(files: EngineFiles, change: dict[str, str], message: str) -> None:
    wanted = replace(WANTED, **change)
    with pytest.raises(EngineFilesError, match=rf"stale \({message}\): run `voicegate build`"):
        files.check(["one"], wanted)
    assert not files.is_whole("one", wanted)
    files.keep("three", b"plan", wanted)
    assert {path.name for path in files.directory.glob("*.engine")} == {"three.engine"}, "the stale ones are gone"
    files.check(["three"], wanted)


def test_each_part_has_its_own(files: EngineFiles) -> None:
    flow = EngineFiles(files.directory, "flow")
    assert not flow.are_there()
    with pytest.raises(EngineFilesError, match="no engines of the flow in"):
        flow.check(["step"], WANTED)
    flow.keep("step", b"third plan", replace(WANTED, precision="bfloat16"))
    flow.keep("next", b"fourth plan", WANTED)
    assert flow.are_there()
    assert flow.is_whole("next", WANTED)
    assert not (files.directory / "step.engine").exists(), "stale"
    assert files.is_whole("one", WANTED)
    assert files.is_whole("two", WANTED)


def test_a_shape_that_was_not_built(files: EngineFiles) -> None:
    with pytest.raises(EngineFilesError, match="lacks 2 engines, such as three"):
        files.check(["one", "three", "four"], WANTED)


@pytest.mark.parametrize("content", [b"first pla", b"", b"first plan!"])
def test_a_torn_engine(files: EngineFiles, content: bytes) -> None:
    (files.directory / "one.engine").write_bytes(content)
    with pytest.raises(EngineFilesError, match=r"one\.engine is torn"):
        files.read("one")
    assert not files.is_whole("one", WANTED)
    assert files.is_whole("two", WANTED)


def test_an_engine_that_is_gone(files: EngineFiles) -> None:
    (files.directory / "one.engine").unlink()
    with pytest.raises(EngineFilesError, match=r"one\.engine cannot be read \(No such file"):
        files.read("one")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"vocoder": {"fingerprint": {}, "engines": {}}}',
        '{"fingerprint": {"graph": "1"}, "engines": {}}',
    ],
)
def test_a_torn_manifest(files: EngineFiles, content: str) -> None:
    (files.directory / "manifest.json").write_text(content)
    with pytest.raises(EngineFilesError, match=r"manifest\.json is torn, or of another version"):
        files.check(["one"], WANTED)
    assert files.are_there(), "it is told, not taken for none"
    files.keep("one", b"plan", WANTED)
    assert files.read("one") == b"plan"


def test_a_manifest_that_lists_engines_in_another_way(files: EngineFiles) -> None:
    path = files.directory / "manifest.json"
    found = json.loads(path.read_text())
    found["vocoder"]["engines"] = ["one"]
    path.write_text(json.dumps(found))
    with pytest.raises(EngineFilesError, match="is torn"):
        files.check(["one"], WANTED)


def test_nothing_is_there(tmp_path: Path) -> None:
    files = EngineFiles(tmp_path, "vocoder")
    assert not files.are_there()
    with pytest.raises(EngineFilesError, match=r"no engines of the vocoder in .*: run `voicegate build`"):
        files.check(["one"], WANTED)


def test_one_builds_at_a_time(files: EngineFiles) -> None:
    with (files.directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EngineFilesError, match="another process builds"), files.being_built():
            pass
    with files.being_built():
        pass
