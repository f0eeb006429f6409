"""Writes reference.json: steps of optimizers as optax computes them in float64, and of those that it lacks by formulas of the papers.

    pip install optax==0.2.8 numpy && python3 reference.py > reference.json

Each case has a start x, gradients g, and the points x after each step x ← x − α·u.
"""
import json, sys
import jax, jax.numpy as jnp, numpy as np, optax

jax.config.update("jax_enable_x64", True)
B1, B2, B3, EPS, RATE, STEPS = 0.9, 0.95, 0.92, 1e-8, 0.05, 12
rng = np.random.default_rng(7)


def optax_steps(tx, x, gs):
    state, out = tx.init(x), []
    for g in gs:
        u, state = tx.update(jnp.asarray(g), state, x)
        x = optax.apply_updates(x, u)
        out.append(np.asarray(x))
    return out


TX = {
    "rmsprop": optax.rmsprop(RATE, decay=B2, eps=EPS),
    "adagrad": optax.adagrad(RATE, eps=EPS),
    "adadelta": optax.adadelta(RATE, rho=B2, eps=EPS),
    "adamax": optax.adamax(RATE, B1, B2, EPS),
    "nadam": optax.nadam(RATE, B1, B2, EPS),
    "radam": optax.radam(RATE, B1, B2, EPS),
    "amsgrad": optax.amsgrad(RATE, B1, B2, EPS),
    "adabelief": optax.adabelief(RATE, B1, B2, EPS, eps_root=EPS),
    "yogi": optax.yogi(RATE, B1, B2, EPS),
    "adan": optax.adan(RATE, B1, B3, B2, EPS, eps_root=0.0),
    "lamb": optax.lamb(RATE, B1, B2, EPS),
    "lars": optax.lars(RATE, momentum=B1),
    "novograd": optax.novograd(RATE, B1, B2, EPS),
    "sm3": optax.chain(optax.scale_by_sm3(B1, 1.0, EPS), optax.scale(-RATE)),
}


def own(update):
    def steps(x, gs):
        m, v, out = np.zeros_like(x), np.zeros_like(x), []
        for t, g in enumerate(gs, 1):
            u, m, v = update(g, m, v, t)
            x = x - RATE * u
            out.append(x)
        return out
    return steps


def adam(g, m, v, t):
    m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
    return m / (1 - B1**t) / (np.sqrt(v / (1 - B2**t)) + EPS), m, v


def signum(g, m, v, t):
    m = B1 * m + (1 - B1) * g
    return np.sign(m), m, v


def cautious(g, m, v, t):
    u, m, v = adam(g, m, v, t)
    mask = (u * g > 0).astype(float)
    return u * mask / max(mask.mean(), 1e-3), m, v


def grams(g, m, v, t):
    u, m, v = adam(g, m, v, t)
    return np.abs(u) * np.sign(g), m, v


def laprop(g, m, v, t):
    v = B2 * v + (1 - B2) * g**2
    m = B1 * m + (1 - B1) * g / (np.sqrt(v / (1 - B2**t)) + EPS)
    return m / (1 - B1**t), m, v


def adam_mini(g, m, v, t):
    m = B1 * m + (1 - B1) * g
    v = B2 * v + (1 - B2) * np.broadcast_to((g**2).mean(-1, keepdims=True), g.shape)
    return m / (1 - B1**t) / (np.sqrt(v / (1 - B2**t)) + EPS), m, v


def mars_steps(x, gs):
    m, v, last, out = np.zeros_like(x), np.zeros_like(x), gs[0], []
    for t, g in enumerate(gs, 1):
        c = g + 0.025 * B1 / (1 - B1) * (g - last)
        u, m, v = adam(c / max(1, np.linalg.norm(c)), m, v, t)
        x, last = x - RATE * u, g
        out.append(x)
    return out


OWN = {f.__name__.replace("_", ""): own(f) for f in (signum, cautious, grams, laprop, adam_mini)}
OWN["mars"] = mars_steps


def lookahead_steps(x, gs):
    """optax.lookahead steps its fast weights by a pair of updates; the fast weights after each step count."""
    tx = optax.lookahead(optax.adam(RATE, B1, B2, EPS), sync_period=5, slow_step_size=0.5)
    params = optax.LookaheadParams.init_synced(jnp.asarray(x))
    state, out = tx.init(params), []
    for g in gs:
        u, state = tx.update(jnp.asarray(g), state, params)
        params = optax.apply_updates(params, u)
        out.append(np.asarray(params.fast))
    return out


OWN["lookahead"] = lookahead_steps
cases = []
for shape in ((3, 4), (5,)):
    x = rng.normal(size=shape)
    gs = [rng.normal(size=shape) * 10 ** rng.uniform(-3, 1) for _ in range(STEPS)]
    for name in sorted(TX | OWN):
        points = optax_steps(TX[name], jnp.asarray(x), gs) if name in TX else OWN[name](x, gs)
        cases.append(dict(method=name, shape=shape, rate=RATE, x=x.ravel().tolist(), gradients=[g.ravel().tolist() for g in gs],
                          points=[p.ravel().tolist() for p in points]))
settings = dict(beta1=B1, beta2=B2, beta_difference=B3, eps=EPS)
json.dump(dict(made_by=f"optax {optax.__version__}, numpy {np.__version__}", settings=settings, cases=cases), sys.stdout)
