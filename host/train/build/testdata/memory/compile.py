"""Has XLA compile the steps of the configurations in compiled.jsonl, and writes there what it says of their memory, in bytes. In the root of the
repository, with a bin/cage that was built with the tag cuda and the plugins in CAGE_PLUGIN_PATH:

    scripts/predict.sh python3 host/train/build/testdata/memory/compile.py

Each line has the keys that are set in addition to base.toml. Only lines without figures are compiled: to compile all again, delete these.
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = HERE + "/compiled.jsonl"
NAMES = {"parameters, and": "state", "values inside": "temporary", "its code": "other"}


def compiled(entry):
    sets = [word for key in entry["set"] for word in ("--set", key)]
    answer = subprocess.run(["bin/cage", "train", HERE + "/base.toml", "--estimate", "--json", *sets], capture_output=True, text=True)
    if answer.returncode:
        print(answer.stderr, file=sys.stderr)
        return None
    report = json.loads(answer.stdout)
    if report["by"] != "XLA":
        print(report["reason"], file=sys.stderr)
        return None
    parts = {name: int(p["bytes"]) for p in report["parts"] for start, name in NAMES.items() if p["what"].startswith(start)}
    return dict(set=entry["set"], **parts, seconds=round(report["seconds"]))


with open(LIST) as file:
    entries = [json.loads(line) for line in file if line.strip()]
for i, entry in enumerate(entries):
    if "temporary" not in entry and (done := compiled(entry)):
        entries[i] = done
        with open(LIST + ".new", "w") as file:
            file.writelines(json.dumps(e, ensure_ascii=False) + "\n" for e in entries)
        os.replace(LIST + ".new", LIST)
        print(json.dumps(done), flush=True)
