#!/usr/bin/env bash
# Makes the data of the small studies from the source of Go's standard library, where it is
# not there yet: the same bytes for the same version of Go.
#
#   scripts/paper-data.sh           texts: data/paper
#   scripts/paper-data.sh tasks     texts, and tasks with texts for them: data/paper-tasks
set -eu
cd "$(dirname "$0")/.."
cage=bin/cage

say() { printf '\n== %s\n' "$*"; }

if [ ! -f data/paper/dataset.json ]; then
	say "Preparing data/paper from the source of Go's standard library"
	"$cage" data prepare "$(go env GOROOT)/src" --include '*.go' --validation 0.01 --out data/paper
fi
if [ "${1:-}" = tasks ] && [ ! -f data/paper-tasks/dataset.json ]; then
	say "Making tasks, and texts for them, from the source of Go's standard library"
	go run ./internal/gotasks/cmd -root "$(go env GOROOT)/src" -out data/paper-tasks/tasks
	"$cage" data prepare data/paper-tasks/tasks/train.jsonl --validation 0.01 --out data/paper-tasks
fi
