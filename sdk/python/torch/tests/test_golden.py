"""Quantizers and optimizers of this package on the values of other implementations, which the tests in Go have, too.

A file says which program wrote it, often the authors' own; scripts beside the files name the commits. Expected values are in
float64. Here everything is computed in float32: differences are a few of its rounding errors, 6·10⁻⁸.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from cage_torch import Quantizer, optimizers
from cage_torch.plugins import start

PLUGINS = Path(__file__).resolve().parents[4] / "plugins"
FILES = {}
for path in sorted(PLUGINS.glob("*/testdata/*.json")):
    content = json.loads(path.read_text())
    if isinstance(content, dict) and "kind" in content:
        FILES[f"{path.parent.parent.name}/{path.stem}"] = content

TOLERANCES = {
    "value": 1e-6,
    "d.x": 2e-6,  # with the surrogate of StableQAT, a sine of 2πr
    "d.trained.step": 1e-5,  # a sum of r − round(r), where r = x/step, up to 128, has an error of 128·6·10⁻⁸
    "d.trained.offset": 1e-6,
    "d.trained.alpha": 1e-6,
}
TRAJECTORY = 4e-6  # of 24 steps
BOUNDARY = {
    ("mxfp4/kit", "just_below_power_ocp"): "the largest number is a power of two in float32",
    ("lsq/stableqat", "4 bits, initial steps"): "the largest number of a row is on the bound: plugins/lsq/lsq.go",
}  # fmt: skip
"""Cases where float32 rounds to another level, and why."""
EITHER = {
    ("quest/kit", "official_4b_constant"): "rotated, numbers are 0, as far from both levels as the trust region reaches",
}
"""Cases whose gradient depends on the order of float32 sums, which differs between processors, and why."""


def cases(kind):
    return [name for name, f in FILES.items() if f["kind"] == kind]


def array(v):
    return torch.from_numpy(np.array(v).astype(np.float64))  # of texts, too: "NaN"


def off(got, want):
    """The largest difference as a share of the largest number; NaN are equal."""
    assert got.shape == want.shape
    assert torch.equal(got.isnan(), want.isnan())
    want = want.nan_to_num(0.0)
    return ((got.double().nan_to_num(0.0) - want).abs().max() / want.abs().max().clamp(min=1e-30)).item()


def test_files():
    assert len(cases("quantizer")) >= 12 and len(cases("optimizer")) >= 8
    assert all(id in [c["id"] for c in FILES[name]["cases"]] for name, id in {**BOUNDARY, **EITHER})


def quantize(plugin, case, monkeypatch):
    """Q(x), and gradients, by their names in the file."""
    given = {k: array(v) for k, v in case["inputs"].items()}
    x = given["x"].float().reshape(-1, given["x"].shape[-1]).requires_grad_()
    role = "activation" if case.get("role") == "activation" else "weight"
    q = Quantizer(plugin, role, "x", tuple(x.shape), case["settings"], steps=1)
    noise = {k: given[k].to(torch.int64).to(torch.int32) for k in ("noise", "shared_noise") if k in given}
    monkeypatch.setattr(q, "_key", lambda name, *_: noise[name])
    if not q._ready:
        q.start(x.detach())
    q.train(bool(noise))
    trained = {t.name: getattr(q, f"trained_{t.name}") for t in q.trained}
    for name, p in trained.items():
        p.data.copy_(given[f"trained.{name}"].reshape(p.shape))
    y = q(x)
    if "d.value" not in given:
        return {"value": y}
    y.backward(given["d.value"].float().reshape(x.shape))
    return {"value": y.detach(), "d.x": x.grad, **{f"d.trained.{name}": p.grad for name, p in trained.items()}}


@pytest.mark.parametrize("name", cases("quantizer"))
def test_quantizers(name, monkeypatch):
    plugin = start(name.split("/")[0], "quantizer")
    compared = 0
    for case in FILES[name]["cases"]:
        compares = ["value"] if (name, case["id"]) in EITHER else TOLERANCES
        want = {k: array(v) for k, v in case["expected"].items() if k in compares}
        found = quantize(plugin, case, monkeypatch) if want else {}
        differences = {k: off(found[k].reshape(w.shape), w) for k, w in want.items()}
        near = all(d <= TOLERANCES[k] for k, d in differences.items())
        assert near == ((name, case["id"]) not in BOUNDARY), f"{case['id']}: {differences}"
        compared += len(differences)
    assert compared


@pytest.mark.parametrize("name", cases("optimizer"))
def test_optimizers(name):
    for case in FILES[name]["cases"]:
        given = case["inputs"]
        x, rates = torch.nn.Parameter(array(given["x"]).float()), given.get("rate", 0.0)
        decay, last = given.get("weight_decay", 0.0), given.get("decay_last")
        want, gradients = array(case["expected"]["x"]), array(given["gradient"])
        optimizer = optimizers.load(name.split("/")[0], [x], weight_decay=0 if last else decay, steps=len(gradients), **case["settings"])
        for i, g in enumerate(gradients):
            rate = optimizer.param_groups[0]["lr"] = rates[i] if isinstance(rates, list) else rates
            x.grad = g.float()
            optimizer.step()
            if last and i:
                x.data.mul_(1 - rate * decay)
            assert off(x.detach(), want[i]) <= TRAJECTORY, f"{case['id']}, step {i + 1}"
