#!/usr/bin/env bash
# Exports small models in every format and loads them with the programs that the formats are
# made for: transformers, compressed-tensors, gguf and llama.cpp. Weights have to be equal bit
# for bit, and losses and logits those of the other program. What was found stands in
# docs/export.md.
#
#   scripts/interop.sh
#
# The programs come from PyPI (about 6 GB, with PyTorch) and go into a virtual environment in
# $INTEROP_DIR (default: /tmp/cage-interop), where the models are made too. Building llama.cpp
# needs cmake and a C++ compiler. Nothing else of this repository uses Python packages.
set -eu
cd "$(dirname "$0")/.."
work=${INTEROP_DIR:-/tmp/cage-interop}
packages="torch==2.15.0 transformers==5.23.0 compressed-tensors==0.20.0 accelerate safetensors==0.8.0 gguf==0.19.0 llama-cpp-python==0.3.36"
. scripts/interop/setup.sh

python=$work/venv/bin/python
cage=$work/cage
rm -rf runs llama2
sources=("$(go env GOROOT)/src/strconv")
"$cage" data prepare "${sources[@]}" --include '*.go' --validation 0.2 --out data/bytes >/dev/null
# A tokenizer as that of Llama 2.
mkdir llama2
cp "$repo/host/data/tokenizer/testdata/llama2.tokenizer.json" llama2/tokenizer.json
echo '{"bos_token": "<s>", "eos_token": "</s>"}' >llama2/tokenizer_config.json
"$cage" data prepare "${sources[@]}" --tokenizer llama2 --include '*.go' --validation 0.2 --out data/llama2 >/dev/null
"$python" "$repo/scripts/interop/texts.py" "$repo" >texts.jsonl
"$cage" data prepare texts.jsonl --tokenizer llama2 --out data/texts >/dev/null

cat >model.toml <<'END'
[model]
layers = 2
width = 64
heads = 4
kv_heads = 2
hidden = 96
context = 64
[data]
train = "data/bytes/train.tokens"
validation = "data/bytes/val.tokens"
[train]
steps = 60
batch = 4
final_eval_batches = 0
[schedule]
rate = 1e-2
END

# Sequences of up to one token more than the context, in ids that all tokenizers have.
"$python" -c 'import random
random.seed(1)
for n in [2, 3, 64, 65] + [random.randint(2, 65) for _ in range(20)]:
    print([random.randrange(256) for _ in range(n)])' >ids.jsonl

# train NAME SETTING… trains a model on data/$data, exports Q(x) as floats and checks it, and each token that it scores.
train() {
	run "$@"
	"$python" "$repo/scripts/interop/hub.py" "out/$name-hf" "out/$name-hf" --tokens "data/$data/val.tokens" --loss "$loss"
	"$cage" score "runs/$name" --ids ids.jsonl --out scores.safetensors >/dev/null
	"$python" "$repo/scripts/interop/scores.py" "out/$name-hf" scores.safetensors
}

# run is train without the check. It sets name and loss.
data=bytes
run() {
	name=$1
	shift
	arguments=(--set "data.train=\"data/$data/train.tokens\"" --set "data.validation=\"data/$data/val.tokens\"")
	for setting in "$@"; do
		arguments+=(--set "$setting")
	done
	"$cage" train model.toml --set "train.out=\"runs/$name\"" "${arguments[@]}" >train.log 2>&1 || { cat train.log >&2; exit 1; }
	"$cage" export "runs/$name" --to hf --out "out/$name-hf" >/dev/null
	loss=$("$cage" eval "runs/$name" --json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["loss"])')
}

# packed NAME FLAG… exports to compressed-tensors and checks it.
packed() {
	"$cage" export "runs/$1" --to compressed-tensors --out "out/$1-ct" "${@:2}" >/dev/null
	"$python" "$repo/scripts/interop/hub.py" "out/$1-ct" "out/$1-hf"
}

# both NAME SETTING… trains a model with quantized activations, which the floats do not have, exports it to
# compressed-tensors and checks that.
both() {
	run "$@"
	"$cage" export "runs/$name" --to compressed-tensors --activations --out "out/$name-ct" >/dev/null
	"$python" "$repo/scripts/interop/hub.py" "out/$name-ct" "out/$name-hf"
	"$python" "$repo/scripts/interop/activations.py" "out/$name-ct" "out/$name-hf" --tokens "data/$data/val.tokens" --loss "$loss"
}

# llama NAME FLAG… exports to GGUF and checks it, with the ids of texts where the data were tokenized as they were.
llama() {
	"$cage" export "runs/$1" --to gguf --out "out/$1-gguf" "${@:2}" >/dev/null
	"$python" "$repo/scripts/interop/llama.py" "out/$1-gguf/model.gguf" "out/$1-hf"
	if [ "$data" = llama2 ]; then
		"$python" "$repo/scripts/interop/tokens.py" "out/$1-gguf/model.gguf" texts.jsonl data/texts
	fi
	rm -r "out/$1-gguf"
}

"$python" -c 'import compressed_tensors, gguf, importlib.metadata as m, torch, transformers
print(", ".join(f"{p} {m.version(p)}" for p in ("torch", "transformers", "compressed-tensors", "gguf", "llama-cpp-python")))'

train int4 'quantizer.weights={plugin="absmax", granularity="group", group=32, scale_dtype="f16"}' 'model.head="tied"' \
	'model.rope_factor=8.0' 'model.rope_original=32'
packed int4
llama int4
llama int4 --type f32
train int8 'quantizer.weights={plugin="absmax", bits=8, scale_dtype="f16"}'
packed int8
llama int8
train centred 'quantizer.weights={plugin="absmax", grid="centred", scale_dtype="f16"}'
packed centred
llama centred
train quest 'quantizer.weights={plugin="quest", rotation="none", scale_dtype="f16"}'
packed quest
llama quest
train mxfp4 'quantizer.weights={plugin="mxfp4"}'
packed mxfp4
llama mxfp4
train nvfp4 'quantizer.weights={plugin="nvfp4", scale_form="encode"}'
packed nvfp4
train rotated 'quantizer.weights={plugin="quest"}'
llama rotated
both int4-both 'quantizer={plugin="absmax", grid="full"}'
both int8-both 'quantizer={plugin="absmax", grid="full", bits=8}'
both mxfp4-both 'quantizer={plugin="mxfp4", scale_rule="round"}'
train olmo2 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.kind="olmo2"'
packed olmo2
llama olmo2
llama olmo2 --type f32
train qwen3 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.kind="qwen3"' 'model.head_size=32'
packed qwen3
llama qwen3
llama qwen3 --type f32
data=llama2
train llama2 'quantizer.weights={plugin="absmax", scale_dtype="f16"}'
packed llama2
llama llama2
echo "all is equal"
