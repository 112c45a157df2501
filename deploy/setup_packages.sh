#!/bin/sh
# Installs this repository with some of its extras ($2, by default all of a developer's) into the environment ($1) that
# deploy/setup.sh has made.
set -eu

venv=${1:-.venv}
extras=${2:-server,dev}
say() { printf 'setup: %s\n' "$*"; }
pip() { "$venv/bin/python" -m pip install --disable-pip-version-check -c "$constraints" "$@"; }

. deploy/one_at_a_time.sh

# Said first: an old pip downloads torch to tell which it would take.
say "installing Python packages: $extras (torch is the big one: some minutes the first time)"

constraints=constraints.txt
# A torch for CUDA names its Triton exactly, and that is not the one of constraints.txt, which goes with a torch for CPUs.
case $([ "$(uname)" = Linux ] && pip --dry-run --no-deps --ignore-installed torch 2>/dev/null) in
*"Would install torch-"*+cpu*) ;;
*"Would install torch-"*)
    say "torch is one for CUDA here: with the versions that were measured on GPUs (deploy/gpu-versions.txt)"
    command -v nvidia-smi >/dev/null 2>&1 ||
        say "no NVIDIA driver is here: PIP_EXTRA_INDEX_URL with PyTorch's index of builds for CPUs would save 3 GB"
    constraints=$venv/.constraints
    deploy/gpu_constraints.sh > "$constraints"
    ;;
esac

# One in ten of 19,000 modules is imported: each is compiled when it is, by `make`, which lets bytecode be kept.
install() { pip --quiet --no-compile -e models -e ".[$extras]"; }
# A download may break off, which an old pip does not take up again. What has come whole is in its cache.
install || { say "pip failed; once more, in case it was the network" && install; } || {
    printf 'setup: STOP: pip could not install the packages; its message above says why\n' >&2
    exit 1
}
say "done"
