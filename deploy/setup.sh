#!/bin/sh
# Makes the virtual environment that the Makefile's targets run in ($1), still empty, and checks for libopus. Says what it
# does; stops with the command to run where it needs the user.
set -eu

venv=${1:-.venv}
say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: STOP: %s\n' "$*" >&2; exit 1; }

. deploy/one_at_a_time.sh

find_python() {
    for candidate in "${PYTHON:-}" python3.12 python3.11 python3; do
        [ -n "$candidate" ] || continue
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
}

has_opus() { "$1" -c 'import ctypes.util, sys; sys.exit(ctypes.util.find_library("opus") is None)'; }

install_opus() {
    if command -v apt-get >/dev/null 2>&1; then
        if [ "$(id -u)" = 0 ]; then root=""; elif sudo -n true 2>/dev/null; then root="sudo -n"; else
            stop "libopus is missing and installing it needs your password. Run: sudo apt-get install -y libopus0"
        fi
        say "installing libopus0 with apt-get"
        $root apt-get update -qq >/dev/null && $root apt-get install -y -qq libopus0 >/dev/null ||
            stop "apt-get could not install libopus0. Try: sudo apt-get update && sudo apt-get install -y libopus0"
    elif command -v brew >/dev/null 2>&1; then
        say "installing opus with Homebrew"
        brew install -q opus
    else
        stop "libopus is missing. Install it with your package manager (opus, libopus or libopus0), then run again"
    fi
}

python=$(find_python)
[ -n "$python" ] || stop "Python 3.11 or 3.12 is needed; install one, or name it: make PYTHON=/path/to/python3.12 ..."
has_opus "$python" || install_opus

if [ ! -x "$venv/bin/python" ]; then
    say "making a virtual environment in $venv with $("$python" --version)"
    [ -e "$venv" ] && is_new=no || is_new=yes
    if ! "$python" -m venv "$venv"; then
        [ "$is_new" = no ] || rm -rf "$venv" # half of one, which would be taken for a whole one
        ! "$python" -c 'import ensurepip' 2>/dev/null || stop "no environment could be made; the message above says why"
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        stop "this Python cannot make environments. On Debian, Ubuntu: sudo apt-get install -y python$version-venv"
    fi
elif ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    stop "the environment in $venv has no pip, as one that was left half made: remove it, and run again"
fi
