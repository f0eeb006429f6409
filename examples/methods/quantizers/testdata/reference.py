"""Writes reference.json: Q(x), and where a method has a gradient of its own that of ΣQ(x), by the formulas of the papers in NumPy float64; of
methods with noise, those of evaluation.

    pip install numpy && python3 reference.py > reference.json
"""
import json, sys
import numpy as np

BITS, GROUP, TOP = 4, 64, 7
rng = np.random.default_rng(11)
X = rng.standard_t(5, size=(4, 256)) * 10.0 ** rng.uniform(-2, 1, size=(4, 1))
N = X.size


def rows(f, x): return np.stack([f(r) for r in x])
def clip_round(x, s, top=TOP): return np.round(np.clip(x / s, -top, top)) * s


def bwn(x): return np.where(x >= 0, 1, -1) * np.abs(x).mean(1, keepdims=True)


def twn(x):
    def row(r):
        t = np.where(np.abs(r) > 0.7 * np.abs(r).mean(), np.sign(r), 0)
        return t * np.abs(r)[t != 0].mean()
    return rows(row, x)


def ttq(x):
    t = np.where(np.abs(x) > 0.05 * np.abs(x).max(), np.sign(x), 0)
    w = np.abs(x).mean()
    return t * w, np.where(t == 0, 1, w)


def bitnet(x):
    s = np.abs(x).mean()
    return np.clip(np.round(x / s), -1, 1) * s


def statsq(x): return clip_round(x, 2 * np.abs(x).mean(1, keepdims=True) / TOP)


def octav(x):
    values, slopes = [], []
    for r in x:
        a = np.abs(r)
        s = a.mean()
        for _ in range(12):
            s = a[a > s].sum() / (4.0 ** -BITS / 3 * ((a > 0) & (a <= s)).sum() + (a > s).sum())
        values.append(clip_round(r, s / TOP))
        slopes.append(np.minimum(1, s / a))
    return np.stack(values), np.stack(slopes)


def dampen(x):
    q, bound = statsq(x), 2 * np.abs(x).mean(1, keepdims=True) / TOP * (TOP + 0.5)
    return q, np.where(np.abs(x) <= bound, 1 + 2e-3 * (x - q), 0)


def groups(f, x): return np.stack([f(g) for g in x.reshape(-1, GROUP)]).reshape(x.shape)


def affine(x):
    def group(g):
        lo, hi = min(g.min(), 0), max(g.max(), 0)
        s = (hi - lo) / 15
        zero = np.round(-lo / s)
        return (np.clip(np.round(g / s) + zero, 0, 15) - zero) * s
    return groups(group, x)


def hqq(x):
    def group(g):
        s = (g.max() - g.min()) / 15
        z, beta = -g.min() / s, 10.0
        for _ in range(10):
            q = np.clip(np.round(g / s + z), 0, 15)
            e = g - (q - z) * s
            with np.errstate(divide="ignore"):
                w = np.sign(e) * np.maximum(np.abs(e) - np.where(e == 0, np.inf, np.abs(e)) ** (0.7 - 1) / beta, 0)
            z = (q - (g - w) / s).mean()
            beta *= 1.01
        return (np.clip(np.round(g / s + z), 0, 15) - z) * s
    return groups(group, x)


def spqr(x):
    def row(r):
        out = np.abs(r) > 3 * np.sqrt((r * r).mean())
        s = np.abs(r[~out]).max() / TOP
        return np.where(out, r, np.round(r / s) * s)
    return rows(row, x)


def pact(x):
    bound = np.sqrt((x * x).mean()) * (1.2 + 0.35 * BITS)
    return clip_round(x, bound / TOP), (np.abs(x) <= bound).astype(float)


def lsqplus(x):
    s, o = x.std() * (1.2 + 0.35 * BITS) / (TOP + 0.5), x.mean()
    r = (x - o) / s
    return np.round(np.clip(r, -TOP - 1, TOP)) * s + o, ((r >= -TOP - 1) & (r <= TOP)).astype(float)


def omniquant(x):
    bound = np.abs(x).max(1, keepdims=True) / (1 + np.exp(-4.0))
    return clip_round(x, bound / TOP), (np.abs(x) <= bound).astype(float)


def log2(x):
    top = np.round(np.log2(np.abs(x).max(1, keepdims=True)))
    e = np.round(np.log2(np.abs(x)))
    return np.where(e < top + 1 - TOP, 0, 2.0 ** np.minimum(e, top) * np.sign(x))


def apot(x):
    levels = np.unique([a + b for a in (0, 1 / 2, 1 / 4, 1 / 16) for b in (0, 1 / 8)])
    levels /= levels.max()
    s = np.abs(x).max(1, keepdims=True)
    return levels[np.abs((np.abs(x) / s)[..., None] - levels).argmin(-1)] * np.sign(x) * s


def dsq(x):
    s = np.abs(x).max(1, keepdims=True) / TOP
    k = np.log(2 / 0.2 - 1)
    inner = x / s - np.floor(x / s) - 0.5
    return clip_round(x, s), k / 2 / (1 - 0.2) / np.cosh(k * inner) ** 2


def e4m3(v):
    a = np.minimum(np.abs(v), 448)
    step = 2.0 ** (np.maximum(np.floor(np.log2(np.where(a == 0, 1, a))), -6) - 3)
    return np.sign(v) * np.minimum(np.round(a / step) * step, 448)


def deepseek(x):
    out = np.empty_like(x)
    for j in range(0, x.shape[1], 128):
        block = x[:, j:j + 128]  # 4 rows are one block of up to 128
        s = np.abs(block).max() / 448
        out[:, j:j + 128] = e4m3(block / s) * s
    return out


def absmax(x): return clip_round(x, np.abs(x).max(1, keepdims=True) / TOP)
def qdrop(x): return absmax(x)
def diffq(x): return absmax(x)


def luq(x):
    levels = np.concatenate([[0], 2.0 ** np.arange(7)])
    least = np.abs(x).max(1, keepdims=True) / 64
    return levels[np.abs((np.abs(x) / least)[..., None] - levels).argmin(-1)] * np.sign(x) * least


cases = []
for f in (bwn, twn, ttq, bitnet, statsq, octav, dampen, affine, hqq, spqr, pact, lsqplus, omniquant, log2, apot, dsq, deepseek, qdrop, diffq, luq):
    r = f(X)
    value, gradient = r if isinstance(r, tuple) else (r, None)
    case = dict(method=f.__name__, value=value.ravel().tolist())
    if gradient is not None:
        case["gradient"] = np.broadcast_to(gradient, X.shape).ravel().tolist()
    cases.append(case)


# Methods with state: a weight of 2 rows in 12 steps, that goes to and fro; each value is that before the state moves on.
SHAPE = (2, 32)


def observer_run(xs):
    least, most = min(xs[0].min(), 0), max(xs[0].max(), 0)
    for x in xs:
        s = (most - least) / 15
        zero = np.round(-least / s)
        yield (np.clip(np.round(x / s) + zero, 0, 15) - zero) * s
        least, most = 0.99 * least + 0.01 * min(x.min(), 0), 0.99 * most + 0.01 * max(x.max(), 0)


def qema_run(xs):
    ema = xs[0]
    for x in xs:
        s = np.abs(x).max(1, keepdims=True) / TOP
        lower = np.floor(np.abs(x) / s + 1e-6)
        q = lower + (np.sign(x) * ema / s - lower >= 0.5)
        yield np.sign(x) * np.clip(q, -TOP, TOP) * s
        ema = 0.998 * ema + 0.002 * x


def freezing_run(xs):
    """As TrackOscillation of the authors' code, with momentum 0.01, and a threshold of 0.03."""
    prev = ema = None
    for x in xs:
        s = np.abs(x).max(1, keepdims=True) / TOP
        i = np.clip(np.round(x / s), -TOP, TOP)
        if prev is None:
            prev, ema, direction, often = i, i.copy(), np.zeros(SHAPE), np.zeros(SHAPE)
            frozen, kept = np.zeros(SHAPE, bool), np.zeros(SHAPE)
        i = np.where(frozen, kept, i)
        yield i * s
        d = np.sign(i - prev)
        often = 0.01 * (direction * d == -1) + 0.99 * often
        direction = np.where(d != 0, d, direction)
        prev = i
        new = (often > 0.03) & ~frozen
        kept = np.where(new, np.round(ema), kept)
        frozen = frozen | new
        ema = 0.01 * i + 0.99 * ema
    assert 0 < frozen.sum() < frozen.size, frozen.sum()


start = rng.standard_normal(SHAPE)
xs = [start + 0.15 * (-1) ** t * (rng.random(SHAPE) < 0.8) + 0.01 * rng.standard_normal(SHAPE) for t in range(12)]
runs = [dict(method=f.__name__[:-4], values=[v.ravel().tolist() for v in f(xs)]) for f in (observer_run, qema_run, freezing_run)]
json.dump(dict(steps=dict(shape=SHAPE, x=[x.ravel().tolist() for x in xs], runs=runs), made_by=f"numpy {np.__version__}", bits=BITS, group=GROUP, shape=X.shape, x=X.ravel().tolist(), cases=cases), sys.stdout)
