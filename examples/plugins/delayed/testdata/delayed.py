# Writes delayed.json: delayed scaling by NumPy, float64, with the float8_e4m3fn of ml_dtypes. The scale is computed as Transformer Engine does
# (_default_sf_compute with amax_compute_algo = "max"), from the largest magnitudes of the steps before. Each case is one step of a run.
import json
import ml_dtypes
import numpy as np

TOP = 448.0


def e4m3(v):
    return np.clip(v, -TOP, TOP).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)


rng = np.random.default_rng(5)
cases = []
for history, margin, steps in ((4, 0, 6), (16, 1, 3), (1, 0, 3)):
    past = None
    for step in range(steps):
        x = np.round(rng.standard_t(4, size=(3, 17)) * 2.0 ** rng.integers(-3, 4), 5).astype(np.float32).astype(np.float64)
        if history == 4 and step == 0:
            x[:] = 0
        now = np.abs(x).max()
        if past is None:
            past = [now] + [0.0] * (history - 1)
        most = max(past)
        scale = TOP / most / 2.0**margin if most > 0 else 1.0
        following = ([now] + past)[:history]
        cases.append(
            {
                "id": f"history {history}, margin {margin}, step {step}",
                "settings": {"history": history, "margin": margin},
                "inputs": {"x": x.tolist(), "kept.history": past},
                "expected": {"value": (e4m3(x * scale) / scale).tolist(), "kept.history": following},
            }
        )
        past = following
with open("delayed.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "delayed",
            "description": "FP8 with delayed scaling by delayed.py, NumPy " + np.__version__ + " in float64, ml_dtypes " + ml_dtypes.__version__ + ".",
            "tolerance": {"abs": 0.0, "rel": 1e-12},
            "cases": cases,
        },
        f,
        indent=1,
    )
    f.write("\n")
