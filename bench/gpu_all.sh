#!/bin/sh
# All that is measured on a GPU machine, the most wanted first: bench/gpu_all.sh OUT [PART...]
# Each part has a limit of its own, and all together LIMIT_S (2400); what no time is left for is left out. PARTs, such as
# `engine-h200 gpu-tests`, are done alone. Parts and files have the GPU's name, or CARD.
# Kernels are compiled by the first part and cached, so that the others load in seconds.
set -u
out=${1:?usage: bench/gpu_all.sh OUT_DIRECTORY [PART...]}
shift
wanted=" $* "
python=${PYTHON:-python3}
model=${MODEL:-build/full-size}
card=${CARD:-$(nvidia-smi --query-gpu=name --format=csv,noheader | awk 'NR == 1 { print tolower($2) }')} # NVIDIA H200
natural=$model-natural # speech that ends with its text (bench/full_size/natural.py)
end_s=$(($(date +%s) + ${LIMIT_S:-2400}))
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

natural_dir() { # weights whose speech ends with its text: once
    [ -f "$natural/model.json" ] || part engine-dir-natural 60 \
        "$python" -u -m voicegate.bench.full_size engine-dir "$natural" --natural
}

if wants socket-$card; then # 400 s in all
    natural_dir
    part socket-$card 340 "$python" -u -m voicegate.bench.socket --model "$natural" --budget-s 300 --num-alone 40 \
        --json "$out/socket-$card.json" --html "$out/socket-$card.html" --log "$out/socket-$card.log"
fi
case $wanted in *" latency-$card "*) # for docs/images/latency.svg; 10 minutes, so only where it is asked for
    natural_dir
    part latency-$card 600 "$python" -u -m voicegate.bench.socket --model "$natural" --budget-s 560 --sweep \
        --duration-s 5 --json "$out/latency-$card.json" --html "$out/latency-$card.html" --log "$out/latency-$card.log"
    ;;
esac
upstream_dir() { # the same weights in upstream's layout: once
    natural_dir
    [ -f "$model-upstream/reference.json" ] || part engine-dir-upstream 120 \
        "$python" -u -m voicegate.bench.peers.generated "$model-upstream"
}

case $wanted in *" peers-$card "*) # vLLM-Omni's packages are in PEERS. Killed by a limit, it goes on when called again
    upstream_dir
    part peers-$card 1200 "$python" -u -m voicegate.bench.peers --packages "${PEERS:?directory with packages of vLLM-Omni}" \
        --peer-model "$model-upstream" --model "$natural" --json "$out/peers-$card.json" --logs "$out"
    ;;
esac
case $wanted in *" vllm-$card "* | *" vllm-ours-$card "*) # with the extra vllm. Our own runner has as many slots
    upstream_dir
    [ -f "$model-hf/config.json" ] || part engine-dir-hf 120 \
        "$python" -u -m voicegate convert "$model-upstream" "$model-converted" --merged-hf "$model-hf"
    for backend in vllm cuda; do
        name=vllm-$card
        [ $backend = vllm ] || name=vllm-ours-$card
        part $name 400 "$python" -u -m voicegate.bench.socket --model "$natural" --duration-s 20 --json "$out/$name.json" \
            --log "$out/$name.log" --scenarios alone:whole alone:20 live:16:20 live:64:20 live:128:20 \
            --serve --max-active-clauses 160 --llm-backend $backend --merged-hf-dir "$model-hf"
    done
    ;;
esac
if wants jobs-$card; then
    natural_dir
    part jobs-$card 300 "$python" -u -m voicegate.bench.jobs --model "$natural" --budget-s 220 \
        --json "$out/jobs-$card.json" --log "$out/jobs-$card.log"
fi
if wants engine-$card; then
    natural_dir
    part engine-$card 240 "$python" -u -m voicegate.bench.engine --device cuda --model "$natural" \
        --json "$out/engine-$card.json" \
        --scenarios alone:whole live:128:whole live:300:whole live:400:whole closed:400:whole mixed:16
fi
part gpu-tests 600 "$python" -u -m voicegate.bench.gpu_tests "$out/gpu-tests-$card.txt"
part kernels 180 "$python" -u -m voicegate.bench.kernels --json "$out/kernels-$card.json"
