#!/bin/sh
# Tests the packages for Python, cage-sdk and cage-torch: their types, their tests, and the conformance kit on the plugins in
# Python. It makes an environment outside of the repository, in CAGE_PYTHON_VENV or the user's cache; the first
# time needs the network. With CAGE_PYTHON, the path of a Python that has everything already, it makes none.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=${CAGE_PYTHON:-}
if [ -z "$python" ]; then
	venv=${CAGE_PYTHON_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/cage/python}
	[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
	cp -R sdk/python "$scratch" # pip builds where the source lies
	"$venv/bin/pip" install --quiet "$scratch/python[jax,test]" "$scratch/python/torch" torch==2.15.0 \
		transformers==5.23.0 compressed-tensors==0.20.0 gguf==0.19.0 mlx==0.32.4 mlx-cpu==0.32.4 \
		accelerate==1.15.0 peft==0.21.2 trl==1.16.0 torchao==0.18.0
	python=$venv/bin/python
fi
cd sdk/python
"$python" -m mypy
"$python" -m pytest -q -p no:cacheprovider
cd torch
"$python" -m mypy
CAGE_PLUGIN_PATH=$PWD/../../../bin/plugins PATH=$PWD/../../../bin:$PATH "$python" -m pytest -q -p no:cacheprovider
cd ../../..
scripts/try-wheel.sh "$python"
PATH=$(dirname "$python"):$PATH # plugins name python3
export PATH
# kit runs the conformance kit on a plugin and shows its last line, or all of it after a failure.
kit() {
	echo "== $1"
	CAGE_PLUGIN_TIMEOUT=1m bin/cage plugins test "$1" >"$scratch/kit.txt" || { cat "$scratch/kit.txt"; exit 1; }
	tail -n 1 "$scratch/kit.txt"
}
for plugin in examples/plugins/python-*/python-*; do
	[ ! -x "$plugin" ] || kit "$plugin"
done
${GO:-go} test -vet=off -count=1 ./examples/plugins/python-absmax

# cage-torch computes programs as the reference implementation does, and trains as cage does.
CAGE_TORCH=$python CAGE_TEST_PLUGINS=$PWD/bin/plugins ${GO:-go} test -vet=off -count=1 -timeout 60m ./host/train/conformance -run 'Torch'

# What cage plugins new writes works as written.
for language in python jax; do
	for kind in quantizer optimizer; do
		bin/cage plugins new $kind $language-$kind --language $language --dir "$scratch" >/dev/null
		(cd "$scratch/$language-$kind" && "$python" -m pytest -q -p no:cacheprovider)
		kit "$scratch/$language-$kind/plugin.py"
	done
done

# Lion of optax trains as Lion in Go does: every loss is the same, to the last digit.
bin/cage data prepare sdk --include '*.go' --validation 0.05 --out "$scratch/data" >/dev/null
for plugin in examples/plugins/lion examples/plugins/python-optax/python-optax; do
	cat >"$scratch/run.toml" <<-END
		model = {layers = 2, width = 64, heads = 2, context = 64}
		data = {train = "$scratch/data/train.tokens", validation = "$scratch/data/val.tokens"}
		train = {steps = 40, batch = 8, log_every = 1, out = "$scratch/$(basename $plugin)"}
		schedule = {rate = 3e-4}
		optimizer = {plugin = "$PWD/$plugin"}
		quantizer = {plugin = "absmax", bits = 4}
		method = {lambda = 2.0}
	END
	CAGE_PLUGIN_TIMEOUT=1m bin/cage train --quiet "$scratch/run.toml" >/dev/null
	grep -o '"loss":[^,}]*' "$scratch/$(basename $plugin)/metrics.jsonl" >"$scratch/$(basename $plugin).losses"
done
cmp "$scratch/lion.losses" "$scratch/python-optax.losses"
echo "== $(wc -l <"$scratch/lion.losses") losses of optax's Lion are those of Go's"
