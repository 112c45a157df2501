"""Where a conversion writes: links, mount points, the disk, another run at the same time, and its owner's voices."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.support.upstream_source import RecordedProgress, make_source
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.pace import VoicePace
from voicegate.engine.voices.voice import save_pace

VERIFIED = {"was done, verified"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("upstream") / "Fun-Small")


@pytest.fixture(autouse=True)
def _no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the excitation takes a second; test_constants does it."""
    monkeypatch.setattr(constants, "check_excitation", lambda _: True)


def converted(source: Path, target: Path, merged_hf_dir: Path | None = None) -> dict[str, str]:
    progress = RecordedProgress()
    convert(source, target, ConvertOptions(merged_hf_dir=merged_hf_dir), progress)
    return progress.outcomes


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_to_a_directory_stays_one(made: Path, tmp_path: Path, is_there: bool) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    if is_there:
        there.mkdir()
    link.symlink_to(there)
    converted(made, link)
    assert link.is_symlink()
    assert load_model_config(there).name == "Fun-Small"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]
    assert set(converted(made, link).values()) == VERIFIED


def test_a_mount_point_is_refused_before_anything_is_written(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mount"
    target.mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: path == target)
    told = f"^{target} is a mount point, .*: name a directory in it, such as {target}/model$"
    with pytest.raises(CheckpointError, match=told):
        converted(made, target)
    with pytest.raises(CheckpointError, match=told):
        converted(made, tmp_path / "model", merged_hf_dir=target)
    assert list(tmp_path.iterdir()) == [target]


def test_what_was_made_elsewhere_and_is_mounted_is_verified(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted(made, tmp_path / "model")
    monkeypatch.setattr("os.path.ismount", lambda _: True)
    assert set(converted(made, tmp_path / "model").values()) == VERIFIED


def test_the_root_is_no_place_for_a_model(made: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^/ is no place for a model: name a directory"):
        converted(made, Path("/"))


def test_room_is_counted_on_the_disk_that_is_written_to(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    usage, asked = shutil.disk_usage(tmp_path), list[Path]()

    def noted(path: Path) -> object:
        asked.append(path)
        return usage

    monkeypatch.setattr("shutil.disk_usage", noted)
    converted(made, tmp_path / "model")
    assert asked == [tmp_path], "DST.partial will be in it"


def test_the_second_of_two_at_a_time_says_so_and_harms_nothing(made: Path, tmp_path: Path) -> None:
    target, partial = tmp_path / "model", tmp_path / "model.partial"
    refused: list[str] = []

    class Meanwhile(RecordedProgress):
        def begin(self, part: str, num_bytes: int) -> None:
            with pytest.raises(CheckpointError) as caught:
                converted(made, target)
            refused.append(str(caught.value))
            super().begin(part, num_bytes)

    convert(made, target, ConvertOptions(), Meanwhile())
    told = f"another `voicegate convert` is at work in {partial}: wait for its end, and run this again"
    assert set(refused) == {told}
    assert not partial.exists()
    assert set(converted(made, target).values()) == VERIFIED


def test_one_that_ends_while_the_second_begins_is_not_written_over(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has seen no finished directory, and comes to the lock once the first has let go of it."""
    converted(made, tmp_path / "other")
    mkdir = Path.mkdir

    def late(path: Path, *args: int, **options: bool) -> None:
        if path.name == "model.partial" and not (tmp_path / "model").exists():
            (tmp_path / "other").rename(tmp_path / "model")
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", late)
    with pytest.raises(CheckpointError, match="another `voicegate convert` is at work in"):
        converted(made, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert set(converted(made, tmp_path / "model").values()) == VERIFIED


def test_the_voices_of_a_finished_directory_are_its_owners(made: Path, tmp_path: Path) -> None:
    source = shutil.copytree(made, tmp_path / "Fun-Small")
    entry = {
        "prompt_text": torch.tensor([[65, 66, 67]]),
        "flow_prompt_speech_token": torch.arange(4)[None],
        "prompt_speech_feat": torch.randn(1, 11, 80),
        "flow_embedding": torch.randn(1, 192),
    }
    torch.save({"anna": entry, "ben": entry}, source / "spk2info.pt")
    target = tmp_path / "model"
    assert {"voices/anna.safetensors", "voices/ben.safetensors"} <= converted(source, target).keys()
    save_pace(target / "voices" / "anna.safetensors", VoicePace(2.0, 0.8))  # as tune-voice writes it
    (target / "voices" / "ben.safetensors").unlink()
    assert set(converted(source, target).values()) == VERIFIED
    torch.save({"cleo": entry}, source / "spk2info.pt")
    assert set(converted(source, target).values()) == VERIFIED
    assert [path.name for path in (target / "voices").iterdir()] == ["anna.safetensors"]
