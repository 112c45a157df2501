"""The front door: parts and their sections, and what it says without a GPU. Every measurement module is imported."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from voicegate.bench.kernels import __main__ as front
from voicegate.bench.kernels.__main__ import PARTS, Part, UsageError, chosen_sections, main, parser


def test_a_part_is_all_its_sections_and_a_section_is_itself() -> None:
    assert list(PARTS) == ["llm", "flow", "vocoder", "stepaudio2"]
    assert chosen_sections(parser().parse_args([]).part) == {name: part.sections for name, part in PARTS.items()}
    assert chosen_sections(["flow"]) == {"flow": PARTS["flow"].sections}
    assert chosen_sections(["vocoder.parts", "llm.host", "llm", "vocoder.batches"]) == {
        "llm": ("alone", "device", "host", "samplings"),
        "vocoder": ("batches", "parts"),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dance", "no part 'dance'; there are llm, flow, vocoder, stepaudio2"),
        ("llm.flow", "llm has no section 'flow'; it has alone, device"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=message):
        chosen_sections([name])
    assert main(["--part", name]) == 1
    assert capsys.readouterr().err.startswith(f"bench.kernels: {message}")


def test_without_a_gpu_it_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 1
    assert capsys.readouterr().err == "bench.kernels: needs a CUDA device, and torch sees none\n"


def test_results_are_written_after_each_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "results" / "kernels.json"
    written: list[Any] = []

    def measure_first(sections: Any) -> dict[str, Any]:
        return {"us": {1: 2.5}, "sections": sections}

    def measure_second(_: Any) -> dict[str, Any]:
        written.append(json.loads(path.read_text()))
        return {}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(front.environment, "describe", lambda: {"gpu": "a card"})
    monkeypatch.setattr(front, "PARTS", {"llm": Part(measure_first, ("a", "b")), "flow": Part(measure_second, ("c",))})
    assert main(["--part", "flow", "llm.b", "--json", str(path)]) == 0
    expected = {"environment": {"gpu": "a card"}, "llm": {"us": {"1": 2.5}, "sections": ["b"]}}
    assert written == [expected]
    assert json.loads(path.read_text()) == expected | {"flow": {}}
