#!/bin/sh
# All that is measured on a GPU machine, the most wanted first: bench/gpu_all.sh OUT [PART...]
# Each part has a limit of its own, and all together LIMIT_S (900); what no time is left for is left out. PARTs, such as
# `engine-h200 gpu-tests`, are done alone.
# Kernels are compiled by the first part and cached, so that the others load in seconds.
set -u
out=${1:?usage: bench/gpu_all.sh OUT_DIRECTORY [PART...]}
shift
wanted=" $* "
python=${PYTHON:-python3}
model=${MODEL:-build/full-size}
natural=$model-natural # speech that ends with its text (bench/full_size/natural.py)
end_s=$(($(date +%s) + ${LIMIT_S:-900}))
mkdir -p "$out"

wants() { # NAME
    case $wanted in "  " | *" $1 "*) ;; *) return 1 ;; esac
}

part() { # NAME SECONDS COMMAND...
    name=$1 limit=$2
    shift 2
    case $name in engine-dir*) ;; *) wants "$name" || return 0 ;; esac
    left=$((end_s - $(date +%s)))
    [ "$left" -ge "$limit" ] || limit=$left
    printf '== %s, at most %s s\n' "$name" "$limit"
    [ "$limit" -ge 10 ] || { printf '%s: left out, no time\n' "$name"; return; }
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || printf '%s: exit %s\n' "$name" "$?"
    tail -n 15 "$out/$name.txt"
}

measured() { # MODULE NAME SECONDS OPTIONS...
    module=$1 name=$2 limit=$3
    shift 3
    # Generated weights never stop: 20 speech tokens a text token.
    part "$name" "$limit" "$python" -u -m "$module" --device cuda --model "$model" --json "$out/$name.json" \
        --set expected_tokens_per_text_token=20 "$@"
}

case $wanted in " socket-h200 " | " latency-h200 ") false ;; esac && [ ! -f "$model/model.json" ] && \
    part engine-dir 60 "$python" -u -m voicegate.bench.full_size engine-dir "$model" --never-stop
if wants socket-h200; then # 240 s in all
    [ -f "$natural/model.json" ] || part engine-dir-natural 60 \
        "$python" -u -m voicegate.bench.full_size engine-dir "$natural" --natural
    part socket-h200 200 "$python" -u -m voicegate.bench.socket --model "$natural" --budget-s 160 \
        --json "$out/socket-h200.json" --html "$out/socket-h200.html" --log "$out/socket-h200.log"
fi
case $wanted in *" latency-h200 "*) # for docs/images/latency.svg; 10 minutes, so only where it is asked for
    [ -f "$natural/model.json" ] || part engine-dir-natural 60 \
        "$python" -u -m voicegate.bench.full_size engine-dir "$natural" --natural
    part latency-h200 600 "$python" -u -m voicegate.bench.socket --model "$natural" --budget-s 560 --sweep \
        --duration-s 5 --json "$out/latency-h200.json" --html "$out/latency-h200.html" --log "$out/latency-h200.log"
    ;;
esac
measured voicegate.bench.engine engine-h200 240 --audio-s 3..15 --duration-s 10 --limit-s 40 \
    --scenario first-audio live-128 sustain-300 sustain-400 burst-400 cancel-16 --baseline --baseline-utterances 3
part gpu-tests 150 "$python" -u -m voicegate.bench.gpu_tests "$out/gpu-tests-h200.txt"
part start 180 "$python" -u -m voicegate.bench.engine.start --device cuda --model "$model" --json "$out/start-h200.json"
measured voicegate.bench.engine.prompts prompts-h200 90
# A row takes about 12 s, without graphs 25. 128 streams: fewer shapes to capture, so that a row starts sooner.
measured voicegate.bench.engine.ablation ablation-h200 200 --set max_active_clauses=128
# What only many streams see; a row takes about 40 s.
measured voicegate.bench.engine.ablation ablation-h200-400 120 --rows all flow-float8 \
    --scenario burst-400 sustain-400 --audio-s 3..15 --duration-s 8 --limit-s 30
measured voicegate.bench.engine engine-h200-live16 60 --audio-s 3..5 --duration-s 10 --limit-s 40 --scenario live-16
part kernels 180 "$python" -u -m voicegate.bench.kernels --json "$out/kernels-h200.json" --part llm \
    flow.blocks flow.kinds flow.float8_products flow.precision vocoder
measured voicegate.bench.engine engine-h200-float8 60 --audio-s 3..15 --duration-s 10 --limit-s 30 \
    --scenario sustain-400 --set kv_dtype=float8
