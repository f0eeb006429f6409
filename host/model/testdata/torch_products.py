"""Products of the Hessian of the loss with a vector of signs, for the small Llama 3 model of torch_transformers.py, by
differentiating twice in PyTorch, in float64.

    python3 torch_products.py                writes torch_products.json beside this file

The signs are the highest bits of the integer hash of torch_transformers.py, with the streams 2000, 2001, … for the
parameters in their order: 1 where the bit is set. Products are those of all parameters at once.
"""
import json
import pathlib

import torch

from torch_transformers import LLAMA3, mix, parameters, token_losses, weights


def signs(m):
    result = {}
    for p, (name, dims, *_) in enumerate(parameters(m)):
        count = torch.Size(dims).numel()
        flat = [1.0 if mix(2000 + p, i) >> 63 else -1.0 for i in range(count)]
        result[name] = torch.tensor(flat, dtype=torch.float64).reshape(dims)
    return result


def tokens(m):
    count = m["batch"] * (m["context"] + 1)
    return torch.tensor([(mix(1000, i) >> 40) % m["vocabulary"] for i in range(count)]).reshape(m["batch"], -1)


def gradients(m, w, **options):
    loss = token_losses(m, w, tokens(m), lambda t: t).mean()
    return torch.autograd.grad(loss, list(w.values()), **options)


def products(m, w, z):
    g = gradients(m, w, create_graph=True)
    along = sum((a * b).sum() for a, b in zip(g, z.values()))
    return torch.autograd.grad(along, list(w.values()))


if __name__ == "__main__":
    result = zip(weights(LLAMA3), products(LLAMA3, weights(LLAMA3), signs(LLAMA3)))
    lines = [json.dumps({"name": name, "product": [float("%.7g" % v) for v in t.flatten().tolist()]}) for name, t in result]
    text = '{"torch": %s, "model": %s, "parameters": [\n%s]}\n' % (json.dumps(torch.__version__), json.dumps(LLAMA3), ",\n".join(lines))
    (pathlib.Path(__file__).resolve().parent / "torch_products.json").write_text(text)
