#!/bin/sh
# Programs that some tests run: HAProxy and nginx those of deploy/'s configurations, g++ that of a CUDA kernel on a CPU,
# npm what setup_typescript.sh and setup_sdks.sh install. The first two start services, so all are installed where CI runs alone;
# elsewhere those tests are skipped, and say so. Never fails: in CI the tests do.
set -eu

say() { printf 'setup: %s\n' "$*"; }

missing=""
for name in haproxy nginx g++ npm; do
    PATH="$PATH:/usr/sbin" command -v "$name" >/dev/null 2>&1 || missing="$missing $name"
done
[ -n "$missing" ] || exit 0
root="sudo -n"
[ "$(id -u)" != 0 ] || root=""
if [ -z "${CI:-}" ] || ! $root true 2>/dev/null || ! command -v apt-get >/dev/null 2>&1; then
    say "without$missing: the tests that run them will be skipped (apt-get install$missing, to run them)"
    exit 0
fi
say "installing$missing with apt-get, for the tests that run them"
$root apt-get update -qq >/dev/null &&
    $root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
    say "apt-get could not install$missing"
