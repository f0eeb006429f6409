"""Runs programs for tests in Go: a line of JSON on standard input is a job, one on standard output its result.

A float is the bits of its float64. A job has a program, and inputs; compile=True compiles its graph. With `of`, the results are
the gradients of that output, with respect to the inputs `wrt`, in float64: by the rules of this package and the executor of
cage-sdk. A job with `plugin` is Q(x) of a Quantizer with these settings, and gradients.
"""

import json
import sys

import numpy as np
import torch
from cage_sdk.executor import run as execute
from cage_sdk.infer import Type
from cage_sdk.program import Node, Program
from cage_torch import Quantizer
from cage_torch.autodiff import PREFIX, split
from cage_torch.lowering import lower
from cage_torch.plugins import start

STORED = {"float": np.float64, "int": np.int32, "uint": np.uint32, "bool": np.bool_}
graphs = {}


def program(job):
    def typed(t):
        return Type(t["dtype"], tuple(t["shape"]))

    nodes = []
    for n in job["nodes"]:
        attr = {k: v for k, v in n["attr"].items() if v}
        if "floats" in attr:
            attr["floats"] = np.array(attr["floats"], np.int64).view(np.float64).tolist()
        nodes.append(Node(n["op"], tuple(n["args"]), typed(n["type"]), attr))
    return Program(job["name"], [(x["name"], typed(x["type"])) for x in job["inputs"]], nodes, [tuple(o) for o in job["outputs"]])


def array(x):
    a = np.array(x["bits"], np.int64)
    kind = x["type"]["dtype"]
    return (a.view(np.float64) if kind == "float" else a.astype(STORED[kind])).reshape(x["type"]["shape"])


def bits(a):
    flat = np.ascontiguousarray(a).reshape(-1)
    return {"shape": list(a.shape), "bits": (flat.astype(np.float64).view(np.int64) if a.dtype.kind == "f" else flat.astype(np.int64)).tolist()}


quantizers = {}


def quantize(job):
    inputs = {x["name"]: torch.from_numpy(array(x)) for x in job["inputs"]}
    inputs = {name: x.float() if x.is_floating_point() else x for name, x in inputs.items()}
    x = inputs["x"].requires_grad_()
    key = json.dumps([job["plugin"], job["settings"], *x.shape])
    if key not in quantizers:
        plugin = start(job["plugin"], "quantizer")
        quantizers[key] = Quantizer(plugin, "weight", "w", tuple(x.shape), job["settings"], steps=1)
    q = quantizers[key]
    q._key, q._ready = lambda name, *_: inputs[name].view(torch.int32), True
    trained = {f"d.trained.{t.name}": getattr(q, f"trained_{t.name}") for t in q.trained}
    for name, p in trained.items():
        p.data.copy_(inputs[name[2:]].reshape(p.shape))
        p.grad = None
    y = q(x)
    y.backward(inputs["d.value"])
    results = {"value": y.detach(), "d.x": x.grad, **{n: p.grad.reshape(inputs[n[2:]].shape) for n, p in trained.items()}}
    return [bits(results[name].numpy()) for name in job["outputs"]]


def run(job):
    if "plugin" in job:
        return quantize(job)
    key = job["hash"], job["compile"]
    if key not in graphs:
        p = program(job)
        assert p.hash() == job["hash"], f"another program was read:\n{p}"
        f = lower(p)
        graphs[key] = p, torch.compile(f, backend="aot_eager") if job["compile"] else f
    p, f = graphs[key]
    inputs = {x["name"]: array(x) for x in job["inputs"]}
    if of := job.get("of"):
        parts = split(p, of, of, job["wrt"])
        known = {**inputs, **execute(parts.forward, inputs)}
        known[PREFIX + of] = known[of]
        result = execute(parts.backward, {n: known[n] for n, _ in parts.backward.inputs})
        return [bits(result[PREFIX + n]) for n in job["wrt"]]
    args = []
    for name, t in p.inputs:
        a = inputs[name].astype(np.float32) if t.dtype == "float" else inputs[name]
        args.append(torch.from_numpy(a.view(np.int32) if t.dtype == "uint" else a))
    results = [y.numpy() for y in f(*args)]
    return [bits(y.view(np.uint32) if p.type_of(v).dtype == "uint" else y) for (_, v), y in zip(p.outputs, results)]


torch.set_num_threads(1)
for line in sys.stdin:
    try:
        result = {"outputs": run(json.loads(line))}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
