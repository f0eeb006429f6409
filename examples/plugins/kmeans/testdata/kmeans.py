# Writes kmeans.json: the best codebooks of rows by trying all ways to cut the sorted entries, with exact fractions. An independent
# implementation: no dynamic programming, and no rounding before the end.
#   cd examples/plugins/kmeans/testdata && python kmeans.py
import itertools
import json
from fractions import Fraction

import numpy as np


def best(row, k):
    v = sorted(Fraction(float(x)) for x in row)
    n, found = len(v), None
    for cuts in itertools.combinations(range(1, n), k - 1):
        edges = (0,) + cuts + (n,)
        cost, means = Fraction(0), []
        for a, b in zip(edges, edges[1:]):
            mean = sum(v[a:b]) / (b - a)
            means.append(mean)
            cost += sum((x - mean) ** 2 for x in v[a:b])
        if found is None or cost < found[0]:
            found = (cost, means)
    return [float(np.float32(float(m))) for m in found[1]], float(found[0])


rng = np.random.default_rng(7)
cases = []
for bits, n in ((1, 9), (1, 24), (2, 12), (2, 20), (3, 12), (3, 14)):
    row = np.round(rng.standard_t(4, size=n), 4).astype(np.float32)
    levels, cost = best(row, 2**bits)
    cases.append({"bits": bits, "x": [float(x) for x in row], "levels": levels, "cost": cost})
with open("kmeans.json", "w") as f:
    json.dump(cases, f)
    f.write("\n")
