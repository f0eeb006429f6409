"""The loss of a model of transformers on a validation set of cage."""
import json

import numpy
import torch


def losses(model, path):
    """The mean loss over windows that follow each other, as cage evaluates."""
    width = model.config.max_position_embeddings
    header = json.loads(open(path, "rb").read()[16:4096].rstrip(b"\0"))
    ids = numpy.fromfile(path, dtype="<u2" if header["token_bytes"] == 2 else "<u4", offset=4096).astype(numpy.int64)
    windows = [ids[i : i + width + 1] for i in range(0, len(ids) - width, width)]
    total, count = 0.0, 0
    for batch in torch.tensor(numpy.stack(windows)).split(64):
        logits = model(input_ids=batch[:, :-1]).logits.float()
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum").item()
        count += batch[:, 1:].numel()
    return total / count
