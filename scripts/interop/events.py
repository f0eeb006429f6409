#!/usr/bin/env python3
"""Compares what TensorBoard and Weights & Biases take of a run's event files with its records.

    events.py RUN EVENTS...

RUN is a run directory, each of EVENTS a directory with event files of it. TensorBoard's own
reader must find every number of metrics.jsonl. `wandb sync` uploads to a server on this
machine, which this script is: it answers as much as the program asks, and keeps the history.
Numbers are float32 in event files.
"""

import gzip
import http.server
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

history = []


class Server(http.server.BaseHTTPRequestHandler):
    """As much of the API of Weights & Biases as `wandb sync` needs."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(text) if self.headers.get("Content-Encoding") == "gzip" else text

    def reply(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        asked = json.loads(self.body())
        if self.path == "/graphql":
            self.reply({"data": answer(asked.get("variables", {}), f"http://{self.headers['Host']}")})
            return
        for line in asked.get("files", {}).get("wandb-history.jsonl", {}).get("content", []):
            history.append(json.loads(line))
        self.reply({})

    def do_PUT(self):  # uploads of files
        self.body()
        self.reply({})


def answer(variables, base):
    name = variables.get("name") or "run"
    run = {"id": "id", "name": name, "displayName": name, "config": "{}", "historyLineCount": 0, "summaryMetrics": "{}",
           "project": {"id": "id", "name": "cage", "entity": {"id": "id", "name": "entity"}}}
    files = [{"name": f, "uploadUrl": base + "/upload"} for f in variables.get("files", [])]
    return {"viewer": {"id": "id", "entity": "entity", "flags": "{}"}, "upsertBucket": {"bucket": run, "inserted": True},
            "createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}, "model": {"bucket": run}}


def single(x):
    """x as a float32; numbers that are none are text in records and in the history."""
    x = float(str(x).replace("Infinity", "inf"))
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def same(a, b):
    return a == b or math.isnan(a) and math.isnan(b)


def scalars(events):
    """What TensorBoard reads, as {(tag, step): value}."""
    reader = EventAccumulator(events, size_guidance={"scalars": 0}).Reload()
    return {(tag, e.step): e.value for tag in reader.Tags()["scalars"] for e in reader.Scalars(tag)}


def check_records(run, shown):
    names = {"loss": "train/loss", "val_loss": "validation/loss", "lr": "train/learning rate", "lambda": "correction/λ", "error_rel": "quantization/error, relative and squared"}
    compared = 0
    for line in open(os.path.join(run, "metrics.jsonl"), encoding="utf-8"):
        record = json.loads(line)
        for key, tag in names.items():
            if key in record and not ("val_loss" in record and key != "val_loss"):
                got = shown.get((tag, record["step"]))
                assert got is not None and same(single(record[key]), got), f"{tag} of step {record['step']}: {got}, in the record {record[key]}"
                compared += 1
    assert compared, "the run has no records"
    return compared


def synced(events):
    """What `wandb sync` uploads, as {(tag, step): value}."""
    history.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wandb = os.path.join(os.path.dirname(sys.executable), "wandb")
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "0" * 40, "WANDB_DIR": home, "HOME": home,
               "WANDB_ERROR_REPORTING": "false"}
        out = subprocess.run([wandb, "sync", "--sync-tensorboard", "-p", "cage", "-e", "entity", events], env=env, capture_output=True, text=True, timeout=600)
    server.shutdown()
    assert out.returncode == 0, out.stderr
    found = {}
    for line in history:
        steps = [v for k, v in line.items() if re.search(r"(^|/)global_step$", k)]
        for key, value in line.items():
            tag = re.sub(r"^[^/]*/(?=[^/]+/)", "", key)  # without the name of the directory
            if not key.startswith("_") and "global_step" not in key and isinstance(value, (int, float, str)):
                found[tag, int(steps[0])] = single(value)
    return found


def main():
    run, *directories = sys.argv[1:]
    for events in directories:
        shown = scalars(events)
        compared = check_records(run, shown)
        print(f"{events}: TensorBoard reads {len(shown)} numbers; {compared} of them were compared with the records, and are equal")
        uploaded = synced(events)
        missing = [k for k in shown if k not in uploaded]
        other = [k for k in shown if k in uploaded and not same(single(shown[k]), uploaded[k])]
        assert not missing and not other, f"{len(missing)} numbers are missing, as {missing[:3]}; {len(other)} differ, as {other[:3]}"
        print(f"{events}: wandb sync uploads {len(shown)} numbers, equal to those")


main()
