#!/usr/bin/env bash
# Trains and shows small language models on the source of Go's standard library:
#
#   scripts/demo.sh qat       4-bit weights and activations with CAGE
#   scripts/demo.sh compare   also in full precision and without CAGE, side by side
#   scripts/demo.sh data      only its data
#
# What is finished is not trained again; what was interrupted goes on. `make demo`
# and `make demo-compare` build everything first.
set -eu
cd "$(dirname "$0")/.."
cage=bin/cage

say() { printf '\n== %s\n' "$*"; }

prepare() {
	if [ -f data/go/dataset.json ]; then
		return
	fi
	say "Preparing data/go from the source of Go's standard library"
	"$cage" data prepare "$(go env GOROOT)/src" --include '*.go' --validation 0.003 --out data/go
}

finished() { grep -qs '"completed": true' "runs/$1/summary.json"; }

# train NAME trains examples/NAME.toml into runs/NAME.
train() {
	if finished "$1"; then
		say "runs/$1 is finished (to train it again, remove that directory)"
		return
	fi
	say "Training examples/$1.toml"
	code=0
	"$cage" train "examples/$1.toml" --resume || code=$?
	if finished "$1"; then
		return
	fi
	echo "The run is not finished. The same command goes on with it; to start over, remove runs/$1." >&2
	exit "$code"
}

sample() {
	say "A sample of runs/$1: 'func ' and 240 more bytes"
	"$cage" generate "runs/$1" --prompt 'func ' --tokens 240 --temperature 0.7 --seed 1
}

qat() {
	prepare
	train demo
	say "Evaluating the checkpoint once more: the perplexity is that of the end of training"
	"$cage" eval runs/demo
	sample demo
	say "Drawing the curves"
	"$cage" plot runs/demo --title 'W4A4 with CAGE'
	say "All of the run is in runs/demo:"
	cat <<-'EOF'
		curves.png, curves.svg   loss, quantization error and λ_t over the steps
		summary.json             results
		metrics.jsonl            one record for every tenth step
		run.toml                 the configuration with all defaults and hashes
		checkpoints/             the last states
	EOF
}

compare() {
	prepare
	for name in demo-fp demo-quest demo; do
		train "$name"
	done
	say "Full precision, QuEST, QuEST with CAGE: the same model, data and steps"
	"$cage" runs list runs/demo-fp runs/demo-quest runs/demo --columns run,steps,val_loss,val_ppl,error_rel,tokens_per_second
	echo
	echo "The curves of all three:"
	"$cage" plot runs/demo-fp runs/demo-quest runs/demo --out runs/compare.png --out runs/compare.svg
}

if [ ! -x "$cage" ]; then
	echo "$cage is not built: run 'make build', or 'make demo'" >&2
	exit 1
fi
case "${1-}" in
qat) qat ;;
compare) compare ;;
data) prepare ;;
*)
	echo "usage: scripts/demo.sh qat|compare|data" >&2
	exit 2
	;;
esac
