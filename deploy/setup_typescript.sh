#!/bin/sh
# Installs the TypeScript compiler into the environment ($1), which checks the types of the browser client. Never fails:
# without it that test is skipped, and says so.
set -eu

version=5.9.3 # the compiler of 7 is a program for each platform, and no JavaScript
home=$1/typescript

say() { printf 'setup: %s\n' "$*"; }

[ -f "$home/node_modules/typescript/package.json" ] && grep -q "\"version\": \"$version\"" \
    "$home/node_modules/typescript/package.json" && exit 0
if ! command -v npm >/dev/null 2>&1; then
    say "no npm: the types of the browser client will not be checked. Install Node.js to check them"
    exit 0
fi
npm install --loglevel=error --no-audit --no-fund --no-save --prefix "$home" "typescript@$version" >/dev/null ||
    say "npm could not install typescript $version: the types of the browser client will not be checked"
