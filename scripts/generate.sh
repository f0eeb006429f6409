#!/bin/sh
# Writes all generated files: the code of the protocols, the licences of others' code, the tables of
# operations, configuration keys, flags and a run's numbers, and the assembler of matrix products.
# It needs nothing but Go. With --check it writes only the first two, and fails when they were not
# up to date: tests look at the others.
set -eu
cd "$(dirname "$0")/.."

state() {
	find sdk/internal/wire/cage host/train/processes/wire sdk/python/cage_sdk/protocol.binpb THIRD_PARTY_LICENSES -type f -exec cksum {} + | sort
}

before=$(state)
go generate ./sdk/internal/wire ./host/train/processes/wire
go run ./tools/licenses
if [ "${1:-}" != --check ]; then
	go generate ./sdk/program ./cmd/cage ./host/compute/matmul
elif [ "$before" != "$(state)" ]; then
	echo "generated files were not up to date: commit what scripts/generate.sh has written" >&2
	exit 1
fi
