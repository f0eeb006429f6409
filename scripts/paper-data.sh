#!/usr/bin/env bash
# Makes the data of the small studies from the source of Go's standard library, where it is
# not there yet: of the release that go.mod names, whichever runs, for the same bytes
# everywhere. The go command fetches it where it is another one.
#
#   scripts/paper-data.sh           texts: data/paper
#   scripts/paper-data.sh tasks     texts, and tasks with texts for them: data/paper-tasks
set -eu
cd "$(dirname "$0")/.."
cage=bin/cage

goSource() {
	local root
	root=$(GOTOOLCHAIN="go$(awk '$1 == "go" { print $2 }' go.mod)" go env GOROOT) && echo "$root/src"
}

say() { printf '\n== %s\n' "$*"; }

if [ ! -f data/paper/dataset.json ]; then
	say "Preparing data/paper from the source of Go's standard library"
	source=$(goSource)
	"$cage" data prepare "$source" --include '*.go' --validation 0.01 --out data/paper
fi
if [ "${1:-}" = tasks ] && [ ! -f data/paper-tasks/dataset.json ]; then
	say "Making tasks, and texts for them, from the source of Go's standard library"
	source=$(goSource)
	go run ./tools/gotasks -root "$source" -out data/paper-tasks/tasks
	"$cage" data prepare data/paper-tasks/tasks/train.jsonl --validation 0.01 --out data/paper-tasks
fi
