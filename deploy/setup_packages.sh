#!/bin/sh
# Installs this repository and all that it needs into the environment ($1) that deploy/setup.sh has made.
set -eu

venv=${1:-.venv}
say() { printf 'setup: %s\n' "$*"; }

say "installing Python packages (torch is the big one: some minutes the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
    -e models -e '.[server,dev]' || {
    printf 'setup: STOP: pip could not install the packages; its message above says why\n' >&2
    exit 1
}
# By all cores, where pip would compile these 19,000 modules with one, for a minute. Some are none that this Python reads.
"$venv/bin/python" -m compileall -qq -j 0 "$venv/lib" >/dev/null 2>&1 || true
say "done"
