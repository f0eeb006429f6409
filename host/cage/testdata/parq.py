"""Makes parq.json: weights that the authors' proximal maps give.

    python parq.py DIRECTORY > parq.json

DIRECTORY is a checkout of https://github.com/pytorch/ao at 36027d82d1ad9949597ea16002ff4940374b1b94. Its files
torchao/prototype/parq/optim/{parq,binarelax,proxmap}.py run as they are, with channel_bucketize of
torchao/prototype/parq/utils.py. The levels are those of rows of two grids: whole numbers up to 3, and {0, 1, 2, 3, 4, 6, 8, 12}
with both signs, as of E2M1 in halves, times max|x| of the row over the largest number. Needs PyTorch.
"""

import ast
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch

COMMIT = "36027d82d1ad9949597ea16002ff4940374b1b94"


def load(root):
    source = root / "torchao/prototype/parq"
    package = types.ModuleType("parq")
    package.__path__ = []
    utils = types.ModuleType("parq.utils")
    utils.__dict__.update(torch=torch, Tensor=torch.Tensor)
    tree = ast.parse((source / "utils.py").read_text())
    tree.body = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "channel_bucketize"]
    exec(compile(tree, "utils.py", "exec"), utils.__dict__)  # the rest of the file imports all of torchao
    optim = types.ModuleType("parq.optim")
    optim.__path__ = [str(source / "optim")]
    sys.modules.update({"parq": package, "parq.utils": utils, "parq.optim": optim})
    maps = []
    for name in ["proxmap", "parq", "binarelax"]:
        spec = importlib.util.spec_from_file_location("parq.optim." + name, source / "optim" / (name + ".py"))
        m = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = m
        spec.loader.exec_module(m)
        maps.append(m)
    return maps[1], maps[2]


def main():
    parq, binarelax = load(Path(sys.argv[1]))
    half = [0, 1, 2, 3, 4, 6, 8, 12]
    grids = {"integers": [-3, -2, -1, 0, 1, 2, 3], "e2m1": [-v for v in half[:0:-1]] + half}
    torch.manual_seed(0)
    total, cases = 20, []
    x = torch.randn((3, 16), dtype=torch.float64)
    for grid, numbers in grids.items():
        levels = torch.tensor(numbers, dtype=torch.float64)[None] * x.abs().amax(1, keepdim=True) / max(numbers)
        nearest = levels.gather(1, (x[:, :, None] - levels[:, None, :]).abs().argmin(-1))
        for name, start, end, steepness, center in [("parq", 0, 20, 10, 0.5), ("parq", 4, 12, 2.5, 0.3), ("binary_relax", 4, 12, 10, 0.5)]:
            values, slopes = [], []
            for k in range(total):
                w = x.clone()
                if name == "parq":
                    slopes.append(parq.ProxPARQ(start, end, steepness, center).apply_(w, nearest, levels, k, -1))
                else:
                    binarelax.ProxBinaryRelax(start, end).apply_(w, nearest, levels, k, -1)
                values.append(w.flatten().tolist())
            cases.append({
                "id": f"{name} {grid} {start}-{end}",
                "params": {"map": name, "grid": grid, "start": start, "end": end, "steepness": steepness, "center": center, "total": total},
                "inputs": {"x": x.tolist()},
                "expected": {"w": values} | ({"inverse_slope": slopes} if slopes else {}),
            })
    json.dump({
        "format": 1, "name": "parq",
        "description": "Weights after the proximal maps of pytorch/ao at " + COMMIT + ", for k = 0 … 19; see parq.py.",
        "tolerance": {"abs": 1e-12, "rel": 1e-12}, "cases": cases,
    }, sys.stdout)
    print()


main()
