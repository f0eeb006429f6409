#!/usr/bin/env bash
# The life of a small model, from text to what other programs load:
#
#   1. learn a tokenizer of Go's standard library and pretrain a Llama on its source
#   2. fine-tune it on conversations made of its documentation: in MXFP4 with CAGE, without
#      CAGE, and in full precision
#   3. ask it something
#   4. export it for transformers, vLLM and llama.cpp; each export is read back and compared
#
# `make life` builds everything first. What is finished is not done again; what was
# interrupted goes on. docs/guide/start.md tells the same as a story.
set -eu
cd "$(dirname "$0")/.."
cage=bin/cage
data=data/life
runs=runs/life
source=$(go env GOROOT)/src

say() { printf '\n== %s\n' "$*"; }

finished() { grep -qs '"completed": true' "$runs/$1/summary.json"; }

# train NAME FILE [SETTING...] trains a configuration into runs/life/NAME.
train() {
	name=$1 file=$2
	shift 2
	if finished "$name"; then
		say "$runs/$name is finished (to train it again, remove that directory)"
		return
	fi
	say "Training $runs/$name"
	settings=()
	for s in "train.out=\"$runs/$name\"" "$@"; do settings+=(--set "$s"); done
	"$cage" train "$file" --resume "${settings[@]}"
}

if [ ! -f $data/tokenizer/tokenizer.json ]; then
	say "Learning a tokenizer of 2,048 tokens"
	"$cage" data prepare "$source" --include '*.go' --max-bytes 20000000 --out $data/bytes
	"$cage" data tokenizer $data/bytes/train.tokens --tokens 2048 --out $data/tokenizer
fi
if [ ! -f $data/go/dataset.json ]; then
	say "Preparing the source of Go's standard library"
	"$cage" data prepare "$source" --include '*.go' --tokenizer $data/tokenizer --validation 0.003 --out $data/go
fi
train pretrained examples/life/pretrain.toml

if [ ! -f $data/talks/chat.json ]; then
	say "Making conversations of its documentation"
	go run ./tools/docrows -root "$source" -out $data/talks.jsonl
	"$cage" data prepare $data/talks.jsonl --kind chat --template llama3 --tokenizer $data/tokenizer --validation 0.03 --out $data/talks
fi
train cage examples/life/finetune.toml
train plain examples/life/finetune.toml 'method={name="off"}'
train full-precision examples/life/finetune.toml 'method={name="off"}' 'quantizer={plugin="none"}'
"$cage" plot $runs/full-precision $runs/plain $runs/cage --out $runs/compare.png --out $runs/compare.svg

say "Asking the model that was trained with CAGE"
for question in 'What does the function strings.Cut do?' 'What is the package archive/tar?'; do
	printf '> %s\n' "$question"
	"$cage" chat $runs/cage --temperature 0 --tokens 80 --message "$question"
done

say "Exporting it; weights are those of training, bit for bit"
for export in 'hf' 'compressed-tensors' 'gguf'; do
	out=$runs/export/$export
	rm -rf "$out"
	"$cage" export $runs/cage --to "$export" --out "$out"
done
say "All exports were read back and compared. They are in $runs/export"
