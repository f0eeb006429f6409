#!/usr/bin/env bash
# Compiles the training step of each preset for an NVIDIA GPU that is not there, and prints
# what XLA makes of it: memory, what is updated in place, kernels, and for each kind of kernel
# a lower bound of its time from the bytes and operations that it takes. A prediction, not a
# measurement.
#
#   scripts/predict.sh           the table, and the tests of these properties
#
# `cage bench step` gives the programs, on a PJRT plugin that records and computes nothing
# (host/internal/pjrtrecord); scripts/predict.py has JAX's plugin for CUDA compile them. JAX,
# that plugin and its toolkit come from PyPI (4.4 GB) and go into a virtual environment in
# $PREDICT_DIR (default: cage-predict in the user's cache). Without a C compiler or without
# these there is nothing to do. Settings, by environment variables:
#
#   SIZES    presets, each with its batch (30M:64 100M:64 430M:64)
#   CONTEXT  tokens per sequence (512)
#   KERNELS  fused or graph: how the programs of quantizers are computed (fused)
#   STEP     more flags of cage bench step (none)
#   PYTHON   a Python of 3.12 or later (python3)
set -euo pipefail
cd "$(dirname "$0")/.."
name=predict
work=${PREDICT_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/cage-predict}
version=0.12.0.1
packages="jax==$version jaxlib==$version jax-cuda13-pjrt==$version jax-cuda13-plugin[with-cuda]==$version numpy==2.5.5"
unavailable=0
. scripts/pjrtrecord.sh

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || missing "$python is no Python of 3.12 or later: name one in PYTHON"
install "$python"
mkdir -p "$work/programs"
python=$work/venv/bin/python

CAGE_TEST_PREDICT=$python go test -tags cuda -count=1 ./host/step -run Predicted

record
go build -tags cuda -o "$work/cage" ./cmd/cage
go build -buildvcs=false -o "$work/plugins/" ./plugins/*
export CAGE_PLUGIN_PATH=$work/plugins CAGE_RECORD_DEVICES=1

# predict PRESET BATCH compiles the step of a preset.
predict() {
	local dir=$work/programs/$1
	rm -rf "$dir"
	mkdir -p "$dir"
	# shellcheck disable=SC2086 # STEP holds words
	CAGE_RECORD_DIR=$dir "$work/cage" bench step --alone --steps 1 --device cuda --precision bfloat16 --set 'device.attention="fused"' --set "device.kernels=\"${KERNELS:-fused}\"" \
		--preset "$1" --batch "$2" --context "${CONTEXT:-512}" ${STEP:-} >"$dir/bench.json"
	"$python" scripts/predict.py compile "$(grep -l '^module @step' "$dir"/*.mlir)" "$dir/dump" >"$dir/compiled.json"
	rm -rf "$dir/dump"
}

results=()
for size in ${SIZES:-30M:64 100M:64 430M:64}; do
	predict "${size%:*}" "${size#*:}"
	results+=("${size%:*}, ${size#*:} × ${CONTEXT:-512}=$work/programs/${size%:*}/compiled.json:$work/programs/${size%:*}/bench.json")
done
echo
echo "Predicted, not measured: $(git rev-parse --short HEAD), $(date -u +%F), jax $version."
echo
"$python" scripts/predict.py table "${results[@]}"
