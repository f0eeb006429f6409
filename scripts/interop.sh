#!/usr/bin/env bash
# Exports small models in every format and loads them with the programs that the formats are
# made for: transformers, compressed-tensors, gguf, llama.cpp, mlx-lm and lm-eval. Weights have to be
# equal bit for bit, losses, logits and log-likelihoods those of the other program, and a model
# that was trained on conversations has to end its answers there. What was found stands in
# docs/guide/export.md.
#
#   scripts/interop.sh
#   scripts/interop.sh computed [FAMILY…]   only what a config.json says: interop/computed.py
#   scripts/interop.sh lattice RUN TOKENS [COUNT]   a run in Q4_0, and what other programs make of it: interop/lattice.py
#
# The programs come from PyPI (about 6 GB, with PyTorch) and go into a virtual environment in
# $INTEROP_DIR (default: /tmp/cage-interop), where the models are made too. Building llama.cpp
# needs cmake and a C++ compiler. Nothing else of this repository uses Python packages.
set -eu
cd "$(dirname "$0")/.."
work=${INTEROP_DIR:-/tmp/cage-interop}
packages="torch==2.15.0 transformers==5.23.0 compressed-tensors==0.20.0 accelerate safetensors==0.8.0 gguf==0.19.0 llama-cpp-python==0.3.36 xllamacpp==2026.10.11549 lm-eval==0.4.13 mlx[cpu]==0.32.4 mlx-lm==0.32.2 torchao==0.18.0"
if [ "${1:-}" = lattice ]; then
	set -- lattice "$(realpath "$2")" "$(realpath "$3")" "${@:4}"
fi
. scripts/interop/setup.sh

python=$work/venv/bin/python
cage=$work/cage
computed() {
	"$python" "$repo/scripts/interop/computed.py" "$cage" "$repo/host/model/huggingface/testdata/llama32" computed "$@"
}
if [ "${1:-}" = computed ]; then
	computed "${@:2}"
	exit
fi
if [ "${1:-}" = lattice ]; then
	"$python" "$repo/scripts/interop/lattice.py" "$cage" "${@:2}"
	exit
fi
rm -rf runs llama2 eval tokenizer
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
	"$cage" score "runs/$name" --ids ids.jsonl --out scores.jsonl >/dev/null
	"$python" "$repo/scripts/interop/scores.py" "out/$name-hf" scores.jsonl
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

# apple NAME FLAG… exports to MLX and checks it, and the loss of the run that was trained last.
apple() {
	"$cage" export "runs/$1" --to mlx --out "out/$1-mlx" "${@:2}" >/dev/null
	"$python" "$repo/scripts/interop/apple.py" "out/$1-mlx" "out/$1-hf" --tokens "data/$data/val.tokens" --loss "$loss"
	rm -r "out/$1-mlx"
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

# newer NAME is llama for types that the wheel xllamacpp has.
newer() {
	"$cage" export "runs/$1" --to gguf --out "out/$1-gguf" >/dev/null
	"$cage" export "runs/$1" --to gguf --type f32 --out "out/$1-f32" >/dev/null
	"$python" "$repo/scripts/interop/xllama.py" "out/$1-gguf/model.gguf" "out/$1-f32/model.gguf" 2>/dev/null
	rm -r "out/$1-gguf" "out/$1-f32"
}

"$python" -c 'import compressed_tensors, gguf, importlib.metadata as m, torch, transformers
print(", ".join(f"{p} {m.version(p)}" for p in ("torch", "transformers", "compressed-tensors", "gguf", "llama-cpp-python", "mlx-lm", "lm-eval")))'

train int4 'quantizer.weights={plugin="absmax", granularity="group", group=32, scale_dtype="f16"}' 'model.head="tied"' \
	'model.rope_factor=8.0' 'model.rope_original=32'
packed int4
apple int4
llama int4
llama int4 --type f32
train int8 'quantizer.weights={plugin="absmax", bits=8, scale_dtype="f16"}'
packed int8
apple int8
llama int8
train centred 'quantizer.weights={plugin="absmax", grid="centred", scale_dtype="f16"}'
packed centred
apple centred
llama centred
run asymmetric 'quantizer.weights={plugin="absmax", grid="asymmetric", granularity="group", group=32}'
"$cage" export runs/asymmetric --to compressed-tensors --out out/asymmetric-ct >/dev/null
"$python" "$repo/scripts/interop/zeropoints.py" out/asymmetric-ct out/asymmetric-hf
train quest 'quantizer.weights={plugin="quest", rotation="none", scale_dtype="f16"}'
packed quest
apple quest
llama quest
train ternary 'quantizer.weights={plugin="paretoq", bits=0, scale_dtype="f16"}' 'model.width=256' 'model.hidden=256'
packed ternary
apple ternary
llama ternary
llama ternary --type tq1_0
train mxfp4 'quantizer.weights={plugin="mxfp4"}'
packed mxfp4
apple mxfp4
llama mxfp4
for kind in llama qwen3; do
	train "power-$kind" 'quantizer.weights={plugin="nvfp4", scale_form="power_of_two"}' 'model.hidden=128' "model.kind=\"$kind\""
	packed "power-$kind"
	newer "power-$kind"
done
for quantizer in '{plugin="mxfp4", scale_rule="round"}' '{plugin="nvfp4", scale_form="power_of_two", tensor_scale="tracked"}'; do
	run inputs "quantizer=$quantizer"
	packed inputs
	"$python" "$repo/scripts/interop/inputs.py" out/inputs-ct "data/$data/val.tokens" "$loss"
	rm -r runs/inputs out/inputs-*
done
train two 'quantizer.weights={plugin="quest", bits=2, rotation="none", scale_dtype="f16"}' 'model.hidden=128'
packed two
newer two
train rotated 'quantizer.weights={plugin="quest"}'
llama rotated --allow-floats
train olmo2 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.kind="olmo2"'
packed olmo2
apple olmo2
llama olmo2
llama olmo2 --type f32
train qwen2 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.kind="qwen2"'
packed qwen2
apple qwen2
llama qwen2
llama qwen2 --type f32
train smollm3 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.kind="smollm3"' 'model.layers=4'
packed smollm3
apple smollm3
llama smollm3
llama smollm3 --type f32
train nemo 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.head_size=32'
packed nemo
apple nemo
llama nemo
train qwen3 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.kind="qwen3"' 'model.head_size=32'
packed qwen3
apple qwen3
llama qwen3
llama qwen3 --type f32
train gemma2 'quantizer.weights={plugin="absmax", scale_dtype="f16"}' 'model.kind="gemma2"' 'model.head="tied"' \
	'model.attn_logit_softcapping=50.0' 'model.final_logit_softcapping=30.0'
packed gemma2
data=llama2
train llama2 'quantizer.weights={plugin="absmax", scale_dtype="f16"}'
packed llama2
apple llama2
llama llama2
computed
"$cage" eval runs/llama2 --tasks arc_easy,lambada_openai --data "$repo/host/deploy/tasks/testdata/data" --out eval/llama2 >/dev/null
"$python" "$repo/scripts/interop/lmeval.py" out/llama2-hf eval/llama2/samples_*.jsonl

# Conversations: the sums of small numbers, in which every turn ends with another token than a document.
number=(zero one two three four five six seven eight nine)
for a in {0..9}; do
	for ((b = 0; a + b < 10; b++)); do
		printf '{"messages": [{"role": "user", "content": "%s and %s"}, {"role": "assistant", "content": "%s"}]}\n' \
			"${number[a]}" "${number[b]}" "${number[a + b]}"
	done
done >talks.jsonl
"$cage" data tokenizer data/bytes/train.tokens --tokens 300 --out tokenizer >/dev/null
"$cage" data prepare talks.jsonl --kind chat --template llama3 --tokenizer tokenizer --validation 0.1 --out data/talks >/dev/null
"$cage" train model.toml --set 'train={steps=300, batch=4, out="runs/chat"}' --set 'schedule.rate=5e-3' \
	--set 'data={kind="chat", train="data/talks/train.chat", validation="data/talks/val.chat", epochs=60}' >train.log 2>&1 || { cat train.log >&2; exit 1; }
"$cage" export runs/chat --to hf --out out/chat-hf >/dev/null
"$cage" export runs/chat --to gguf --out out/chat-gguf >/dev/null
for question in 'two and three' 'one and one' 'four and zero' 'zero and nine'; do
	"$cage" chat runs/chat --message "$question" --temperature 0 --tokens 24 --json | "$python" -c 'import json, sys; print(json.dumps(json.load(sys.stdin)))'
done >answers.jsonl
"$python" "$repo/scripts/interop/chat.py" out/chat-hf answers.jsonl --gguf out/chat-gguf/model.gguf
echo "all is equal"
