"""Files hold exactly the audio: .wav by the standard library's reader, .opus by PyAV's."""

import errno
import os
import wave
from pathlib import Path

import av
import numpy as np
import pytest

from tests.unit.clients.speech import opus_speech, pcm_speech
from voicegate.clients.python.errors import InvalidInput
from voicegate.clients.python.files import check_path, write_audio
from voicegate.protocol import messages as wire


@pytest.mark.parametrize("make", [opus_speech, pcm_speech])
def test_wav(tmp_path: Path, make: type) -> None:
    speech = make(12_345)
    path = tmp_path / "say.wav"
    write_audio(path, speech.opened, speech.audio)
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        samples = np.frombuffer(file.readframes(20_000), np.int16)
    assert len(samples) == 12_345
    assert np.corrcoef(samples, speech.samples)[0, 1] > 0.99


@pytest.mark.parametrize("suffix", [".opus", ".ogg", ".OPUS"])
def test_ogg_opus(tmp_path: Path, suffix: str) -> None:
    speech = opus_speech(12_345)
    path = tmp_path / f"say{suffix}"
    write_audio(path, speech.opened, speech.audio)
    with av.open(str(path)) as container:
        num_samples = sum(frame.samples for frame in container.decode(audio=0))
    assert num_samples == 2 * 12_345


def test_audio_that_was_cut_short_is_a_whole_file(tmp_path: Path) -> None:
    speech = opus_speech(12_345)
    write_audio(tmp_path / "cut.opus", speech.opened, speech.audio[:2])
    with av.open(str(tmp_path / "cut.opus")) as container:
        num_samples = sum(frame.samples for frame in container.decode(audio=0))
    assert num_samples == 6 * 960 - speech.opened.pre_skip


def test_no_audio_is_an_empty_file(tmp_path: Path) -> None:
    speech = opus_speech(10)
    write_audio(tmp_path / "none.opus", speech.opened, [])
    write_audio(tmp_path / "none.wav", speech.opened, [])
    with wave.open(str(tmp_path / "none.wav")) as file:
        assert file.getnframes() == 0


def test_names_that_cannot_be_written_are_refused_early(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"\.wav, \.opus, \.ogg"):
        check_path(tmp_path / "say.mp3")
    with pytest.raises(InvalidInput, match="ask for Opus"):
        check_path(tmp_path / "say.opus", "pcm_s16le")
    with pytest.raises(InvalidInput, match="no directory"):
        check_path(tmp_path / "missing" / "say.wav")
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(InvalidInput, match="is a directory"):
        check_path(tmp_path / "folder.wav")


def test_where_nothing_may_be_written_is_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)  # root may write everywhere
    with pytest.raises(InvalidInput, match="permission denied"):
        check_path(tmp_path / "say.wav")
    (tmp_path / "there.wav").touch()
    check_path(tmp_path / "there.wav")


@pytest.mark.parametrize("name", ["say.wav", "say.opus"])
def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fill_up(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fill_up)
    codec = "pcm_s16le" if name.endswith(".wav") else "opus"
    opened = wire.Opened("c", 0, "woman", wire.Format(codec=codec), 24_000, 312)
    with pytest.raises(OSError, match="No space left"):
        write_audio(tmp_path / name, opened, [])
    assert list(tmp_path.iterdir()) == []
