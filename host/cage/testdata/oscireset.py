"""Makes oscireset.json: weights that the authors' code of OsciReset sets back.

    python oscireset.py DIRECTORY > oscireset.json

DIRECTORY is a checkout of https://github.com/thu-ml/TetraJet-v2-NVFP4Training at ca5953f643d85c793fb3a210bf21f17fc88ce83e.
Its files olmo2-training/olmo/quantization_real/{__init__,calibrate,oscillation_reset,oscillation_reset_memeff}.py run as they are. What
they import is replaced: the CUDA kernels of NVFP4 by rounding to multiples of 1/4 (ties to even) or, for edges of bins, to E2M1 with
a scale for each row, and what finds the layers of a model by a list of one layer. Needs PyTorch.
"""

import contextlib
import dataclasses
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch

COMMIT = "ca5953f643d85c793fb3a210bf21f17fc88ce83e"


def module(name, **attributes):
    m = types.ModuleType(name)
    m.__dict__.update(attributes)
    sys.modules[name] = m
    return m


@dataclasses.dataclass
class Perturb:
    apply_perturb: bool = True
    perturb_start_iter: int = 0
    perturb_period: int = 1000
    detect_type: str = "distance_ratio"
    detect_BinEdge_thrd: float = 0.495
    detect_DistRatio_iters: int = 50
    detect_DistRatio_thrd: float = 16


@dataclasses.dataclass
class Quantizer:
    osci_perturb_setting: Perturb
    enabled_quantizers: tuple = (1, 2)


def load(root):
    module("olmo").__path__ = []
    module("olmo.config", OscillationPerturb_Config=Perturb, NVFP4_QuantizerConfig=Quantizer, NVFP4_Outlier_Selection_Config=object)
    module("tetrajetv2", quant_fp4=lambda w, _: (torch.round(w * 4), None, None), dequant_fp4=lambda q, *_: q / 4)
    package = "olmo.quantization_real"
    source = root / "olmo2-training/olmo/quantization_real"
    spec = importlib.util.spec_from_file_location(package, source / "__init__.py", submodule_search_locations=[str(source)])
    m = importlib.util.module_from_spec(spec)
    sys.modules[package] = m
    module(package + ".linear")
    module(package + ".linear_mix")
    module(package + ".utils", maybe_summon_full_params=lambda *_, **__: contextlib.nullcontext())
    module(package + ".utils_type", check_quant_linear=lambda m: hasattr(m, "weight"), check_quant_mix_linear=lambda _: False)
    spec.loader.exec_module(m)
    return m


def main():
    authors = load(Path(sys.argv[1]))
    cases = []
    for name, start, every, window, threshold, total in [
        ("from the first step", 0, 8, 4, 3.0, 20),
        ("from the middle, shortest period", 9, 3, 1, 2.0, 18),
        ("longest window", 10, 10, 8, 5.0, 30),
    ]:
        torch.manual_seed(len(cases))
        shape = (3, 8)
        layer = torch.nn.Linear(shape[1], shape[0], bias=False, dtype=torch.float64)
        # Half of the weights begin at an edge between two cells, where small steps cross it.
        x0 = torch.randn(shape, dtype=torch.float64)
        x0[:, ::2] = torch.round(x0[:, ::2] * 4) / 4 + 0.125
        gradients = torch.randn((total, *shape), dtype=torch.float64) * 0.01
        layer.weight.data.copy_(x0)
        config = Quantizer(Perturb(perturb_start_iter=start, perturb_period=every, detect_DistRatio_iters=window, detect_DistRatio_thrd=threshold))
        after, resets = [], []
        for i in range(total):
            with torch.no_grad():
                layer.weight -= gradients[i]
            before = layer.weight.detach().clone()
            authors.linear_oscillation_reset_with_mix(config, i, layer)
            after.append(layer.weight.detach().flatten().tolist())
            resets.append(int((before != layer.weight).sum()))
        assert sum(resets) > 0
        cases.append({
            "id": name,
            "params": {"start": start, "every": every, "window": window, "threshold": threshold, "total": total},
            "inputs": {"x0": x0.tolist(), "gradients": gradients.flatten(1).tolist()},
            "expected": {"x": after, "resets": resets},
        })
    json.dump({
        "format": 1, "name": "oscireset",
        "description": "Weights set back by OsciReset, from thu-ml/TetraJet-v2-NVFP4Training at " + COMMIT + "; see oscireset.py.",
        "tolerance": {"abs": 1e-12, "rel": 1e-12}, "cases": cases,
    }, sys.stdout)
    print()


main()
