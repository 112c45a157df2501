#!/bin/sh
# Text to model directory, all stages by the clock: train.sh TEXTS KOKORO WORK MINUTES
# A state in WORK/state is gone on with, at a rate below its stage's own; the tokenizer's is final, since codes rest on it.
# With WORK/codes.npz (an earlier corpus) the LLM begins at once, and learns from both when the new corpus is spoken.
# Until then the other states may still come, and KOKORO: the man's speech waits for KOKORO/kokoro.onnx.
# Cards: one has all; of two the last has the vocoder; of three the LLM, the flow and the vocoder have one each.
# With FEW_STEPS the flow has half of its time; then it is distilled to so many steps, and that is what is exported. A flow
# that is gone on with must be guided: the shipped one is no teacher (README). UNTIL (seconds since 1970) ends all in place of MINUTES.
# VOCODER=no leaves the vocoder as it is.
# Once a minute WORK/pieces has the states anew in files of 15 MB, and the logs: fetch them, a lent machine may go at any
# moment. SIGTERM saves and packs what there is. For a trial on a CPU: CARDS=3 STAGE_OPTIONS="--batch-share 0.01 --max-steps 3".
set -eu
texts=$(realpath "$1") kokoro=$(realpath -m "$2")
mkdir -p "$3/corpus" "$3/state"
work=$(realpath "$3")
cd "$(dirname "$0")/../../.."
python=${PYTHON:-python3}
begin=$(date +%s)
end=${UNTIL:-$(awk "BEGIN { print int($begin + 60 * $4) }")}
found=$("$python" -c "import torch; print(torch.cuda.device_count())")
device=cpu
[ "$found" -eq 0 ] || device=cuda
cards=${CARDS:-$found}
cores=$(nproc)

left() { echo $(($1 - $(date +%s))); }
minutes() { awk "BEGIN { print $1 / 60 }"; } # of seconds
share() { echo $((begin + (end - begin) * $1 / 100)); } # the moment at which so many hundredths of the time are over
note() { echo "$(($(date +%s) - begin)) s: $*" >>"$work/stages.log"; }
has() { [ -e "$work/state/$1.pt" ]; }
rate() { # NAME RATE: for a state that is there before the stage begins
    if has "$1"; then echo "--rate $2"; fi
}
run() { # NAME CARDS SECONDS MODULE ARGUMENTS...: a command of this folder, its words in WORK/NAME.log; a late one is ended
    name=$1 seen=$2 seconds=$3
    shift 3
    note "$name begins"
    # Told in the foreground: else the LLM's readers would end with it, and it would fail before it has saved.
    CUDA_VISIBLE_DEVICES=$seen timeout --foreground --preserve-status --kill-after 15 "$seconds" \
        "$python" -u -m "models.tiny.training.$@" >>"$work/$name.log" 2>&1 &
    echo $! >"$work/$name.pid"
    result=0
    wait $! || result=$?
    rm "$work/$name.pid"
    note "$name ended, $result"
    return $result
}
attempt() { # NAME CARD UNTIL ARGUMENTS...: a trainer
    name=$1 card=$2 until=$3
    shift 3
    # shellcheck disable=SC2086 # options are several words
    OMP_NUM_THREADS=${THREADS:-4} run "$name" "$card" $(($(left "$until") + 15)) \
        "$name" --until "$until" "$@" ${STAGE_OPTIONS:-}
}
step() { # the same; one that fails goes on from its state, once more, without CUDA graphs
    attempt "$@" && return
    note "$1 FAILED: $(tail -n 1 "$work/$1.log")"
    [ "$(left "$3")" -lt 60 ] || attempt "$@" --no-graphs || note "$1 FAILED again"
}
speak() { # VOICE CARDS WORKERS SECONDS ARGUMENTS...
    voice=$1 seen=$2 workers=$3 seconds=$4
    shift 4
    OMP_NUM_THREADS=1 run "$voice" "$seen" $((seconds + 120)) corpus --texts "$texts" --voice "$voice" \
        --output "$work/corpus" --workers "$workers" --samples-hours 12 --minutes "$(minutes "$seconds")" "$@" ||
        note "$voice FAILED: $(tail -n 1 "$work/$voice.log")"
}
pack() { # the link is renamed in one step: who reads never sees half of it
    turn=$((1 - ${turn:-1}))
    rm -rf "$work/pieces.$turn"
    "$python" -m models.tiny.training.pack "$work/state" "$work/pieces.$turn"
    [ ! -e "$work/new-codes.npz" ] || cp "$work/new-codes.npz" "$work/pieces.$turn/"
    tar czf "$work/pieces.$turn/log.tar.gz" -C "$work" $(cd "$work" && ls ./*.log)
    ln -sfn "pieces.$turn" "$work/pieces.new"
    mv -T "$work/pieces.new" "$work/pieces"
}

case $cards in
0 | 1) flow_card=0 vocoder_card=0 speakers=0 ;;
2) flow_card=0 vocoder_card=1 speakers=0,1 ;;
*) flow_card=1 vocoder_card=2 speakers=0,1,2 ;;
esac
llm_until=$end # on a card of its own; else before the flow, which beside it left the LLM a quarter of its steps
[ "$flow_card" -gt 0 ] || llm_until=$(share "$([ -z "${FEW_STEPS:-}" ] && echo 64 || echo 45)")
spoken_at=$(share 15)
data="--corpus $work/corpus --state $work/state"
llm="--state $work/state --tokenizer models/tiny/tokenizer.json --readers ${READERS:-8}"

# shellcheck disable=SC2086 # these hold several words each
teach_flow() {
    flow_until=$end
    [ -z "${FEW_STEPS:-}" ] || flow_until=$(($(date +%s) + $(left "$end") / 2))
    step flow $flow_card "$flow_until" $data $flow_rate
    if [ -n "${FEW_STEPS:-}" ] && has flow; then step distil $flow_card "$end" $data --steps "$FEW_STEPS"; fi
}
# shellcheck disable=SC2086
teach() {
    rm -f "$work"/*.pid
    early=
    if [ ! -e "$work/spoken" ]; then
        if [ -e "$work/codes.npz" ]; then
            speakers=${speakers#0,}
            llm="$llm $(rate llm 2.5e-4)"
            attempt llm 0 "$spoken_at" $llm --corpus "$work/codes.npz" --minutes "$(minutes "$(left "$llm_until")")" &
            early=$!
        fi
        speak woman "" $((cores * 5 / 8 + 1)) "$(left "$spoken_at")" &
        woman=$!
        until [ -e "$kokoro/kokoro.onnx" ]; do sleep 1; done
        seconds=$(left "$spoken_at")
        [ "$seconds" -gt $(((end - begin) / 20)) ] || seconds=$(((end - begin) / 20)) # where Kokoro came late
        speak man "$speakers" $((cores / 4 + 1)) "$seconds" --first-line "${MANS_FIRST_LINE:-85000}" --kokoro "$kokoro" \
            --device $device ${SPEECH_OPTIONS:-}
        wait $woman
        touch "$work/spoken"
    fi
    until [ ! -e "$work/codes.npz" ] || has tokenizer; do sleep 1; done # another one would have other codes
    if ! has tokenizer; then # elsewhere until it is finished: one that is in WORK/state is final
        mkdir -p "$work/unfinished"
        step speech_tokenizer 0 "$(share 20)" --corpus "$work/corpus" --state "$work/unfinished" --hours 8
        mv "$work/unfinished/tokenizer.pt" "$work/state/"
    fi
    flow_rate=$(rate flow 5e-4)
    if [ "${VOCODER:-yes}" = yes ]; then
        step vocoder $vocoder_card "$end" $data --hours 12 --model models/tiny/model.json $(rate vocoder 3e-4) &
    fi
    if [ $flow_card -gt 0 ]; then teach_flow & fi
    run codes $vocoder_card 600 codes $data --hours 50 --device $device --output "$work/new.part.npz" &&
        mv "$work/new.part.npz" "$work/new-codes.npz" &
    if [ -n "$early" ]; then wait $early || note "llm FAILED: $(tail -n 1 "$work/llm.log")"; fi
    if [ -e "$work/codes.npz" ]; then more="$work/codes.npz"; else more=; fi
    [ -n "$early" ] || llm="$llm $(rate llm 2.5e-4)"
    step llm 0 "$llm_until" $llm --corpus $more "$work/corpus"
    if [ $flow_card -eq 0 ]; then teach_flow; fi
    wait
}

stop() { # all stages are told: they save what they have reached
    kill $teaching
    for pid in $(cat "$work"/*.pid 2>/dev/null); do kill "$pid" || true; done
    for pid in $(cat "$work"/*.pid 2>/dev/null); do timeout 30 tail --pid="$pid" -f /dev/null || true; done
    pack
    note "stopped and packed"
    exit 1
}
trap stop INT TERM
teach &
teaching=$!
while kill -0 $teaching 2>/dev/null; do
    timeout "${PACK_EVERY_S:-60}" tail --pid=$teaching -f /dev/null &
    wait $! || true # and not in the foreground: SIGTERM would wait for it
    pack
done
made="--steps 4"
if [ -n "${FEW_STEPS:-}" ] && has distilled_flow; then made="--flow distilled_flow --guidance 0 --steps $FEW_STEPS"; fi
# shellcheck disable=SC2086 # options are several words
"$python" -m models.tiny.training.export --state "$work/state" --like models/tiny --output "$work/model" $made
note "all ended and packed"
