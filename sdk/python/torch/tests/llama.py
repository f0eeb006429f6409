"""A Llama of transformers that is trained as `cage train` trains it, for a test in Go: host/train/conformance/pytorch_test.go."""

import json
import sys

import torch
import transformers
from cage_torch import CAGE, optimizers, quantize_
from torch import nn

HEADS, CONTEXT = 2, 32


class Part(nn.Module):
    """A third of the result of a layer, which cage trains as one."""

    def __init__(self, whole, index):
        super().__init__()
        self.whole, self.index = whole, index

    def forward(self, x):
        return self.whole(x).chunk(3, -1)[self.index]


def make(fused=False):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=258, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, initializer_range=0.05,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    if fused:
        for layer in model.model.layers:
            a = layer.self_attn
            whole = nn.Linear(64, 192, bias=False)
            whole.weight.data = torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]).detach()
            a.q_proj, a.k_proj, a.v_proj = (Part(whole, i) for i in range(3))
    return model


def write(directory):
    """The model as files for model.init."""
    make().save_pretrained(directory)


def weights(model):
    """The weights of layers, by the names that the file of `write` has."""
    result = {}
    for name, m in model.named_modules(remove_duplicate=False):
        if isinstance(m, Part):
            result[name + ".weight"] = m.whole.weight.chunk(3)[m.index]
        elif isinstance(m, nn.Linear) and "layers" in name and not name.endswith("whole"):
            result[name + ".weight"] = m.weight
    return {name: w.flatten().tolist() for name, w in result.items()}


def train(settings):
    with open(settings) as f:
        s = json.load(f)
    model = make(s["fused"])
    if s["moved"]:  # by a rounding error
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.nextafter(p, p + torch.randn_like(p)))
    report = quantize_(model, s["quantizer"], activations=s["activations"])
    assert len(report.quantized) == (10 if s["fused"] else 14), report
    batches = torch.tensor(s["tokens"]).reshape(s["steps"], -1, CONTEXT + 1)
    with torch.no_grad():  # for the initial values of activations
        model(batches[0, :, :-1])
    decayed = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers" in n and "quantizer" not in n]
    vectors = [p for p in model.parameters() if p.ndim == 1 and s["vectors"]]
    own = {id(p) for p in decayed + vectors}
    others = [p for p in model.parameters() if id(p) not in own]
    groups = [{"params": decayed, "weight_decay": 0.1}, *([{"params": vectors}] if vectors else [])]
    both = [optimizers.load(s["optimizer"], groups, lr=s["rate"]), optimizers.load(s["rest"], others, lr=s["rate"])]
    CAGE(both[0], model, s["steps"], strength=s["strength"], silence=s["silence"])
    losses = []
    for batch in batches:
        logits = model(batch[:, :-1]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        for optimizer in both:
            optimizer.step()
    json.dump({"losses": losses, "weights": weights(model)}, sys.stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"write": write, "train": train}[sys.argv[1]](sys.argv[2])
