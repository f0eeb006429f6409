# Writes official.json here and in plugins/muon/testdata and plugins/shampoo/testdata: weights of 24 steps of the authors' optimizers,
# in float64 on the CPU:
#
#	git clone https://github.com/nikhilvyas/SOAP && git -C SOAP checkout a1e55353
#	git clone https://github.com/KellerJordan/Muon && git -C Muon checkout 857d1ad3
#	git clone https://github.com/facebookresearch/optimizers && git -C optimizers checkout f6066066
#	python official.py SOAP Muon optimizers
#
# Muon's code orthogonalizes in bfloat16, SOAP's computes bases in float32; here both keep float64. In SOAP's cases, all factors have
# full rank, because the null space has many bases, of which none is the right one.
import json
import os
import sys

import numpy as np
import torch

sys.path[:0] = sys.argv[1:]
import muon
import soap
from distributed_shampoo import AdamPreconditionerConfig, DistributedShampoo, RootInvShampooPreconditionerConfig, SingleDeviceDistributedConfig

torch.set_default_dtype(torch.float64)
torch.Tensor.bfloat16 = torch.Tensor.float = lambda self: self
STEPS = 24
r = np.random.RandomState(11)


def draw(*shape):
    return torch.tensor(np.round(r.randn(*shape) * 1024) / 1024)


def case(name, make, settings, shape, rate, decay=0.0, last=False):
    """Gradients have a part that stays, so that moments are no noise, and one row that is small."""
    x, constant = torch.nn.Parameter(draw(*shape)), draw(*shape)
    gradients = torch.stack([constant + draw(*shape) for _ in range(STEPS)])
    gradients[:, 0] /= 64
    inputs = {"x": x.tolist(), "gradient": gradients.tolist(), "rate": [rate] * STEPS, "weight_decay": decay}
    if last:
        inputs["decay_last"] = True
    optimizer, steps = make([x]), []
    for g in gradients:
        x.grad = g.clone()
        optimizer.step()
        steps.append([[float(f"{v:.12e}") for v in row] for row in x.tolist()] if x.ndim > 1 else [float(f"{v:.12e}") for v in x.tolist()])
    role = "vector" if len(shape) == 1 else "matrix"
    return {"id": name, "role": role, "settings": settings, "inputs": inputs, "expected": {"x": steps}}


def write(plugin, description, tolerance, cases):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", plugin, "testdata", "official.json"), "w") as f:
        json.dump({"format": 1, "kind": "optimizer", "name": "official",
                   "description": f"{description} by plugins/soap/testdata/official.py, PyTorch {torch.__version__.split('+')[0]} in float64.",
                   "tolerance": {"abs": tolerance, "rel": tolerance}, "cases": cases}, f)
        f.write("\n")


cases = []
for shape, freq, largest in (((5, 5), 10, 10000), ((4, 4), 3, 10000), ((7, 3), 4, 6), ((3, 7), 2, 6), ((5,), 10, 10000)):
    cases.append(case(
        f"{list(shape)}, freq {freq}, max_precond_dim {largest}",
        lambda p: soap.SOAP(p, 1e-2, (0.95, 0.95), weight_decay=0.1, precondition_frequency=freq, max_precond_dim=largest),
        {"freq": freq, "max_precond_dim": largest}, shape, 1e-2, 0.1, True))
write("soap", "nikhilvyas/SOAP at a1e55353", 1e-8, cases)

write("muon", "KellerJordan/Muon at 857d1ad3", 1e-9, [
    case(f"{list(shape)}", lambda p: muon.SingleDeviceMuon(p, 0.02, 0.1, 0.95), {"variant": "original"}, shape, 0.02, 0.1)
    for shape in ((4, 6), (7, 3), (5, 5))])

cases = []
for shape, freq, start, block, graft in (((4, 6), 10, 10, 256, True), ((7, 3), 3, 5, 256, True), ((5, 8), 4, 4, 3, True),
                                         ((6, 4), 1, 1, 256, False), ((5,), 5, 5, 256, True)):
    settings = {"freq": freq, "start": start, "max_precond_dim": block, "graft": graft, "eps": 1e-8}

    def make(p):
        return DistributedShampoo(
            p, 1e-2, (0.95, 0.95), epsilon=1e-8, weight_decay=0.1, max_preconditioner_dim=block, precondition_frequency=freq,
            distributed_config=SingleDeviceDistributedConfig(target_parameter_dimensionality=2),  # or else small matrices become vectors
            start_preconditioning_step=start, grafting_config=AdamPreconditionerConfig(beta2=0.95, epsilon=1e-8) if graft else None,
            preconditioner_config=RootInvShampooPreconditionerConfig(factor_matrix_dtype=torch.float64, inv_factor_matrix_dtype=torch.float64))

    cases.append(case(f"{list(shape)}, freq {freq}, start {start}, blocks of {block}, {'grafted' if graft else 'plain'}",
                      make, settings, shape, 1e-2, 0.1))
write("shampoo", "facebookresearch/optimizers at f6066066", 1e-8, cases)
