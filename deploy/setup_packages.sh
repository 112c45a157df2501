#!/bin/sh
# Installs this repository and all that it needs into the environment ($1) that deploy/setup.sh has made.
set -eu

venv=${1:-.venv}
say() { printf 'setup: %s\n' "$*"; }
pip() { "$venv/bin/python" -m pip install --disable-pip-version-check -c "$constraints" "$@"; }

constraints=constraints.txt
# A torch for CUDA names its Triton exactly, and that is not the one of constraints.txt, which goes with a torch for CPUs.
case $([ "$(uname)" = Linux ] && pip --dry-run --no-deps --ignore-installed torch 2>/dev/null) in
*"Would install torch-"*+cpu*) ;;
*"Would install torch-"*)
    say "torch is one for CUDA here: with the versions that were measured on GPUs (deploy/gpu-versions.txt)"
    sed 's/==.*/==/; s/^/^/' deploy/gpu-versions.txt > "$venv/.other"
    constraints=$venv/.constraints
    grep -v -f "$venv/.other" -e '^cuda-' -e '^nvidia-' constraints.txt > "$constraints"
    cat deploy/gpu-versions.txt >> "$constraints"
    ;;
esac

say "installing Python packages (torch is the big one: some minutes the first time)"
# Of 19,000 modules one in ten is imported: each is compiled when it is, by `make`, which lets bytecode be kept.
pip --quiet --no-compile -e models -e '.[server,dev]' || {
    printf 'setup: STOP: pip could not install the packages; its message above says why\n' >&2
    exit 1
}
say "done"
