#!/usr/bin/env bash
# Writes the kept results of docs/results into the documents, and says there which are
# stale. With --check it fails when a document says something else. `make docs` and
# `make docs-check` build everything first.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/paper-data.sh tasks
# The cells of worth-it.toml depend on the sizes of the model that it starts from. Without that
# model (270 MB), its config.json is enough to show their results.
model=data/finetune/hf
if [ ! -e "$model" ]; then
	mkdir -p "$model"
	trap 'rm -r "$model"; rmdir -p "$(dirname "$model")" 2>/dev/null || true' EXIT
	cp docs/results/smollm2-135m/config.json "$model"
fi
# shellcheck disable=SC2046 # a list of files
go run ./tools/docsnapshots -results docs/results -plugins bin/plugins ${1:+-check} $(git ls-files 'docs/*.md' README.md)
