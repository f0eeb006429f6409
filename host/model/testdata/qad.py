"""Writes qad.json: the distillation loss of QAD (arXiv 2601.20088) and its gradients, by the authors' own code.

    python host/model/testdata/qad.py MODEL_OPTIMIZER > host/model/testdata/qad.json

MODEL_OPTIMIZER is a checkout, with or without a work tree, of github.com/NVIDIA/Model-Optimizer at commit
a2fbac7bad8ab446d3f8783dadb0c3366eb0ad73. What runs is LogitsDistillationLoss of modelopt/torch/distill/losses.py, and
KDTrainer._standard_kd_loss of modelopt/torch/distill/plugins/huggingface.py: the shift by one token and the mean
over the tokens that count. Only PyTorch is needed: the method is taken out of its class, whose base is a
trainer of Hugging Face. Computed in float32, as that code does.
"""

import ast
import json
import subprocess
import sys
import types

import torch

COMMIT = "a2fbac7bad8ab446d3f8783dadb0c3366eb0ad73"
repository = sys.argv[1]


def source(path):
    return subprocess.run(["git", "-C", repository, "show", f"{COMMIT}:{path}"], check=True, capture_output=True, text=True).stdout


losses = types.ModuleType("losses")
exec(compile(source("modelopt/torch/distill/losses.py"), "losses.py", "exec"), losses.__dict__)

path = "modelopt/torch/distill/plugins/huggingface.py"
methods = [n for n in ast.walk(ast.parse(source(path))) if isinstance(n, ast.FunctionDef) and n.name == "_standard_kd_loss"]
assert len(methods) == 1
scope = {"IGNORE_INDEX": -100}  # the value of torch.nn.CrossEntropyLoss().ignore_index
exec(compile(ast.Module(methods, []), path, "exec"), scope)

torch.manual_seed(7)
batch, context, vocabulary = 2, 5, 11  # logits; there is one target less
student = (3 * torch.randn(batch, context, vocabulary)).requires_grad_()
teacher = student.detach() + 1.5 * torch.randn(batch, context, vocabulary)
labels = torch.randint(0, vocabulary, (batch, context))
labels[0, 2] = labels[1, 1] = labels[1, 4] = -100

cases = []
for temperature in (1.0, 2.0, 0.7):
    trainer = types.SimpleNamespace(
        _kd_criterion=losses.LogitsDistillationLoss(temperature=temperature, reduction="none"),
        _last_teacher_outputs=types.SimpleNamespace(logits=teacher),
    )
    student.grad = None
    loss = scope["_standard_kd_loss"](trainer, types.SimpleNamespace(logits=student), labels)
    loss.backward()
    cases.append({"temperature": temperature, "loss": loss.item(), "gradient": student.grad[:, :-1].flatten().tolist()})

json.dump(
    {
        "vocabulary": vocabulary,
        "student": student.detach()[:, :-1].flatten().tolist(),
        "teacher": teacher[:, :-1].flatten().tolist(),
        "counts": (labels[:, 1:] != -100).flatten().int().tolist(),
        "cases": cases,
    },
    sys.stdout,
)
print()
