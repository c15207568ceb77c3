#!/usr/bin/env bash
# Makes the development environment on a fresh Debian or Fedora machine: a Python with venv, then the locked packages.
# Usage: bootstrap.sh PYTHON VENV
set -euo pipefail
python=$1 venv=$2
say() { printf 'setup: %s\n' "$*"; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
for candidate in "$python" python3.14 python3.13 python3.12 python3.11; do
    if new_enough "$candidate"; then python=$candidate; break; fi
done

install() {
    if [ "$(id -u)" != 0 ]; then
        say "missing: $1. Install it (as root: $2), then run this again." >&2
        exit 1
    fi
    say "installing $1"
    $2 >/dev/null
}

if ! new_enough "$python" || ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if command -v apt-get >/dev/null; then
        install "python3 and python3-venv" "env DEBIAN_FRONTEND=noninteractive apt-get update -qq"
        install "python3 and python3-venv" "env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv"
    elif command -v dnf >/dev/null; then
        install "python3" "dnf -q -y install python3"
    fi
    new_enough "$python" || python=python3
fi
new_enough "$python" || { say "no Python 3.11 or newer was found" >&2; exit 1; }

if [ ! -x "$venv/bin/uv" ]; then
    say "virtual environment in $venv with $("$python" -V)"
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv>=0.5"
fi
say "packages from uv.lock"
VIRTUAL_ENV=$PWD/$venv "$venv/bin/uv" sync --frozen --all-groups --no-group docs --quiet --python "$venv/bin/python"
