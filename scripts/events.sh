#!/usr/bin/env bash
# Has TensorBoard and Weights & Biases read the event files of a run, and compares what they
# find with its records. What was found stands in docs/guide/live-pages.md.
#
#   scripts/events.sh
#
# The programs come from PyPI (about 200 MB) and go into a virtual environment in $EVENTS_DIR
# (default: /tmp/cage-events). wandb 0.29 is the last with --sync-tensorboard. Nothing is sent
# to any network: `wandb sync` uploads to a server on this machine, which keeps what it gets.
set -eu
cd "$(dirname "$0")/.."
work=${EVENTS_DIR:-/tmp/cage-events}
packages="tensorboard==2.21.0 wandb==0.29.0"
. scripts/interop/setup.sh

rm -rf run
./cage data prepare "$(go env GOROOT)/src/strconv" --include '*.go' --validation 0.2 --out data >/dev/null
cat >run.toml <<'TOML'
model = {layers = 2, width = 64, heads = 2, context = 64}
data = {train = "data/train.tokens", validation = "data/val.tokens"}
train = {steps = 60, batch = 4, eval_every = 20, eval_batches = 4, log_every = 1, tensorboard = true, out = "run"}
schedule = {rate = 3e-3}
quantizer = {plugin = "quest", bits = 4}
optimizer = {plugin = "adamw"}
diagnostics = {tensors = true}
TOML
./cage train run.toml --quiet
"venv/bin/python" "$repo/scripts/interop/events.py" run run/tensorboard
