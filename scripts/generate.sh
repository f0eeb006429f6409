#!/bin/sh
# Writes all generated files: the code of the plugin protocol, the table of
# operations, those of configuration keys and of a run's numbers, the assembler of matrix products, and the licences of
# others' code. It needs
# nothing but Go. With --check it fails when a generated file was not up to date, and
# leaves it up to date.
set -eu
cd "$(dirname "$0")/.."

generated="sdk/internal/wire/cage host/train/processes/wire sdk/python/cage_sdk/protocol.binpb docs/reference/operations.md docs/reference/configuration.md docs/reference/records.md docs/reference/command-line.md host/compute/matmul THIRD_PARTY_LICENSES"

state() {
	# shellcheck disable=SC2086 # a list of paths
	find $generated -type f -exec cksum {} + | sort
}

before=$(state)
go generate ./sdk/... ./host/train/processes/wire ./cmd/cage ./host/compute/matmul
go run ./tools/licenses
if [ "${1:-}" = --check ] && [ "$before" != "$(state)" ]; then
	echo "generated files were not up to date: commit what scripts/generate.sh has written" >&2
	exit 1
fi
