#!/bin/sh
# All that is measured on a GPU machine, the most wanted first, each part with a limit of its own: bench/gpu_all.sh OUT
# Kernels are compiled by the first part and cached, so that the others load in seconds. About 9 minutes on an H200.
set -u
out=${1:?usage: bench/gpu_all.sh OUT_DIRECTORY}
python=${PYTHON:-python3}
model=${MODEL:-build/full-size}
mkdir -p "$out"

part() { # NAME SECONDS COMMAND...
    name=$1 limit=$2
    shift 2
    printf '== %s\n' "$name"
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || printf '%s: exit %s\n' "$name" "$?"
    tail -n 15 "$out/$name.txt"
}

engine() { # NAME SECONDS SCENARIOS AND OPTIONS...
    name=$1 limit=$2
    shift 2
    # Generated weights never stop: 20 speech tokens a text token.
    part "$name" "$limit" "$python" -u -m bench.engine --device cuda --model "$model" --json "$out/$name.json" \
        --set max_active_clauses=448 --set expected_tokens_per_text_token=20 --scenario "$@"
}

[ -f "$model/model.json" ] || part engine-dir 60 "$python" -u -m bench.full_size engine-dir "$model" --never-stop
engine engine-h200 240 first-audio live-128 sustain-300 sustain-400 burst-400 cancel-16 --audio-s 3..15 --duration-s 10 \
    --limit-s 40 --baseline --baseline-utterances 3
part gpu-tests 120 "$python" -u -m bench.gpu_tests "$out/gpu-tests-h200.txt"
engine engine-h200-live16 70 live-16 --audio-s 3..5 --duration-s 10 --limit-s 40
part kernels 120 "$python" -u -m bench.kernels --json "$out/kernels-h200.json"
engine engine-h200-eager 60 first-audio --samples 30 --set without=llm.has_graphs,flow.use_graphs,vocoder.use_graphs
engine engine-h200-float8 60 sustain-400 --audio-s 3..15 --duration-s 10 --limit-s 30 --set kv_dtype=float8
