#!/bin/sh
# Builds all that is published into dist/, and checks that it could be: PyPI's rules by twine, npm's by a dry run.
#   deploy/packages.sh [VENV]
set -eu
venv=${1:-.venv}
python=$(realpath -s "$venv")/bin/python

log=$(mktemp)
trap 'rm -f "$log"' EXIT

rm -rf dist
for folder in . models clients/pipecat clients/livekit; do
    # What an earlier build has left there would be packed again.
    rm -rf "$folder"/build "$folder"/*.egg-info
    "$python" -m build --no-isolation --outdir dist "$folder" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
done
"$python" -m twine check --strict dist/*

if ! command -v npm >/dev/null; then
    echo "packages: npm is not here, so the npm packages were not looked at"
    exit
fi
for folder in clients/browser/player clients/javascript clients/livekit-node; do
    (cd "$folder" && npm pack --dry-run --json >/dev/null) # alone in its line: before `&&` a failure would not end this
    echo "npm pack $folder: PASSED"
done
