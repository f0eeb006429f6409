"""The loss of a model of transformers on a validation set of cage."""
import torch

from tokenfile import windows


def losses(model, path):
    """The mean loss over windows that follow each other, as cage evaluates."""
    total, count = 0.0, 0
    for batch in map(torch.tensor, windows(path, model.config.max_position_embeddings, 64)):
        logits = model(input_ids=batch[:, :-1]).logits.float()
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum").item()
        count += batch[:, 1:].numel()
    return total / count
