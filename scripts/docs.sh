#!/bin/sh
# Writes the kept results of docs/results into the documents, and says there which are
# stale. With --check it fails when a document says something else. `make docs` and
# `make docs-check` build everything first.
set -eu
cd "$(dirname "$0")/.."

scripts/paper-data.sh tasks
# shellcheck disable=SC2046 # a list of files
go run ./tools/docsnapshots -results docs/results -plugins bin/plugins ${1:+-check} $(git ls-files 'docs/*.md' README.md)
