#!/bin/sh
# Tests the package for plugins in Python: its types, its tests, and the conformance kit on the plugins in Python. It makes an
# environment outside of the repository, in CAGE_PYTHON_VENV or the user's cache; the first time needs the network. With
# CAGE_PYTHON, the path of a Python that has everything already, it makes none.
set -eu
cd "$(dirname "$0")/.."

python=${CAGE_PYTHON:-}
if [ -z "$python" ]; then
	venv=${CAGE_PYTHON_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/cage/python}
	[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	cp -R sdk/python "$copy" # pip builds where the source lies
	"$venv/bin/pip" install --quiet "$copy/python[jax,test]"
	python=$venv/bin/python
fi
cd sdk/python
"$python" -m mypy
"$python" -m pytest -q -p no:cacheprovider
cd ../..
PATH=$(dirname "$python"):$PATH
export PATH
for plugin in examples/plugins/python-*/python-*; do
	[ -x "$plugin" ] || continue
	echo "== $plugin"
	CAGE_PLUGIN_TIMEOUT=1m bin/cage plugins test "$plugin" >bin/python-kit.txt || { cat bin/python-kit.txt; exit 1; }
	tail -n 1 bin/python-kit.txt
done
${GO:-go} test -vet=off -count=1 ./examples/plugins/python-absmax
