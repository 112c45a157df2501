"""`voicegate keys`: the one time that a key is shown, and what the file keeps."""

from pathlib import Path

import pytest

from voicegate.gateway.auth.key_file import read_keys
from voicegate.gateway.auth.keyring import Allowance
from voicegate.gateway.cli import main

Captured = pytest.CaptureFixture[str]


def test_add_list_remove(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    monkeypatch.setenv("VOICEGATE_API_KEYS_FILE", str(path))
    assert main.run(["keys", "add", "ann", "--sockets", "3", "--utterances", "2"]) == 0
    (secret,) = capsys.readouterr().out.splitlines()
    assert secret not in path.read_text()
    key = read_keys(path).find(secret)
    assert key is not None
    assert (key.name, key.allowance) == ("ann", Allowance(sockets=3, utterances=2))
    assert main.run(["keys", "add", "ben", "--api-keys-file", str(path)]) == 0
    capsys.readouterr()
    assert main.run(["keys", "list"]) == 0
    assert capsys.readouterr().out == "ann  sockets 3, utterances 2\nben\n"
    assert main.run(["keys", "remove", "ann"]) == 0
    assert read_keys(path).find(secret) is None
    assert "SIGHUP" in capsys.readouterr().err


def test_errors_are_one_line(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICEGATE_API_KEYS_FILE", raising=False)
    for arguments, message in (
        (["list"], "no file is named"),
        (["add", "a b", "--api-keys-file", str(tmp_path / "keys")], "is no name of a key"),
        (["remove", "ann", "--api-keys-file", str(tmp_path / "keys")], "No such file"),
        (["add", "ann", "--api-keys-file", str(tmp_path / "none" / "keys")], "there is no directory"),
    ):
        assert main.run(["keys", *arguments]) == main.EXIT_FAILED
        shown = capsys.readouterr().err
        assert message in shown
        assert shown.count("\n") == 1
    with pytest.raises(SystemExit):
        main.run(["keys", "add", "ann", "--api-keys-file", str(tmp_path / "keys"), "--sockets", "0"])
    assert not (tmp_path / "keys").exists()
