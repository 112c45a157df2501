"""models/tiny/training/train.sh: its commands, given to a stand-in for Python that leaves at once what each leaves."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_STAND_IN = """#!/bin/bash
if [ "$1" = -c ]; then echo 0; exit; fi
while [ "$1" != -m ]; do shift; done
name=${2##*.}; shift 2
echo "$CUDA_VISIBLE_DEVICES $name $*" >>"$CALLS"
given=("$@")
for ((i = 0; i < $#; i++)); do
    case ${given[i]} in --state) state=${given[i + 1]} ;; --output) output=${given[i + 1]} ;; esac
done
case $name in
corpus) touch "$output/$RANDOM.npz" ;;
codes) touch "$output" ;;
pack) mkdir -p "$2"; touch "$2/part-00" ;;
export) mkdir -p "$output" ;;
*) [ "$name" != "$FAILS" ] || [[ "$*" == *--no-graphs* ]] || exit 3
   case $name in speech_tokenizer) name=tokenizer ;; distil) name=distilled_flow ;; esac
   touch "$state/$name.pt" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "python").write_text(_STAND_IN)
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "texts.txt").write_text("One line.\n")
    (tmp_path / "kokoro").mkdir()
    (tmp_path / "kokoro" / "kokoro.onnx").touch()
    (tmp_path / "work" / "state").mkdir(parents=True)
    return tmp_path


def calls(folder: Path, cards: int, fails: str = "", few_steps: str = "") -> dict[str, list[str]]:
    """By command: the cards that each call saw, and its arguments."""
    environment = os.environ | {
        "PYTHON": str(folder / "python"),
        "CALLS": str(folder / "calls"),
        "CARDS": str(cards),
        "FAILS": fails,
        "FEW_STEPS": few_steps,
    }
    script = ROOT / "models/tiny/training/train.sh"
    subprocess.run(
        ["sh", script, "texts.txt", "kokoro", "work", "30"], check=True, cwd=folder, env=environment, timeout=120
    )
    found: dict[str, list[str]] = {}
    for line in (folder / "calls").read_text().replace(str(folder), "").splitlines():
        seen, name, *arguments = line.split(" ")
        found.setdefault(name, []).append(" ".join([seen, *arguments]))
    return found


def test_all_begins_from_scratch_on_one_card(folder: Path) -> None:
    found = calls(folder, cards=1)
    assert [len(found[name]) for name in ("corpus", "speech_tokenizer", "llm", "flow", "vocoder")] == [2, 1, 1, 1, 1]
    assert "distil" not in found
    assert not any("--rate" in call for each in found.values() for call in each)
    assert "--corpus /work/corpus" in found["llm"][0]
    assert {name: found[name][0][0] for name in ("llm", "flow", "vocoder")} == {"llm": "0", "flow": "0", "vocoder": "0"}
    assert (folder / "work/pieces/new-codes.npz").exists()


def test_states_are_gone_on_with_on_four_cards(folder: Path) -> None:
    """The tokenizer is final, and the LLM begins before the new corpus is spoken."""
    for name in ("tokenizer", "llm", "flow", "vocoder"):
        (folder / "work/state" / f"{name}.pt").touch()
    (folder / "work/codes.npz").touch()
    found = calls(folder, cards=4)
    assert "speech_tokenizer" not in found
    first, second = found["llm"]
    assert "--corpus /work/codes.npz --minutes" in first
    assert "--corpus /work/codes.npz /work/corpus" in second
    for name, card in (("llm", "0"), ("flow", "1"), ("vocoder", "2")):
        assert found[name][-1].startswith(f"{card} --until ")
        assert "--rate" in found[name][-1]
    assert any(call.startswith("1,2 ") and "--voice man" in call for call in found["corpus"]), "not beside the LLM"


@pytest.mark.parametrize("cards", [1, 2, 3])
def test_the_flow_is_taught_before_the_one_of_few_steps_and_the_latter_exported(folder: Path, cards: int) -> None:
    (folder / "work/state/flow.pt").touch()
    found = calls(folder, cards, few_steps="2")
    (flow,), (distil,), (exported,) = found["flow"], found["distil"], found["export"]
    until_s = [int(call.split("--until ")[1].split(" ")[0]) for call in (flow, distil)]
    assert until_s[0] < until_s[1]
    assert "--rate 5e-4" in flow
    assert distil[0] == flow[0] == ("1" if cards == 3 else "0")
    assert distil.endswith("--steps 2")
    assert exported.endswith("--flow distilled_flow --guidance 0 --steps 2")


def test_a_flow_that_failed_is_not_distilled(folder: Path) -> None:
    (folder / "python").write_text(_STAND_IN.replace("[[", "false && [["))
    found = calls(folder, cards=1, few_steps="4", fails="flow")
    assert "distil" not in found
    assert found["export"][0].endswith("/work/model --steps 4")


def test_a_stage_that_fails_is_tried_without_graphs(folder: Path) -> None:
    found = calls(folder, cards=2, fails="flow")
    assert ["--no-graphs" in call for call in found["flow"]] == [False, True]
    told = (folder / "work/stages.log").read_text()
    assert "flow ended, 3" in told
    assert "flow FAILED" in told
