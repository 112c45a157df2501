#!/bin/sh
# Finds a Chromium for the tests of the browser client, and installs one where it may. Never fails: without one those
# tests are skipped, and say so.
set -eu

say() { printf 'setup: %s\n' "$*"; }

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
remedy="the tests of the browser client will be skipped. Install Chromium or Chrome to run them"
if ! command -v apt-get >/dev/null 2>&1; then
    say "no Chromium: $remedy"
    exit 0
fi
if [ "$(id -u)" = 0 ]; then root=""; elif sudo -n true 2>/dev/null; then root="sudo -n"; else
    say "no Chromium: $remedy (sudo apt-get install -y chromium)"
    exit 0
fi
say "installing chromium with apt-get, for the tests of the browser client (300 MB)"
$root apt-get update -qq >/dev/null && $root apt-get install -y -qq --no-install-recommends chromium >/dev/null ||
    say "apt-get could not install chromium: $remedy"
