#!/bin/sh
# Installs other vendors' packages for Node.js into the environment ($1), in the versions that tests/integration/javascript
# pins; they speak through the gateway in tests. Never fails: without them those tests are skipped, and say so.
set -eu

from=$(dirname "$0")/../tests/integration/javascript
home=$1/javascript

say() { printf 'setup: %s\n' "$*"; }

cmp -s "$from/package-lock.json" "$home/package-lock.json" && exit 0
if ! command -v npm >/dev/null 2>&1; then
    say "no npm: packages of other vendors for Node.js will not be tested. Install Node.js to test them"
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
say "npm could not install what $from/package-lock.json names: those packages will not be tested"
