"""Plugins of plugins/ and examples/plugins/ written again in Python, with their default settings: their programs must be those of Go."""

from __future__ import annotations

import math

import numpy as np

from cage_sdk import Choice, Claim, Description, Due, Float, Gradients, Optimizer, Quantized, Quantizer, Refusal, e2m1, integers
from cage_sdk.microscaling import Blocks, decode_e2m1, encode_e2m1, rotate, rotation, round_e2m1


class Absmax(Quantizer):
    description = Description("absmax")

    def quantize(self, b, x, site):
        bits = site.int("bits")
        if bits < 2:
            raise Refusal("use 2 bits or more")
        top = 2.0 ** (bits - 1) - 1
        amax = x.abs().max_row()
        finite = amax.is_finite()
        step = finite.select(amax / top, math.nan)
        zero = step < 2.0**-126
        step = zero.select(0, step)
        codes = (x / zero.select(math.inf, step)).round().clip(-top, top)
        value = codes * step
        mask = finite.broadcast(x.shape)
        return Quantized(
            value, finite.select(x, 0), finite.select(codes, 0).convert("int"), step, mask, homogeneous=True, grid=integers(1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)
        )

    def unpack(self, b, codes, scale, site):
        return codes.convert("float") * scale


class LSQ(Quantizer):
    description = Description("lsq")

    def init_trained(self, b, x, site):
        self.check(site)
        qp = 2.0 ** (site.int("bits") - 1) - 1
        unit = x.abs().max_all().max(1e-8)
        x = x / unit
        mean = x.abs().mean_row().sum_all() * (site.row_len / x.type.size)
        return {"step": (mean * (2 / math.sqrt(qp)) * unit + 0).max(1e-8)}

    def check(self, site):
        if site.text("levels") == "unsigned" and site.role != "activation":
            raise Refusal("every negative weight would become zero")

    def quantize(self, b, x, site):
        self.check(site)
        qn = 2.0 ** (site.int("bits") - 1)
        qp, step = qn - 1, site.trained["step"]
        shared = x.type.size if site.role == "weight" else site.row_len
        g = 1 / math.sqrt(shared * qp)
        finite = x.sum_all().is_finite()
        s = finite.select(step.max(1e-8), math.nan)
        r = x / s
        level = r.clip(-qn, qp).round()
        inside = (r > -qn) & (r < qp)
        deviation = inside.select(level - r, level)
        value = level * s
        passed = inside.select(x, 0)
        return Quantized(
            value,
            passed + finite.select(step * g, 0) * deviation.stop_gradient(),
            finite.select(level * 1.0, 0).convert("int"),
            s * 1.0,
            inside,
            grid=integers(-int(qn), int(qp)),
        )

    def unpack(self, b, codes, scale, site):
        return codes.convert("float") * scale


class MXFP4(Quantizer):
    description = Description("mxfp4")

    def quantize(self, b, x, site):
        block = rotation(site, site.text("rotation"))
        blocks = Blocks(site.shape, 32)
        v = blocks.split(rotate(x, block))
        largest = v.abs().max_row()
        finite = largest.is_finite()
        exponent = largest.logb().shift(-2).clip(-127, 127)
        nan = b.const(math.nan)
        scale = finite.select(b.const(1).ldexp(exponent), nan)
        inverse = finite.select(b.const(1).ldexp(exponent.neg()), nan)
        rounded = round_e2m1(v.mul(inverse), site.text("ties"))
        codes = finite.select(encode_e2m1(rounded, v), b.const_int(0))
        value = rotate(blocks.join(rounded.mul(scale)), block)
        codes = blocks.join(codes)
        mask = blocks.spread(finite)
        return Quantized(value, blocks.join(finite.select(blocks.split(x), 0)), codes, scale, mask, grid=e2m1(32))

    def unpack(self, b, codes, scale, site):
        block = rotation(site, site.text("rotation"))
        blocks = Blocks(site.shape, 32)
        return rotate(blocks.join(decode_e2m1(blocks.split(codes.convert("float"))).mul(scale)), block)


class Delayed(Quantizer):
    """Of examples/plugins."""

    description = Description("delayed")

    def init_state(self, b, x, site):
        return {"history": self.push(x.abs().max_all(), b.zeros(site.int("history")))}

    def maximum(self, s, site):
        return True

    def quantize(self, b, x, site):
        past = site.state["history"]
        a = past.max_all()
        known = (a > 0) & a.is_finite()
        up = known.select((448 / a * 2.0 ** -site.int("margin")).min(float(np.finfo(np.float32).max)), 1)
        value = self.e4m3(x * up) / up
        return Quantized(
            x.is_finite().select(value, math.nan), scale=1 / up, next={"history": self.push(x.abs().max_all(), past)}
        )

    def push(self, v, past):
        v, n = v.reshape(1), past.shape[0]
        return v if n == 1 else v.concatenate(0, past.at(0, 0, n - 1))

    def e4m3(self, v):
        unit = v.logb().shift(-3).clip(-9, 5)
        return v.ldexp(-unit).round().ldexp(unit).clip(-448, 448)


class SmoothQuant(Quantizer):
    description = Description("smoothquant")

    def init_state(self, b, x, site):
        alpha, zero = site.float("alpha"), b.const(1e-5)
        largest = site.weights.max.max(zero)
        return {"smooth": (site.activations.max.pow(b.const(alpha)) / largest.pow(b.const(1 - alpha))).max(zero)}

    def quantize(self, b, x, site):
        s = site.state["smooth"]
        value = self.round(b, x * s, site) / s
        if site.role == "activation":
            value = self.round(b, x / s, site) * s
        return Quantized(value, next=site.state)

    def round(self, b, x, site):
        largest = x.abs().max_row()
        top = 2.0 ** (site.int("bits") - 1) - 1
        scale = (largest / b.const(top)).max(b.const(2.0**-100))
        scale = largest.is_finite().select(scale, b.const(math.nan))
        return (x / scale).round() * scale


class EWGS(Quantizer):
    """Of examples/plugins."""

    description = Description("ewgs")

    def init_trained(self, b, x, site):
        end = (x - x.mean_all()).square().mean_all().sqrt() * site.float("deviations")
        return {"low": -end, "width": (end * 2).max(1e-8)}

    def grid(self, x, site):
        low, width, finite = site.trained["low"], site.trained["width"].max(1e-8), x.is_finite()
        top = 2.0 ** site.int("bits") - 1
        place = finite.select(x - low, 0) / width
        clipped = place.clip(0, 1)
        inside = finite & place.eq(clipped)
        codes = (clipped * top).round()
        return low, width, finite, place, clipped, inside, codes, codes / top

    def quantize(self, b, x, site):
        low, width, finite, _, _, inside, codes, rounded = self.grid(x, site)
        return Quantized(finite.select(rounded * width + low, math.nan), codes=codes, mask=inside)

    def backward(self, b, x, dy, site):
        _, _, finite, place, clipped, inside, _, rounded = self.grid(x, site)
        dy = finite.select(dy, 0)
        error = (clipped - rounded) * site.float("delta")
        dx = inside.select(dy * (dy.sign() * error).shift(1), 0)
        return Gradients(dx, {"low": (dy - dx).sum_all(), "width": (dy * rounded - dx * place).sum_all()})


class AdamW(Optimizer):
    description = Description(
        "adamw",
        "1.0.0",
        "AdamW (Loshchilov & Hutter 2019); decay is set by train.weight_decay.",
        [
            Float("beta1", 0.9, 0, 0.999999, "decay rate of the first moment"),
            Float("beta2", 0.95, 0, 0.999999, "decay rate of the second moment"),
            Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment"),
            Choice(
                "moments",
                "float32",
                ["float32", "int8"],
                "how moments are stored: int8 takes 2.25 bytes instead of 8 for each element of a matrix, with a scale for each 32 (FlashOptim, 2026); "
                "vectors, and matrices whose row length is not a multiple of 32, stay in float32",
            ),
        ],
        [Claim("still")],
    )

    def init(self, b, x, t):
        return {"m": b.zeros(*t.shape), "v": b.zeros(*t.shape)}

    def update(self, b, given, t):
        beta1, beta2, g = t.float("beta1"), t.float("beta2"), given.gradient
        m = given.state["m"] * beta1 + g * (1 - beta1)
        v = given.state["v"] * beta2 + g.square() * (1 - beta2)
        c1, c2 = (-(given.step * math.log(beta)).expm1() for beta in (beta1, beta2))
        return m / (v.sqrt() * (c1 / c2.sqrt()) + c1 * t.float("eps")), {"m": m, "v": v}


class SAM(Optimizer):
    """Of examples/plugins."""

    description = Description("sam")

    def init(self, b, x, t):
        return {"m": b.zeros(*t.shape)}

    def collect(self, b, given, t):
        return {"norm2": given.gradient.square().sum_all()}

    def probe_at(self, t):
        return Due(1, 2, 1)

    def probe(self, b, given, t):
        norm = given.sums["norm2"].sqrt().max(b.const(1e-12))
        return given.gradient * (b.const(t.float("rho")) / norm)

    def update(self, b, given, t):
        m = given.state["m"].scale(t.float("momentum")) + given.probed
        return m, {"m": m}


class AdamWBF16(Optimizer):
    """Of examples/plugins."""

    description = Description("adamw-bf16")

    def init(self, b, x, t):
        return {"m": b.zeros(*t.shape), "v": b.zeros(*t.shape)}

    def storage(self, t):
        return {"m": "bfloat16", "v": "bfloat16"}

    def round_to(self, t):
        return "bfloat16" if t.bool("round_weights") else "float32"

    def update(self, b, given, t):
        b1, b2, g = t.float("beta1"), t.float("beta2"), given.gradient
        m = given.state["m"].scale(b1) + g.scale(1 - b1)
        v = given.state["v"].scale(b2) + g.square().scale(1 - b2)
        first = m / -given.step.scale(math.log(b1)).expm1()
        second = v / -given.step.scale(math.log(b2)).expm1()
        u = first / second.sqrt().shift(t.float("eps"))
        bits = b.random_bits(given.noise, *t.shape)
        return u, {"m": m.stochastic_bfloat16(bits), "v": v.stochastic_bfloat16(bits.shl(b.const_uint(16)))}


ALL = {p.description.name: p for p in (Absmax(), LSQ(), MXFP4(), SmoothQuant(), Delayed(), EWGS(), AdamW(), SAM(), AdamWBF16())}
