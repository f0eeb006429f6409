"""Token files of cage."""
import json

import numpy

HEADER = 4096  # bytes


def ids(path):
    """The token ids of a file."""
    header = json.loads(open(path, "rb").read(HEADER)[16:].rstrip(b"\0"))
    return numpy.fromfile(path, dtype="<u2" if header["token_bytes"] == 2 else "<u4", offset=HEADER)


def windows(path, width, batch):
    """Batches of windows of width + 1 ids that follow each other, as cage evaluates."""
    tokens = ids(path).astype(numpy.int64)
    every = numpy.stack([tokens[i : i + width + 1] for i in range(0, len(tokens) - width, width)])
    for first in range(0, len(every), batch):
        yield every[first : first + batch]
