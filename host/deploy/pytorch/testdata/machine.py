"""Runs functions for tests: a line of JSON on standard input is a job, one on standard output its result."""

import copy
import json
import math
import sys
import warnings

import torch

DTYPES = {"float": torch.float32, "int": torch.int32, "uint": torch.int64, "bool": torch.bool}
compiled = {}


def tensor(job):
    x = torch.tensor(job["bits"], dtype=torch.int64)
    if job["dtype"] == "float":
        x = x.to(torch.int32).view(torch.float32)
    return x.to(DTYPES[job["dtype"]]).reshape(job["shape"])


def bits(x):
    if x.dtype == torch.float32:
        x = x.contiguous().view(torch.int32)
    return x.to(torch.int64).reshape(-1).tolist()


def run(job):
    key = job["source"], job["compile"]
    if key not in compiled:
        names = {"torch": torch, "math": math, "copy": copy, "warnings": warnings}
        exec(job["source"], names)
        f = names["Program"].f
        compiled[key] = torch.compile(f, backend="aot_eager") if job["compile"] else f
    return [{"shape": list(y.shape), "bits": bits(y)} for y in compiled[key](*map(tensor, job["inputs"]))]


torch.set_num_threads(1)
for line in sys.stdin:
    try:
        result = {"outputs": run(json.loads(line))}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
