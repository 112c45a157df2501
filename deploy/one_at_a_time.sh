# Read by a script that sets up: of two of it at once the second waits, else it would take for whole what the first has
# half made. The lock ends with the script. Where there is no flock, nobody waits.
if command -v flock >/dev/null 2>&1; then
    exec 9<"$0"
    flock -n 9 || { say "another one is at work here: waiting for it" && flock 9; } || true
fi
