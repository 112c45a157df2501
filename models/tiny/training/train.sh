#!/bin/sh
# Text to model directory, all stages by the clock: train.sh TEXTS KOKORO WORK MINUTES
# With a second card the vocoder has that one. To be stopped at a moment, set UNTIL (seconds since 1970); run again with
# the same WORK it goes on: what is done stays done. WORK/state is what has to travel (pack), and WORK/corpus if it can.
set -eu
texts=$(realpath "$1") kokoro=$(realpath "$2") minutes=$4
mkdir -p "$3/corpus" "$3/state"
work=$(realpath "$3")
cd "$(dirname "$0")/../../.."
cores=$(nproc)
last_card=$(python3 -c "import torch; print(torch.cuda.device_count() - 1)")

share() { python3 -c "print($minutes * $1)"; }
step() { # NAME CARD MINUTES ARGUMENTS...: a trainer, its words in WORK/NAME.log
    name=$1 card=$2 time=$3
    shift 3
    CUDA_VISIBLE_DEVICES=$card OMP_NUM_THREADS=4 python3 -u -m "models.tiny.training.$name" --corpus "$work/corpus" \
        --state "$work/state" --minutes "$time" --until "${UNTIL:-1e12}" "$@" >>"$work/$name.log" 2>&1
}
speak() { # VOICE MINUTES ARGUMENTS...
    voice=$1 time=$2
    shift 2
    OMP_NUM_THREADS=1 python3 -u -m models.tiny.training.corpus --texts "$texts" --voice "$voice" --output "$work/corpus" \
        --minutes "$time" "$@" >>"$work/$voice.log" 2>&1
}

if [ ! -e "$work/spoken" ]; then
    speak woman "$(share 0.1)" --workers $((cores * 5 / 8)) &
    speak man "$(share 0.15)" --workers $((cores * 3 / 8)) --first-line 70000 --kokoro "$kokoro" --device cuda &
    wait
    touch "$work/spoken"
fi
step vocoder "$last_card" "$(share 0.75)" --hours 12 --model models/tiny/model.json &
step speech_tokenizer 0 "$(share 0.06)" --hours 8
step llm 0 "$(share 0.5)" --tokenizer models/tiny/tokenizer.json &
step flow 0 "$(share 0.48)" --hours 40
step distil 0 "$(share 0.2)" --hours 40 --steps 5
wait
python3 -m models.tiny.training.export --state "$work/state" --like models/tiny --output "$work/model" \
    --flow distilled_flow --steps 5 --guidance 0
