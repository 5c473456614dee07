#!/usr/bin/env bash
# Files that are written by a program must be what the program writes today.
# scripts/generated.txt lists them, one `path: command` a line; run the command to bring the file up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

stale=0
while IFS= read -r line; do
    case "$line" in "" | "#"*) continue ;; esac
    path="${line%%: *}"
    command="${line#*: }"
    before="$(mktemp)"
    cp "$path" "$before" 2>/dev/null || : >"$before"
    bash -c "$command" </dev/null
    if ! diff -u "$before" "$path"; then
        echo "$path was out of date: it is rewritten now, commit it" >&2
        stale=1
    fi
    rm -f "$before"
done <scripts/generated.txt
exit "$stale"
