# Writes vq.json: vector quantization with a codebook by moving averages, in NumPy, float64. Counts and sums are those of appendix A.1 of
# van den Oord et al. 2017 (arXiv 1711.00937), smoothed as in VectorQuantizerEMA of Sonnet, on counts; what the plugin keeps is these
# over the number of groups, and ε is in the same proportion. Each case is one step of a run.
#
#     pip install numpy && python3 vq.py
import json
import numpy as np

rng = np.random.default_rng(35)
cases = []
for d, bits, decay, epsilon, scale, steps in ((2, 3, 0.99, 1e-8, "row", 4), (4, 2, 0.5, 1e-5, "tensor", 4), (1, 2, 0.0, 0.0, "row", 2)):
    k, cluster_size, ema_w = 2**bits, None, None
    for step in range(steps):
        x = np.round(rng.standard_t(4, size=(6, 16)) * 2.0 ** rng.integers(-3, 4, size=(6, 1)), 5)
        x = x.astype(np.float32).astype(np.float64)
        s = np.abs(x).mean(axis=-1, keepdims=True) if scale == "row" else np.abs(x).mean()
        inputs = (x / s).reshape(-1, d)
        groups = len(inputs)
        if cluster_size is None:
            # What a run keeps is of float32.
            book = inputs[rng.choice(groups, k, replace=False)]
            cluster_size = np.float32(np.full(k, 1 / k)).astype(np.float64) * groups
            ema_w = np.float32(book / k).astype(np.float64) * groups
        n = cluster_size.sum()
        updated = (cluster_size + epsilon * groups) / (n + k * epsilon * groups) * n
        embeddings = ema_w / updated[:, None]
        distances = (inputs**2).sum(1, keepdims=True) - 2 * inputs @ embeddings.T + (embeddings**2).sum(1)
        index = distances.argmin(1)
        best = np.sort(distances, axis=1)
        assert (best[:, 1] - best[:, 0] > 1e-5).all()
        encodings = np.eye(k)[index]
        value = embeddings[index].reshape(x.shape) * s
        case = {
            "id": f"group {d}, bits {bits}, {scale}, step {step}",
            "settings": {"group": d, "bits": bits, "decay": decay, "epsilon": epsilon, "scale": scale},
            "inputs": {"x": x.tolist(), "kept.shares": (cluster_size / groups).tolist(), "kept.sums": (ema_w / groups).tolist()},
        }
        cluster_size = cluster_size * decay + (1 - decay) * encodings.sum(0)
        ema_w = ema_w * decay + (1 - decay) * encodings.T @ inputs
        case["expected"] = {"value": value.tolist(), "kept.shares": (cluster_size / groups).tolist(), "kept.sums": (ema_w / groups).tolist()}
        cases.append(case)
with open("vq.json", "w") as f:
    json.dump(
        {
            "format": 1,
            "kind": "quantizer",
            "name": "vq",
            "description": "Vector quantization with a codebook by moving averages, by vq.py, NumPy " + np.__version__ + " in float64.",
            "tolerance": {"abs": 0.0, "rel": 1e-12},
            "cases": cases,
        },
        f,
        indent=1,
    )
    f.write("\n")
