"""Computes, without any Go, what the sampler visits and how documents are split; python generate.py writes
../arrange/testdata/sampler.golden.json and split.golden.json.

PCG-DXSM with a 128-bit state; bounded numbers by the upper half of a product; Fisher-Yates from the end.
"""
import hashlib
import json
import pathlib

HERE = pathlib.Path(__file__).parent
M64, M128 = (1 << 64) - 1, (1 << 128) - 1
SAMPLER_STREAM, SPLIT_STREAM = 0x6361676564617461, 0x6361676573706C74


class PCG:
    def __init__(self, hi, lo):
        self.state = hi << 64 | lo

    def next(self):
        self.state = (self.state * 47026247687942121848144207491837523525 + 117397592171526113268558934119004209487) & M128
        hi, lo = self.state >> 64, self.state & M64
        cheap = 0xDA942042E4DD58B5
        hi ^= hi >> 32
        hi = hi * cheap & M64
        hi ^= hi >> 48
        return hi * (lo | 1) & M64

    def below(self, n):
        return self.next() * n >> 64


def shuffle(rng, items):
    for i in range(len(items) - 1, 0, -1):
        j = rng.below(i + 1)
        items[i], items[j] = items[j], items[i]
    return items


def epoch(seed, number, context, windows):
    rng = PCG((seed + number) & M64, SAMPLER_STREAM)
    return rng.below(context), shuffle(rng, list(range(windows)))


def sampler():
    cases = []
    for seed, number, context, windows in [(1337, 0, 512, 20), (1337, 1, 512, 20), (0, 0, 1, 1), (2**64 - 1, 1, 64, 7), (7, 3, 128, 300)]:
        offset, order = epoch(seed, number, context, windows)
        cases.append({"seed": seed, "epoch": number, "context": context, "windows": windows, "offset": offset, "order": order})
    return "[" + ",\n".join(json.dumps(c) for c in cases) + "]\n"


def split():
    """50 documents, a fifth for validation, the default seed, bytes as 16-bit ids behind a zero."""
    documents = [f"document {i}: {'é' * (i % 17)}\n".encode() for i in range(50)]
    shuffle(PCG(2357, SPLIT_STREAM), documents)

    def hash_of(part):
        return hashlib.sha256(b"".join(bytes([b, 0]) for d in part for b in b"\0" + d)).hexdigest()

    return json.dumps({"train": hash_of(documents[10:]), "val": hash_of(documents[:10])}) + "\n"


(HERE.parent / "arrange" / "testdata" / "sampler.golden.json").write_text(sampler())
(HERE / "split.golden.json").write_text(split())
