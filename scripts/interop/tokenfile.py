"""Token files of cage."""
import json

import numpy

HEADER = 4096  # bytes


def ids(path):
    """The token ids of a file."""
    header = json.loads(open(path, "rb").read(HEADER)[16:].rstrip(b"\0"))
    return numpy.fromfile(path, dtype="<u2" if header["token_bytes"] == 2 else "<u4", offset=HEADER)
