#!/bin/sh
# Makes .venv ready for `demo` or `dev`: finds a Python by trying, then hands over to dev/install.py.
# Usage: dev/bootstrap.sh demo|dev      PYTHON=/path/to/python chooses one.
set -eu
cd "$(dirname "$0")/.."
kind=$1

if [ -z "${PYTHON:-}" ] && .venv/bin/python dev/install.py --check "$kind" 2>/dev/null; then
    exit 0
fi

# A name proves nothing: a pyenv shim can exist and refuse, and Debian splits off the module that makes environments.
# Prints the path of the interpreter behind $1 when it is new enough and whole.
try() {
    "$1" -c '
import sys
assert sys.version_info >= (3, 12)
import ensurepip, venv
print(sys.executable)' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        try "$PYTHON"
        return
    fi
    for name in python3.14 python3.13 python3.12 python3; do
        try "$name" && return
    done
    for path in "${HOME:-/nonexistent}"/.pyenv/versions/*/bin/python; do
        try "$path" && return
    done
    command -v uv >/dev/null || return 1
    path=$(uv python find '>=3.12' 2>/dev/null) && try "$path" && return
    echo "Installing Python 3.13 with uv" >&2
    uv python install 3.13 >&2 && path=$(uv python find 3.13) && try "$path"
}

if ! python=$(find_python); then
    if [ -n "${PYTHON:-}" ]; then
        echo "PYTHON=$PYTHON is no Python 3.12 or newer with the module venv." >&2
        exit 1
    fi
    for name in python3.14 python3.13 python3.12 python3; do
        if "$name" -c 'import sys; assert sys.version_info >= (3, 12)' 2>/dev/null; then
            echo "$name is new enough but cannot make environments: its modules venv and ensurepip are missing." >&2
            echo "On Debian and Ubuntu they are in the package $name-venv. Or install uv, and start again." >&2
            exit 1
        fi
    done
    echo "Python 3.12 or newer is needed and was not found: on the PATH, in ~/.pyenv/versions or through uv." >&2
    echo "Install one of them (any user can: uv or pyenv), or start again with PYTHON=/path/to/python" >&2
    exit 1
fi
exec "$python" dev/install.py "$kind"
