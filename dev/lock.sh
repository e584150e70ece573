#!/bin/sh
# Locks requirements/*.in with hashes into requirements/*.txt, for Python 3.12 and newer. Each file is resolved under
# the one before it, so that the image, the demo and the tests run the same versions. No address is written.
set -eu
cd "$(dirname "$0")/../requirements"
compile() {
    name=$1
    shift
    ../.venv/bin/uv pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-header \
        --annotation-style line "$@" --output-file "$name.txt" "$name.in"
}
compile base "$@"
compile demo --constraints base.txt "$@"
compile dev --constraints demo.txt "$@"
