#!/usr/bin/env python3
"""Writes the golden files of the optimizers beside this directory.

The values come from optax in float64, which shares no code with this project. Where optax computes
a schedule in float32, or leaves it to the caller, the schedule is written here from its paper. Run it
from anywhere; it needs numpy and the versions in VERSIONS: with another jax, last bits differ.
"""

import json
import math
import pathlib

import jax

jax.config.update("jax_enable_x64", True)
import jax.extend.random  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from optax._src import factorized, transform  # noqa: E402

HERE = pathlib.Path(__file__).parent.parent
STEPS = 12
VERSIONS = {"jax": "0.10.2", "optax": "0.2.8"}


def inputs(seed, shape, rate, steps=STEPS):
    """A start, gradients of changing size, and a schedule with a warmup of two steps."""
    r = np.random.default_rng(seed)
    x0 = r.standard_normal(shape)
    sizes = np.exp(r.standard_normal((steps, 1, 1)))
    grads = sizes * r.standard_normal((steps, *shape))
    rates = [rate * min(1, (i + 1) / 2) * (1 - i / (2 * steps)) for i in range(steps)]
    return {"x0": x0.round(6).tolist(), "grads": grads.round(6).tolist(), "rates": rates}


def path(make, given, evaluate=None, matrices=1):
    """x after every step, and what evaluate(state, x) makes of it. make(rate) is the transformation; rate
    is a schedule of the step from 0."""
    rates = jnp.asarray(given["rates"])
    tx = make(lambda count: rates[count])
    # Rows may be divided among several matrices, of which an optimizer sees the sum.
    split = lambda v: tuple(jnp.split(jnp.asarray(v), matrices))  # noqa: E731
    x = split(given["x0"])
    state = tx.init(x)
    out, evaluated = [], []
    for i, g in enumerate(given["grads"]):
        extra = {"value": given["losses"][i]} if "losses" in given else {}
        u, state = tx.update(split(g), state, x, **extra)
        x = optax.apply_updates(x, u)
        out.append(np.concatenate(x).tolist())
        if evaluate:
            evaluated.append(np.concatenate(evaluate(state, x)).tolist())
    return out, evaluated


def write(name, description, cases):
    text = {"format": 1, "name": name, "description": description + " Made by ../../testdata/generate.py.",
            "tolerance": {"abs": 1e-12, "rel": 1e-10}, "cases": cases}
    (HERE / name / "testdata" / (name + ".json")).write_text(json.dumps(text, indent=1) + "\n")


def cases(variants, make, rate=0.05, seed=1, evaluate=None, losses=None, matrices=1):
    list_ = []
    for i, (id_, shape, params) in enumerate(variants):
        given = inputs(seed + i, shape, rate)
        if losses:
            given["losses"] = losses
        x, evaluated = path(make(params), given, evaluate, matrices)
        expected = {"x": x, "evaluated": evaluated} if evaluate else {"x": x}
        list_.append({"id": id_, "params": params, "inputs": given, "expected": expected})
    return list_


def lion(p):
    return lambda rate: optax.chain(transform.scale_by_lion(b1=p.get("beta1", 0.9), b2=p.get("beta2", 0.99)), optax.scale_by_learning_rate(rate))


def adopt(p):
    return lambda rate: optax.contrib.adopt(rate, b1=p.get("beta1", 0.9), b2=p.get("beta2", 0.9999), eps=p.get("eps", 1e-6))


def ademamix(p):
    b1, b3, a, w = p.get("beta1", 0.9), p.get("beta3", 0.9999), p.get("alpha", 5.0), p.get("warmup", 1.0)

    def ratio(count):  # optax counts from 0, the paper from 1
        return jnp.minimum(1.0, (count + 1.0) / (w * STEPS)) if w else jnp.asarray(1.0)

    def beta3(count):
        r = ratio(count)
        return jnp.exp(math.log(b1) * math.log(b3) / ((1 - r) * math.log(b3) + r * math.log(b1)))

    return lambda rate: optax.contrib.ademamix(rate, b1=b1, b2=p.get("beta2", 0.999), b3=beta3, alpha=lambda c: a * ratio(c), eps=p.get("eps", 1e-8))


def adafactor(p):
    def make(rate):
        tx = [factorized.scale_by_factored_rms(True, p.get("decay", 0.8), 0, p.get("factor_from", 128), p.get("eps", 1e-30),
                                               decay_rate_fn=lambda i, e: 1.0 - (i + 1.0) ** (-e)),
              optax.clip_by_block_rms(p.get("threshold", 1.0)),
              optax.scale_by_learning_rate(rate)]
        if p.get("scale_parameter", True):
            tx.append(transform.scale_by_param_block_rms(p.get("least_scale", 1e-3)))
        return optax.chain(*tx)

    return make


def schedule_free(p):
    def make(rate):
        base = optax.chain(transform.scale_by_rms(decay=p.get("beta2", 0.999), eps=p.get("eps", 1e-8), eps_in_sqrt=False, bias_correction=True),
                           optax.scale_by_learning_rate(rate))
        # optax counts the steps of the average from 1, those of the rate from 0.
        return optax.contrib.schedule_free(base, lambda count: rate(count - 1), b1=p.get("beta1", 0.9), weight_lr_power=p.get("weight_power", 2.0))

    return make


def prodigy(p):
    return lambda rate: optax.contrib.prodigy(rate, betas=(p.get("beta1", 0.9), p.get("beta2", 0.999)), eps=p.get("eps", 1e-8),
                                              estim_lr0=p.get("d0", 1e-6), estim_lr_coef=p.get("growth", 1.0))


def polyak(p):
    # Without c, and with the bound in place of a schedule.
    return lambda rate: optax.with_extra_args_support(optax.polyak_sgd(max_learning_rate=rate(5), f_min=p.get("floor", 0.0)))


# bitsandbytes' 8-bit Adam, written from its documentation and kernels in NumPy.


def dynamic_map(signed):
    """create_dynamic_map(signed, max_exponent_bits=7, total_bits=8) of bitsandbytes.functional."""
    data = []
    for i in range(7):
        edges = np.linspace(0.1, 1, 2**i + 1 if signed else 2 ** (i + 1) + 1)
        means = 10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2
        data += [*means, *(-means if signed else [])]
    return np.sort(np.array([*data, 0.0, 1.0]))


class Blocks:
    """A moment in 8 bits: codes, and the largest magnitude of each 256 elements."""

    def __init__(self, size, signed):
        self.map, self.signed = dynamic_map(signed), signed
        self.codes = np.full(size, np.searchsorted(self.map, 0.0))
        self.most = np.zeros(-(-size // 256))

    def get(self):
        return self.map[self.codes] * np.repeat(self.most, 256)[: self.codes.size]

    def put(self, values):
        for i in range(self.most.size):
            part = values[256 * i : 256 * (i + 1)]
            self.most[i] = np.abs(part).max()
            codes = np.array([np.abs(self.map - v).argmin() for v in part / (self.most[i] or 1.0)])
            if self.signed:  # the sign bit of what is kept is that of the value
                codes -= (self.map[codes] >= 0) & (part < 0)
            self.codes[256 * i : 256 * i + part.size] = codes


def adam8bit(id_, shape, params, seed, steps=5):
    b1, b2, eps = params.get("beta1", 0.9), params.get("beta2", 0.999), params.get("eps", 1e-8)
    given = inputs(seed, shape, 0.05, steps)
    x, n, out = np.array(given["x0"]), math.prod(shape), []
    m, v = Blocks(n, True), Blocks(n, False)
    for t, (g, rate) in enumerate(zip(np.array(given["grads"]), given["rates"]), 1):
        s1 = b1 * m.get() + (1 - b1) * g.ravel()
        s2 = b2 * v.get() + (1 - b2) * g.ravel() ** 2
        c1, c2 = 1 - b1**t, np.sqrt(1 - b2**t)
        x = x - (rate * c2 / c1 * s1 / (np.sqrt(s2) + eps * c2)).reshape(shape)
        m.put(s1)
        v.put(s2)
        out.append(x.tolist())
    return {"id": id_, "params": params, "inputs": given, "expected": {"x": out}}


# AdamW with moments in bfloat16, in NumPy, with the random bits of JAX.


def stochastic(x, bits):
    """x in bfloat16: away from zero if the upper 16 of the random bits, added to the lower 16 of x in float32, carry."""
    words = x.astype(np.float32).view(np.uint32) + (bits >> 16)
    return (words & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def adamw_bf16(id_, shape, params, seed):
    b1, b2, eps = params.get("beta1", 0.9), params.get("beta2", 0.95), params.get("eps", 1e-8)
    given = inputs(seed, shape, 0.05)
    x, m, v, out = np.array(given["x0"]), 0.0, 0.0, []
    for t, (g, rate) in enumerate(zip(np.array(given["grads"]), given["rates"]), 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        x = x - rate * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
        counters = jnp.arange(x.size, dtype=jnp.uint32)
        key = [jnp.full_like(counters, k) for k in (t - 1, 7)]  # what the tests give
        bits = np.asarray(jax.extend.random.threefry2x32_p.bind(*key, counters, jnp.zeros_like(counters))[0]).reshape(shape)
        m, v = stochastic(m, bits), stochastic(v, bits << 16)
        out.append(x.tolist())
    return {"id": id_, "params": params, "inputs": given, "expected": {"x": out}}


# Methods with a second gradient, in NumPy. The gradient of step t at x is grads[t] + slopes·x.


def linear(seed, shape, rate, slopes):
    given = inputs(seed, shape, rate)
    r = np.random.default_rng(seed + 100)
    low, high = slopes
    given["slopes"] = r.uniform(low, high, shape).round(6).tolist()
    return given


def probed(id_, shape, params, seed, step, slopes=(0.5, 2.0), matrices=1):
    given = linear(seed, shape, 0.05, slopes)
    if matrices > 1:
        given["matrices"] = matrices
    x, a, state, out = np.array(given["x0"]), np.array(given["slopes"]), {}, []
    for t, (g, rate) in enumerate(zip(np.array(given["grads"]), given["rates"]), 1):
        x = x - rate * step(params, t, x, lambda at, g=g: g + a * at, a, state)
        out += [part.tolist() for part in np.split(x, matrices)]
    return {"id": id_, "params": params, "inputs": given, "expected": {"x": out}}


def sam(p, t, x, gradient, curvature, state):
    g = gradient(x)
    state["m"] = p.get("momentum", 0.9) * state.get("m", 0) + gradient(x + p.get("rho", 0.05) * g / np.linalg.norm(g))
    return state["m"]


def sampled(id_, shape, params, seed, labels):
    """A case of Sophia-G, whose gradients with drawn labels are those of a mean over so many of them."""
    drawn = np.random.default_rng(seed + 200).standard_normal((STEPS, *shape)).round(6)
    case = probed(id_, shape, params, seed, lambda *args: sophia_g(*args, drawn=drawn / np.sqrt(labels), labels=labels))
    case["inputs"]["sampled"] = drawn.tolist()  # times the root of their number, as the host tells
    return case


def sophia_g(p, t, x, gradient, curvature, state, drawn, labels):
    b1, b2 = p.get("beta1", 0.96), p.get("beta2", 0.99)
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * gradient(x)
    if (t - 1) % p.get("every", 10) == 0:  # the estimator of Gauss, Newton and Bartlett
        g = drawn[t - 1]
        state["h"] = b2 * state.get("h", 0) + (1 - b2) * labels * g * g
    return np.clip(state["m"] / np.maximum(p.get("gamma", 0.01) * state["h"], p.get("eps", 1e-12)), -1, 1)


def sophia(p, t, x, gradient, curvature, state):
    b1, b2 = p.get("beta1", 0.96), p.get("beta2", 0.99)
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * gradient(x)
    if (t - 1) % p.get("every", 10) == 0:  # the diagonal of the Hessian is known here: any v gives it
        state["h"] = b2 * state.get("h", 0) + (1 - b2) * curvature
    return np.clip(state["m"] / np.maximum(p.get("gamma", 0.01) * state["h"], p.get("eps", 1e-12)), -1, 1)


def adahessian(p, t, x, gradient, curvature, state):
    b1, b2 = p.get("beta1", 0.9), p.get("beta2", 0.999)
    if (t - 1) % p.get("every", 1) == 0:
        size = math.gcd(p.get("block", 32), x.shape[1])
        blocks = [np.full(size, curvature.ravel()[i : i + size].mean()) for i in range(0, x.size, size)]
        state["d"] = np.concatenate(blocks).reshape(x.shape)
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * gradient(x)
    state["v"] = b2 * state.get("v", 0) + (1 - b2) * state["d"] ** 2
    root = np.sqrt(state["v"] / (1 - b2**t))
    return state["m"] / (1 - b1**t) / (root ** p.get("power", 1.0) + p.get("eps", 1e-4))


def mars(p, t, x, gradient, curvature, state):
    b1, b2 = p.get("beta1", 0.95), p.get("beta2", 0.99)
    c = gradient(x) + p.get("gamma", 0.025) * b1 / (1 - b1) * (gradient(x) - gradient(state.get("last", x)))
    c = c / max(1.0, np.linalg.norm(c))
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * c
    state["v"] = b2 * state.get("v", 0) + (1 - b2) * c**2
    state["last"] = x
    return state["m"] / (1 - b1**t) / (np.sqrt(state["v"] / (1 - b2**t)) + p.get("eps", 1e-8))


def main():
    have = {"jax": jax.__version__, "optax": optax.__version__}
    if have != VERSIONS:
        raise SystemExit(f"here are {have}; the golden files were written with {VERSIONS}")
    write("mars", "MARS-AdamW with the gradient at the point before, in NumPy.",
          [probed("defaults", (2, 3), {}, 1, mars), probed("much", (3, 2), {"beta1": 0.8, "beta2": 0.9, "gamma": 0.5, "eps": 1e-3}, 2, mars, slopes=(0.5, 8.0))])
    write("sam", "Sharpness-aware minimization in NumPy; the rows of the last case are those of two matrices.",
          [probed("defaults", (2, 3), {}, 1, sam), probed("wide", (3, 2), {"rho": 2.0, "momentum": 0.5}, 2, sam),
           probed("two", (4, 3), {"rho": 0.5}, 3, sam, matrices=2)])
    write("sophia", "Sophia-H in NumPy, where the Hessian is diagonal, and Sophia-G (the last two cases) with random gradients for drawn labels.",
          [probed("defaults", (2, 3), {}, 1, sophia),
           probed("often", (3, 2), {"every": 3, "beta1": 0.8, "beta2": 0.5, "gamma": 2.0, "eps": 1e-3}, 2, sophia, slopes=(-0.5, 3.0)),
           probed("each", (2, 2), {"every": 1, "beta2": 0.0, "gamma": 1.0, "probe": 0.125}, 3, sophia),
           sampled("gnb", (2, 3), {"estimator": "gnb", "gamma": 0.05}, 4, 480),
           sampled("gnb_often", (3, 2), {"estimator": "gnb", "every": 3, "beta1": 0.8, "beta2": 0.5, "gamma": 2.0, "eps": 1e-3}, 5, 7)])
    write("adahessian", "AdaHessian in NumPy, where the Hessian is diagonal.",
          [probed("defaults", (2, 3), {"probe": 0.0625}, 1, adahessian),
           probed("blocks", (3, 12), {"block": 4, "every": 3, "beta1": 0.8, "beta2": 0.5, "eps": 1e-3, "probe": 0.125}, 2, adahessian, slopes=(-0.5, 3.0)),
           probed("power", (2, 4), {"block": 1, "power": 0.5, "probe": 0.125}, 3, adahessian)])
    write("adam8bit", "Adam with moments of 8 bits in blocks of 256, as in bitsandbytes, in NumPy; the last case, of 32 bits, by optax.adam.",
          [adam8bit("one_block", (2, 3), {"min_size": 0}, 1), adam8bit("two_blocks", (2, 140), {"min_size": 0}, 2),
           adam8bit("other", (16, 16), {"min_size": 256, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3}, 3)]
          + cases([("small", (2, 3), {})], lambda p: lambda rate: optax.adam(rate), seed=4))
    write("adamw-bf16", "AdamW with moments in bfloat16, rounded at random, in NumPy with the random bits of JAX.",
          [adamw_bf16("defaults", (2, 3), {}, 1), adamw_bf16("slow", (16, 9), {"beta1": 0.95, "beta2": 0.999, "eps": 1e-3, "round_weights": False}, 2)])
    write("lion", "Lion by optax.scale_by_lion.", cases([("defaults", (2, 3), {}), ("other_betas", (3, 2), {"beta1": 0.95, "beta2": 0.98})], lion))
    write("adopt", "ADOPT with clipping by optax.contrib.adopt.",
          cases([("defaults", (2, 3), {}), ("fast", (3, 4), {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3})], adopt))
    write("ademamix", "AdEMAMix by optax.contrib.ademamix, with the schedules of alpha and beta3 from the paper.",
          cases([("defaults", (2, 3), {}), ("half", (3, 2), {"beta1": 0.8, "beta2": 0.95, "beta3": 0.99, "alpha": 8.0, "warmup": 0.5, "eps": 1e-6}),
                 ("no_warmup", (2, 2), {"warmup": 0.0, "beta3": 0.999})], ademamix))
    write("adafactor", "Adafactor by the transformations of optax.adafactor, with the decay rate of the second moment in float64.",
          cases([("whole", (3, 2), {}), ("factored", (3, 4), {"factor_from": 2}), ("tall", (5, 2), {"factor_from": 2, "decay": 0.5, "threshold": 0.5}),
                 ("plain_rate", (2, 4), {"factor_from": 1, "scale_parameter": False}), ("small", (2, 2), {"least_scale": 1.0, "eps": 1e-3})], adafactor, rate=0.3))
    write("schedule-free", "Schedule-free AdamW without weight decay, by optax.contrib.schedule_free.",
          cases([("defaults", (2, 3), {}), ("other", (3, 2), {"beta1": 0.6, "beta2": 0.9, "eps": 1e-4, "weight_power": 1.0})], schedule_free,
                evaluate=optax.contrib.schedule_free_eval_params))
    prodigies = [("defaults", (2, 3), {}), ("large", (3, 2), {"d0": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-4, "growth": 3.0})]
    pairs = cases([("two", (4, 3), {"d0": 0.001})], prodigy, rate=1.0, seed=9, matrices=2)
    pairs[0]["inputs"]["matrices"] = 2
    write("prodigy", "Prodigy by optax.contrib.prodigy; the rows of the last case are those of two matrices.", cases(prodigies, prodigy, rate=1.0) + pairs)
    write("polyak", "Polyak's step size by optax.polyak_sgd, with a bound that stays the same.", [
        dict(c, inputs=c["inputs"] | {"rates": [c["inputs"]["rates"][5]] * STEPS}) for c in
        cases([("bounded", (2, 3), {}), ("floor", (3, 2), {"floor": -2.0})], polyak, losses=[0.1, 5.0, 2.0, 0.01, 3.0, 0.5, 0.0, 1.0, 2.0, 0.3, 4.0, 0.2], rate=0.3)])


if __name__ == "__main__":
    main()
