"""The loss of a model of transformers on a validation set of cage."""
import numpy
import torch

from tokenfile import ids


def losses(model, path):
    """The mean loss over windows that follow each other, as cage evaluates."""
    width = model.config.max_position_embeddings
    tokens = ids(path).astype(numpy.int64)
    windows = [tokens[i : i + width + 1] for i in range(0, len(tokens) - width, width)]
    total, count = 0.0, 0
    for batch in torch.tensor(numpy.stack(windows)).split(64):
        logits = model(input_ids=batch[:, :-1]).logits.float()
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum").item()
        count += batch[:, 1:].numel()
    return total / count
