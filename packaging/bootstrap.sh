#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the development environment on a fresh Debian or Fedora machine: a Python with venv, then the locked packages.
# Usage: bootstrap.sh PYTHON VENV
set -euo pipefail
venv=$2
say() { printf 'setup: %s\n' "$*"; }

python=$("${BASH_SOURCE[0]%/*}/tools.sh" python "$1")
if [ ! -x "$venv/bin/uv" ]; then
    say "virtual environment in $venv with $("$python" -V)"
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv>=0.5"
fi
say "packages from uv.lock"
VIRTUAL_ENV=$PWD/$venv "$venv/bin/uv" sync --frozen --all-groups --no-group docs --no-group fuzz --quiet --python "$venv/bin/python"
