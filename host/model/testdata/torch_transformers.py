"""Losses and gradients of small OLMo2, Llama 3, Qwen2, Granite and Gemma 2 models in PyTorch, against which the Go models are tested.

    python3 torch_transformers.py                writes torch_olmo2.json and so on beside this file

Any PyTorch from 1.13 on will do (Debian: python3-torch). Weights and tokens come from the integer hash that
host/train/testdata/torch_reference.py describes, weights with the mean and standard deviation of their kind: 1 and 0.1
for gains (0 and 0.1 for Gemma's, to which 1 is added), 0 and 1 for the embedding, 0 and 1/√columns for matrices and the head. Everything is computed in float64.

The models are written in the layout of the hub's checkpoints: features of a head are rotated in halves, and keys and
values are repeated for the queries that share them. The quantized variants fake-quantize the matrices of the blocks and
what enters them with QuEST in 4 bits and its masked gradient, and keep the gradients of the first block only, and of
the embedding where the head is tied to it.
"""
import json
import math
import pathlib

import torch

OFFSET, MASK = 7800000, (1 << 64) - 1
K4 = 2.370255550006294  # clipping factor for 4 bits, optimal for the grid -8..7 and a Gaussian


def mix(stream, i):
    z = (((OFFSET + stream) << 32) + i) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Quest(torch.autograd.Function):
    margin = math.inf  # smallest distance of a value to the boundary between two codes, in steps

    @staticmethod
    def forward(ctx, x):
        block = x.shape[-1] & -x.shape[-1]
        signs = [[(-1.0) ** bin(i & j).count("1") for j in range(block)] for i in range(block)]
        h = torch.tensor(signs, dtype=torch.float64) / math.sqrt(block)
        turn = lambda t: (t.reshape(-1, block) @ h).reshape(t.shape)
        z = turn(x)
        s = z.pow(2).mean(-1, keepdim=True).sqrt() * (K4 / 7)
        q = (z / s).round().clamp(-8, 7)
        inside = (z / s)[(z / s > -9) & (z / s < 8)]
        Quest.margin = min(Quest.margin, ((inside - inside.floor()) - 0.5).abs().min().item())
        ctx.turn, ctx.mask = turn, (z / s - q).abs() <= 0.5
        return turn(q * s)

    @staticmethod
    def backward(ctx, g):
        return ctx.turn(torch.where(ctx.mask, ctx.turn(g), torch.zeros_like(g)))


def parameters(m):
    """(name, dimensions, mean, std) of each parameter, in the Go model's order."""
    d, f, size = m["width"], m["hidden"], m["width"] // m["heads"]
    rows, keys = (m["heads"] + 2 * m["key_heads"]) * size, m["key_heads"] * size
    matrix = lambda name, out, inputs: (name, (out, inputs), 0.0, 1 / math.sqrt(inputs))
    gain = lambda name, n: (name, (n,), 0.0 if m["kind"] == "gemma2" else 1.0, 0.1)
    result = [("embedding", (m["vocabulary"], d), 0.0, 1.0)]
    for layer in range(m["layers"]):
        p = "layers.%d." % layer
        mlp = [matrix(p + "mlp.w1", f, d), matrix(p + "mlp.w2", f, d), matrix(p + "mlp.down", d, f)]
        if m["kind"] == "olmo2":
            result += [matrix(p + "attn.qkv", rows, d), gain(p + "attn.q_norm", d), gain(p + "attn.k_norm", keys),
                       matrix(p + "attn.out", d, d), gain(p + "attn_norm", d)] + mlp + [gain(p + "mlp_norm", d)]
        elif m["kind"] == "gemma2":
            result += [gain(p + "attn_norm", d), matrix(p + "attn.qkv", rows, d), matrix(p + "attn.out", d, d),
                       gain(p + "attn_post_norm", d), gain(p + "mlp_norm", d)] + mlp + [gain(p + "mlp_post_norm", d)]
        else:
            bias = [(p + "attn.qkv_bias", (rows,), 0.0, 1.0)] if m["kind"] == "qwen2" else []
            result += [gain(p + "attn_norm", d), matrix(p + "attn.qkv", rows, d)] + bias
            result += [matrix(p + "attn.out", d, d), gain(p + "mlp_norm", d)] + mlp
    return result + [gain("norm", d)] + ([] if m.get("tied") else [matrix("head", m["vocabulary"], d)])


def weights(m):
    result = {}
    for p, (name, dims, mean, std) in enumerate(parameters(m)):
        scale = std * math.sqrt(12)
        flat = [mean + scale * ((mix(p, i) >> 40) / 2.0 ** 24 - 0.5) for i in range(math.prod(dims))]
        values = torch.tensor(flat, dtype=torch.float64).to(torch.float32).to(torch.float64)
        result[name] = values.reshape(dims).requires_grad_()
    return result


def inverse_frequencies(m):
    size = m["width"] // m["heads"]
    freq = 1.0 / m["theta"] ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
    s = m.get("scaling")
    if s is None:
        return freq
    result = []
    for w in freq.tolist():
        wavelength = 2 * math.pi / w
        if wavelength < s["original"] / s["high"]:
            result.append(w)
        elif wavelength > s["original"] / s["low"]:
            result.append(w / s["factor"])
        else:
            smooth = (s["original"] / wavelength - s["low"]) / (s["high"] - s["low"])
            result.append((1 - smooth) * w / s["factor"] + smooth * w)
    return torch.tensor(result, dtype=torch.float64)


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def norm(x, gain, epsilon):
    return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def attention(m, x, w, p, quantize, window=None):
    batch, n, d = x.shape
    heads, kv = m["heads"], m["key_heads"]
    size = d // heads
    fused = x @ quantize(w[p + "attn.qkv"]).t()
    if m["kind"] == "qwen2":
        fused = fused + w[p + "attn.qkv_bias"]
    q, k, v = fused.split([heads * size, kv * size, kv * size], -1)
    if m["kind"] == "olmo2":
        q, k = norm(q, w[p + "attn.q_norm"], m["epsilon"]), norm(k, w[p + "attn.k_norm"], m["epsilon"])
    q, k, v = (t.reshape(batch, n, -1, size).transpose(1, 2) for t in (q, k, v))
    angles = torch.outer(torch.arange(n, dtype=torch.float64), inverse_frequencies(m))
    angles = torch.cat((angles, angles), -1)
    q, k = (t * angles.cos() + rotate_half(t) * angles.sin() for t in (q, k))
    k, v = (t.repeat_interleave(heads // kv, dim=1) for t in (k, v))
    scores = capped(q @ k.transpose(2, 3) * m.get("attention_multiplier", 1 / math.sqrt(size)), m.get("score_cap"))
    seen = torch.ones(n, n).tril().bool() & ~torch.ones(n, n).tril(-(window or n)).bool()
    scores = scores.masked_fill(~seen, -math.inf)
    mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, n, d)
    return quantize(mixed) @ quantize(w[p + "attn.out"]).t()


def feed_forward(x, w, p, quantize, activation=torch.nn.functional.silu):
    x = quantize(x)
    gate, up = x @ quantize(w[p + "mlp.w1"]).t(), x @ quantize(w[p + "mlp.w2"]).t()
    return quantize(activation(gate) * up) @ quantize(w[p + "mlp.down"]).t()


def token_losses(m, w, tokens, quantize):
    x = w["embedding"][tokens[:, :-1]] * m.get("embedding_multiplier", 1.0)
    if m["kind"] == "gemma2":
        x = x * math.sqrt(m["width"])
        w = {name: v + 1 if name.endswith("norm") else v for name, v in w.items()}
        gelu = lambda t: torch.nn.functional.gelu(t, approximate="tanh")
    for layer in range(m["layers"]):
        p, eps = "layers.%d." % layer, m["epsilon"]
        if m["kind"] == "olmo2":
            x = x + norm(attention(m, quantize(x), w, p, quantize), w[p + "attn_norm"], eps)
            x = x + norm(feed_forward(x, w, p, quantize), w[p + "mlp_norm"], eps)
        elif m["kind"] == "gemma2":
            window = None if layer % 2 else m["window"]
            x = x + norm(attention(m, quantize(norm(x, w[p + "attn_norm"], eps)), w, p, quantize, window),
                         w[p + "attn_post_norm"], eps)
            x = x + norm(feed_forward(norm(x, w[p + "mlp_norm"], eps), w, p, quantize, gelu),
                         w[p + "mlp_post_norm"], eps)
        else:
            factor = m.get("residual_multiplier", 1.0)
            x = x + factor * attention(m, quantize(norm(x, w[p + "attn_norm"], eps)), w, p, quantize)
            x = x + factor * feed_forward(norm(x, w[p + "mlp_norm"], eps), w, p, quantize)
    logits = norm(x, w["norm"], m["epsilon"]) @ w["embedding" if m.get("tied") else "head"].t()
    logits = capped(logits / m.get("logits_scaling", 1.0), m.get("logit_cap"))
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")


def variant(m, quantized):
    w = weights(m)
    count = m["batch"] * (m["context"] + 1)
    tokens = torch.tensor([(mix(1000, i) >> 40) % m["vocabulary"] for i in range(count)]).reshape(m["batch"], -1)
    Quest.margin = math.inf
    losses = token_losses(m, w, tokens, Quest.apply if quantized else lambda t: t)
    losses.mean().backward()
    digits = lambda t: [float("%.7g" % v) for v in t.flatten().tolist()]
    result = {"quantized": quantized, "losses": digits(losses.detach())}
    if quantized:
        result["margin"] = Quest.margin
    result["parameters"] = [{"name": name, "gradient": digits(w[name].grad)} for name, *_ in parameters(m)
                            if not quantized or name.startswith("layers.0.") or m.get("tied") and name == "embedding"]
    return result


def write(name, m, quantized):
    lines = [",\n".join(json.dumps(v) for v in (variant(m, q) for q in quantized))]
    text = '{"torch": %s, "model": %s, "variants": [\n%s]}\n' % (json.dumps(torch.__version__), json.dumps(m), lines[0])
    (pathlib.Path(__file__).resolve().parent / name).write_text(text.replace('{"name"', '\n{"name"'))


OLMO2 = dict(kind="olmo2", layers=2, heads=2, key_heads=2, width=24, hidden=16, vocabulary=11, context=7, batch=3,
             theta=500000.0, epsilon=1e-6)
LLAMA3 = dict(kind="llama", layers=1, heads=4, key_heads=2, width=24, hidden=32, vocabulary=11, context=7, batch=3,
              theta=10000.0, epsilon=1e-5, scaling=dict(factor=8.0, low=1.0, high=4.0, original=64))

QWEN2 = dict(kind="qwen2", layers=2, heads=4, key_heads=2, width=16, hidden=24, vocabulary=11, context=7, batch=2,
             theta=1e6, epsilon=1e-6)

GRANITE = dict(kind="granite", layers=2, heads=4, key_heads=2, width=16, hidden=24, vocabulary=11, context=7, batch=2,
               theta=10000.0, epsilon=1e-5, attention_multiplier=0.3, embedding_multiplier=3.0,
               residual_multiplier=0.22, logits_scaling=0.4)
GEMMA2 = dict(kind="gemma2", layers=2, heads=4, key_heads=2, width=16, hidden=24, vocabulary=11, context=7, batch=2,
              theta=10000.0, epsilon=1e-6, attention_multiplier=0.4, score_cap=0.7, logit_cap=2.0, window=3)

if __name__ == "__main__":
    write("torch_olmo2.json", OLMO2, [False, True])
    write("torch_llama3.json", LLAMA3, [False])
    write("torch_qwen2.json", QWEN2, [False, True])
    write("torch_granite.json", GRANITE, [False, True])
    write("torch_gemma2.json", GEMMA2, [False, True])
    tied = dict(layers=1, width=16, hidden=16, context=5, batch=2, tied=True)
    write("torch_tied_olmo2.json", dict(OLMO2, **tied), [False, True])
    write("torch_tied_llama3.json", dict(LLAMA3, **tied), [False, True])
