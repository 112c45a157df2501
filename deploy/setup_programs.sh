#!/bin/sh
# Programs that some tests run: HAProxy, nginx and Caddy those of deploy/'s configurations and of the docs, Firefox and a
# PulseAudio without a sound card those of the browser client, Redis (or Valkey) those of shared jobs, g++ that of a CUDA kernel on a CPU, and with its gcc that of decode.c, npm what
# setup_typescript.sh and setup_node.sh install. Some start services or change a desktop's sound, so all are installed
# where CI runs alone; elsewhere those tests are skipped, and say so. Never fails: in CI the tests do.
set -eu

say() { printf 'setup: %s\n' "$*"; }

missing=""
for name in haproxy nginx caddy pulseaudio firefox-esr redis-server g++ npm; do
    PATH="$PATH:/usr/sbin" command -v "$name" >/dev/null 2>&1 || missing="$missing $name"
done
if command -v firefox >/dev/null 2>&1; then # which Ubuntu has, and no ESR
    missing=$(printf '%s' "$missing" | sed 's/ firefox-esr//')
fi
if command -v valkey-server >/dev/null 2>&1; then
    missing=$(printf '%s' "$missing" | sed 's/ redis-server//')
fi
[ -n "$missing" ] || exit 0
root="sudo -n"
[ "$(id -u)" != 0 ] || root=""
if [ -z "${CI:-}" ] || ! $root true 2>/dev/null || ! command -v apt-get >/dev/null 2>&1; then
    say "without$missing: the tests that run them will be skipped (apt-get install$missing, to run them)"
    exit 0
fi
say "installing$missing with apt-get, for the tests that run them"
install() {
    $root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
$root apt-get update -qq >/dev/null || say "apt-get update failed"
install $missing || for name in $missing; do # one that the archive does not have keeps no other away
    install "$name" || say "apt-get could not install $name"
done
