#!/bin/sh
# A whole worker in sh and curl, one task at a time: worker.sh [http://127.0.0.1:8080]
set -eu
api=${1:-http://127.0.0.1:8080}/api/v1 log=$(mktemp)
call() {
    curl -sS --fail-with-body -H "Authorization: Bearer ${ROTA_TOKEN:-}" -H "X-Rota-Incarnation: ${ROTA_INCARNATION:-}" "$@"
}
beat() { call "$api/workers/heartbeat" --json "{\"worker_id\": \"$ROTA_WORKER_ID\", \"running\": [$1]}" >/dev/null; }
eval "$(call "$api/workers/register?format=sh" --json "{\"worker_id\": \"sh-$$\", \"kinds\": [\"shell\"]}")"
while beat ""; do
    order=$(call "$api/workers/$ROTA_WORKER_ID/next?format=sh&wait=5") && [ -n "$order" ] || continue
    eval "$order"
    while beat "{\"task_run_id\": \"$ROTA_TASK_RUN_ID\", \"attempt\": $ROTA_ATTEMPT}"; do sleep 2; done & beats=$!
    timeout "$ROTA_TIMEOUT_SECONDS" sh -c "$ROTA_SCRIPT" >"$log" 2>&1 </dev/null && code=0 || code=$?
    kill "$beats"
    call "$api/jobs/$ROTA_TASK_RUN_ID/log?worker_id=$ROTA_WORKER_ID&attempt=$ROTA_ATTEMPT&exit_code=$code" \
        -H "Content-Type: application/octet-stream" --data-binary "@$log" || true
done
