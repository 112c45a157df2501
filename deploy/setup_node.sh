#!/bin/sh
# Installs packages for Node.js that tests use into the environment ($1), in the versions that the lock file in a folder
# ($2) pins: other vendors' clients, bundlers. Never fails: without them those tests are skipped, and say so.
set -eu

from=$2
home=$1/$(basename "$2")

say() { printf 'setup: %s\n' "$*"; }

cmp -s "$from/package-lock.json" "$home/package-lock.json" && exit 0
if ! command -v npm >/dev/null 2>&1; then
    say "no npm: tests with what $from/package.json names will be skipped. Install Node.js to run them"
    exit 0
fi
# Whole or not at all: a folder that npm has filled by half would be taken for a whole one.
for attempt in 1 2; do
    rm -rf "$home.part"
    mkdir -p "$home.part"
    cp "$from/package.json" "$from/package-lock.json" "$home.part"
    if npm ci --loglevel=error --no-audit --no-fund --ignore-scripts --prefix "$home.part" >/dev/null; then
        rm -rf "$home"
        mv "$home.part" "$home"
        exit 0
    fi
done
say "npm could not install what $from/package-lock.json names: tests with it will be skipped"
