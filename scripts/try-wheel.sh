#!/bin/sh
# Makes the wheels for this machine, twice, installs them in an empty virtual environment, and runs the README of cage-torch
# there, up to an export. PyTorch and what else they need come from the environment of a Python that has it.
#
#   scripts/try-wheel.sh PYTHON
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
target=$(${GO:-go} env GOOS)_$(${GO:-go} env GOARCH)
for build in first second; do
	${GO:-go} run ./tools/wheel -targets "$target" "$scratch/$build"
done
diff -r "$scratch/first" "$scratch/second"

"$1" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --no-index --no-deps "$scratch"/first/*.whl
"$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$scratch/path"
cp "$scratch/path" "$("$scratch/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/needed.pth"

readme=$PWD/sdk/python/torch/README.md
mkdir "$scratch/elsewhere"
cd "$scratch/elsewhere"
unset CAGE_PLUGIN_PATH PYTHONPATH
PATH=$scratch/venv/bin:/usr/bin:/bin # without another cage
"$scratch/venv/bin/python" - "$readme" <<-'END'
	import pathlib, re, sys
	from importlib import metadata

	import transformers
	from pip._vendor.packaging.requirements import Requirement

	for need in map(Requirement, metadata.requires("cage-torch")):
	    assert need.marker or metadata.version(need.name) in need.specifier, need
	import cage_torch
	assert cage_torch.__file__.startswith(sys.prefix), cage_torch.__file__
	config = transformers.LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
	snippet = re.search("```python\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(), re.DOTALL)
	exec(snippet[1], {"model": transformers.LlamaForCausalLM(config)})
END
cage version
cage plugins list
cage import trained --out run >/dev/null
echo "the wheels work"
