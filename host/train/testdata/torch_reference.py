"""Reference runs of a small Llama in PyTorch, against which the Go training step is tested.

    python3 torch_reference.py                        writes torch_losses.json beside this file
    python3 torch_reference.py --gradients FILE       writes the losses and gradients of a smaller model

Any PyTorch from 1.13 on will do (Debian: python3-torch). Everything is deterministic: weights and tokens come from
an integer hash and not from a random number generator, so that another program can make the same ones.

Numbers from the hash: hash(stream, i) is the finalizer of SplitMix64 applied to (7800000 + stream)·2^32 + i, in 64-bit
arithmetic that wraps around. Its upper 24 bits, k, give uniform(stream, i) = k/2^24 - 1/2, exactly.

Weights: parameter number p (in the order of parameters() below), element i in row-major order, is
mean + std·√12·uniform(p, i), computed in float64 and rounded to float32, with mean and std from parameters().

Tokens: in step t = 0, 1, ... the token at row r, column c of [batch, context+1] is
hash(1000 + t, r·(context+1) + c) shifted right by 40 bits, modulo the vocabulary.

Loss files hold, per variant, the mean cross-entropy before each of the five updates and after the last one, computed in
float32 and in float64; the difference of the two columns is the noise that a float32 implementation may show. One value
that rounds to another code changes later losses by more than 1e-3, so the constant 7800000 is the one of 150 for which
values stay farthest from the boundaries between codes: "margin" is the smallest distance of the float64 run, in steps.
"""
import argparse
import json
import math
import pathlib

import torch

MASK = (1 << 64) - 1
OFFSET = 7800000
STEPS, RATE, DECAY, BETA1, BETA2, EPSILON, CLIP = 5, 1e-3, 0.1, 0.9, 0.95, 1e-8, 1.0
K4 = 2.370255550006294  # clipping factor for 4 bits, optimal for the grid -8..7 and a Gaussian


def mix(stream, i):
    z = (((OFFSET + stream) << 32) + i) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Shape:
    def __init__(self, layers, heads, width, hidden, vocabulary, context, batch):
        self.layers, self.heads, self.width, self.hidden = layers, heads, width, hidden
        self.vocabulary, self.context, self.batch = vocabulary, context, batch

    def parameters(self):
        """(name, dimensions, mean, std) of each parameter, in order."""
        d, f = self.width, self.hidden
        linear = lambda name, out, inputs: (name, (out, inputs), 0.0, 1 / math.sqrt(inputs))
        result = [("embedding", (self.vocabulary, d), 0.0, 1.0)]
        for layer in range(self.layers):
            prefix = "layers.%d." % layer
            result += [
                (prefix + "attn_norm", (d,), 1.0, 0.1),
                linear(prefix + "attn.qkv", 3 * d, d),
                linear(prefix + "attn.out", d, d),
                (prefix + "mlp_norm", (d,), 1.0, 0.1),
                linear(prefix + "mlp.w1", f, d),
                linear(prefix + "mlp.w2", f, d),
                linear(prefix + "mlp.down", d, f),
            ]
        return result + [("norm", (d,), 1.0, 0.1), linear("head", self.vocabulary, d)]

    def weights(self, dtype):
        result = {}
        for p, (name, dims, mean, std) in enumerate(self.parameters()):
            scale = std * math.sqrt(12)
            flat = [mean + scale * ((mix(p, i) >> 40) / 2.0 ** 24 - 0.5) for i in range(math.prod(dims))]
            values = torch.tensor(flat, dtype=torch.float64).to(torch.float32).to(dtype)
            result[name] = values.reshape(dims).requires_grad_()
        return result

    def tokens(self, step):
        n = self.batch * (self.context + 1)
        ids = [(mix(1000 + step, i) >> 40) % self.vocabulary for i in range(n)]
        return torch.tensor(ids).reshape(self.batch, self.context + 1)


def hadamard(n, dtype):
    """Sylvester's matrix, entry (i, j) = (-1)^popcount(i & j) / √n."""
    signs = [[-1.0 if bin(i & j).count("1") % 2 else 1.0 for j in range(n)] for i in range(n)]
    return (torch.tensor(signs, dtype=torch.float64) / math.sqrt(n)).to(dtype)


def boundary_distance(r):
    """Smallest distance of the ratios r to a boundary between two codes, also where the mask ends."""
    r = r[(r > -9) & (r < 8)]
    return ((r - r.floor()) - 0.5).abs().min().item()


class Quest(torch.autograd.Function):
    """QuEST with 4 bits: blocks of the last axis are rotated (block: the largest power of two that divides it), each row
    gets one scale, the gradient is masked where a value was clipped, in the rotated domain."""

    margin = math.inf

    @staticmethod
    def forward(ctx, x):
        width = x.shape[-1]
        block = width & -width
        h = hadamard(block, x.dtype)
        turn = lambda t: (t.reshape(-1, block) @ h).reshape(t.shape)
        z = turn(x)
        s = z.pow(2).mean(-1, keepdim=True).sqrt() * (K4 / 7)
        r = z / s
        q = r.round().clamp(-8, 7)
        Quest.margin = min(Quest.margin, boundary_distance(r))
        ctx.turn, ctx.mask = turn, (r - q).abs() <= 0.5
        return turn(q * s)

    @staticmethod
    def backward(ctx, g):
        return ctx.turn(torch.where(ctx.mask, ctx.turn(g), torch.zeros_like(g)))


def token_losses(shape, w, tokens, quantize):
    d, heads, n = shape.width, shape.heads, shape.context
    size = d // heads
    real = w["embedding"].dtype
    angle = torch.arange(n, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    turn = torch.polar(torch.ones_like(angle), angle)[None, :, None, :]
    turn = turn.to(torch.complex64 if real == torch.float32 else torch.complex128)
    causal = torch.ones(n, n, dtype=torch.bool).tril()

    def norm(x, gain):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    def linear(x, name):
        return x @ quantize(w[name]).t()

    def rotate(x):
        pairs = torch.view_as_complex(x.reshape(shape.batch, n, heads, size // 2, 2).contiguous())
        return torch.view_as_real(pairs * turn).reshape(shape.batch, n, heads, size)

    x = w["embedding"][tokens[:, :-1]]
    for layer in range(shape.layers):
        prefix = "layers.%d." % layer
        qkv = linear(quantize(norm(x, w[prefix + "attn_norm"])), prefix + "attn.qkv")
        q, k, v = (t.reshape(shape.batch, n, heads, size) for t in qkv.split(d, -1))
        scores = torch.einsum("bqhs,bkhs->bhqk", rotate(q), rotate(k)) / math.sqrt(size)
        weights = scores.masked_fill(~causal, -math.inf).softmax(-1)
        mixed = torch.einsum("bhqk,bkhs->bqhs", weights, v).reshape(shape.batch, n, d)
        x = x + linear(quantize(mixed), prefix + "attn.out")
        u = quantize(norm(x, w[prefix + "mlp_norm"]))
        gated = torch.nn.functional.silu(linear(u, prefix + "mlp.w1")) * linear(u, prefix + "mlp.w2")
        x = x + linear(quantize(gated), prefix + "mlp.down")
    logits = norm(x, w["norm"]) @ w["head"].t()
    losses = torch.nn.functional.cross_entropy(logits.reshape(-1, shape.vocabulary), tokens[:, 1:].reshape(-1), reduction="none")
    return losses.reshape(shape.batch, n)


def is_linear(name):
    return ".attn." in name or ".mlp." in name


def train(shape, dtype, quantized, strength):
    """Losses of five AdamW steps and after them. strength is CAGE's λ, ramped linearly from the first step (decoupled form)."""
    w = shape.weights(dtype)
    quantize = Quest.apply if quantized else lambda x: x
    moments = {name: (torch.zeros_like(x), torch.zeros_like(x)) for name, x in w.items()}
    losses = []
    for t in range(1, STEPS + 2):
        loss = token_losses(shape, w, shape.tokens(t - 1), quantize).mean()
        losses.append(loss.item())
        if t > STEPS:
            return losses
        grads = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
        total = torch.stack([g.pow(2).sum() for g in grads.values()]).sum().sqrt()
        scale = min(1.0, CLIP / (total.item() + 1e-6))
        with torch.no_grad():
            for name, x in w.items():
                g = grads[name] * scale
                m, v = moments[name]
                if is_linear(name):
                    x.mul_(1 - RATE * DECAY)
                error = x - quantize(x) if strength and is_linear(name) else None
                m.mul_(BETA1).add_(g, alpha=1 - BETA1)
                v.mul_(BETA2).add_(g * g, alpha=1 - BETA2)
                x.sub_(RATE * (m / (1 - BETA1 ** t)) / ((v / (1 - BETA2 ** t)).sqrt() + EPSILON))
                if error is not None:
                    x.sub_(RATE * strength * t / STEPS * error)


def write(path, content):
    pathlib.Path(path).write_text(json.dumps(content, indent=1) + "\n")


def write_losses():
    shape = Shape(layers=4, heads=3, width=24, hidden=48, vocabulary=32, context=16, batch=2)
    variants = []
    for name, quantized, strength in [("unquantized", False, 0.0), ("quest", True, 0.0), ("quest_cage", True, 2.0)]:
        single = train(shape, torch.float32, quantized, strength)
        Quest.margin = math.inf
        double = train(shape, torch.float64, quantized, strength)
        margin = Quest.margin if quantized else None
        variants.append(dict(name=name, quantized=quantized, cage_lambda=strength, cage_silence=0.0, margin=margin,
                             losses=dict(float32=single, float64=double)))
        print(name, margin, single, double)
    settings = dict(steps=STEPS, lr=RATE, weight_decay=DECAY, beta1=BETA1, beta2=BETA2, epsilon=EPSILON, clip=CLIP, bits=4, k=K4)
    write(pathlib.Path(__file__).parent / "torch_losses.json",
          dict(torch=torch.__version__, model=vars(shape), training=settings, variants=variants))


def write_gradients(path):
    shape = Shape(layers=2, heads=2, width=12, hidden=20, vocabulary=11, context=7, batch=3)
    short = lambda t: [float("%.8g" % v) for v in t.flatten().tolist()]
    variants = []
    for quantized in (False, True):
        w = shape.weights(torch.float64)
        losses = token_losses(shape, w, shape.tokens(0), Quest.apply if quantized else lambda x: x)
        grads = torch.autograd.grad(losses.mean(), list(w.values()))
        parameters = [dict(name=name, gradient=short(g)) for name, g in zip(w, grads)]
        variants.append(dict(quantized=quantized, losses=short(losses), parameters=parameters))
    text = json.dumps(dict(torch=torch.__version__, model=vars(shape), variants=variants))
    pathlib.Path(path).write_text(text.replace('{"name"', '\n{"name"') + "\n")


parser = argparse.ArgumentParser()
parser.add_argument("--gradients", metavar="FILE")
arguments = parser.parse_args()
if arguments.gradients:
    write_gradients(arguments.gradients)
else:
    write_losses()
