#!/bin/sh
# Text to model directory, all stages by the clock: train.sh TEXTS KOKORO WORK MINUTES
# With a second card the vocoder has that one. To be stopped at a moment, set UNTIL (seconds since 1970); run again with
# the same WORK it goes on: what is done stays done. Once a minute the states are packed into WORK/pieces, files of 15 MB
# that can travel: fetch them often, a lent machine may go at any moment.
set -eu
texts=$(realpath "$1") kokoro=$(realpath "$2") minutes=$4
mkdir -p "$3/corpus" "$3/state"
work=$(realpath "$3")
cd "$(dirname "$0")/../../.."
cores=$(nproc)
last_card=$(python3 -c "import torch; print(torch.cuda.device_count() - 1)")

share() { python3 -c "print($minutes * $1)"; }
run_step() { # NAME CARD MINUTES ARGUMENTS...: a trainer, its words in WORK/NAME.log
    name=$1 card=$2 time=$3
    shift 3
    CUDA_VISIBLE_DEVICES=$card OMP_NUM_THREADS=4 python3 -u -m "models.tiny.training.$name" --corpus "$work/corpus" \
        --state "$work/state" --minutes "$time" --until "${UNTIL:-1e12}" "$@" >>"$work/$name.log" 2>&1
}
step() { # what fails goes on from its state, once more, without CUDA graphs
    run_step "$@" || run_step "$@" --no-graphs
}
speak() { # VOICE MINUTES ARGUMENTS...
    voice=$1 time=$2
    shift 2
    OMP_NUM_THREADS=1 python3 -u -m models.tiny.training.corpus --texts "$texts" --voice "$voice" --output "$work/corpus" \
        --samples-hours 12 --minutes "$time" "$@" >>"$work/$voice.log" 2>&1
}
pack() {
    rm -rf "$work/pieces.new"
    python3 -m models.tiny.training.pack "$work/state" "$work/pieces.new"
    rm -rf "$work/pieces"
    mv "$work/pieces.new" "$work/pieces"
}

while sleep 60; do pack; done &
packer=$!
trap 'kill $packer' EXIT
if [ ! -e "$work/spoken" ]; then
    speak woman "$(share 0.12)" --workers $((cores * 2 / 3)) &
    woman=$!
    speak man "$(share 0.12)" --workers $((cores / 3)) --first-line 85000 --kokoro "$kokoro" --device cuda
    wait $woman
    touch "$work/spoken"
fi
step vocoder "$last_card" "$(share 0.78)" --hours 12 --model models/tiny/model.json --begin-with models/tiny/vocoder.safetensors &
vocoder=$!
step speech_tokenizer 0 "$(share 0.04)" --hours 8
# One after the other: the flow beside it left the LLM a quarter of its steps.
step llm 0 "$(share 0.35)" --tokenizer models/tiny/tokenizer.json
step flow 0 "$(share 0.38)"
python3 -m models.tiny.training.codes --corpus "$work/corpus" --state "$work/state" --hours 50 --output "$work/codes.npz" --device cuda
wait $vocoder
pack
python3 -m models.tiny.training.export --state "$work/state" --like models/tiny --output "$work/model" --steps 6
