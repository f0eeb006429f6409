#!/usr/bin/env bash
# The small variants of the paper's experiments, one after another: trains what is
# missing, writes the reports, and says where they are. It can be interrupted and
# started again at any time. `make paper-small` builds everything first.
#
#   scripts/paper.sh                all
#   scripts/paper.sh toy lotion …   only these
set -eu
cd "$(dirname "$0")/.."
cage=bin/cage

say() { printf '\n== %s\n' "$*"; }

if [ ! -x "$cage" ]; then
	echo "$cage is not built: run 'make build', or 'make paper-small'" >&2
	exit 1
fi

studies=(toy quadratic effect-small main-small ablation-small optimizers-small lotion-small schedule-small scaling-small tasks-small)
if [ $# -gt 0 ]; then
	studies=()
	for name in "$@"; do
		[ -f "examples/paper/$name.toml" ] || name=$name-small
		[ -f "examples/paper/$name.toml" ] || { echo "there is no examples/paper/$name.toml" >&2; exit 2; }
		studies+=("$name")
	done
fi

if [ ! -f data/paper/dataset.json ]; then
	say "Preparing data/paper from the source of Go's standard library"
	"$cage" data prepare "$(go env GOROOT)/src" --include '*.go' --validation 0.01 --out data/paper
fi

if [[ " ${studies[*]} " == *" tasks-small "* ]] && [ ! -f data/paper-tasks/dataset.json ]; then
	say "Making tasks, and texts for them, from the source of Go's standard library"
	go run ./internal/gotasks/cmd -root "$(go env GOROOT)/src" -out data/paper-tasks/tasks
	"$cage" data prepare data/paper-tasks/tasks/train.jsonl --validation 0.01 --out data/paper-tasks
fi

files=()
for name in "${studies[@]}"; do
	say "Study $name"
	"$cage" study run "examples/paper/$name.toml"
	files+=("examples/paper/$name.toml")
	if [ "$name" = scaling-small ]; then
		"$cage" fit studies/scaling-small --out studies/scaling-small/fit
	fi
done

if [ $# -eq 0 ]; then
	say "What CAGE adds to a step"
	"$cage" bench overhead | tee studies/overhead.txt
fi

say "Reports"
"$cage" study report "${files[@]}" --contents studies/index.html
