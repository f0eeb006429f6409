"""A Llama of two layers in PyTorch, trained with modules that cage wrote."""

import importlib
import json
import math
import struct
import sys

import torch
from torch import nn

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, CONTEXT = 2, 64, 2, 128, 258, 32


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * self.weight


def rotate(x):
    """Rotary positions, in halves."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] / 10000 ** (torch.arange(half) / half)
    a, b, cos, sin = x[..., :half], x[..., half:], angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    """With fused, queries, keys and values are computed by one layer, as in cage."""

    fused = False

    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))

    def fuse(self):
        weights = [self._modules.pop(name).weight for name in ("q_proj", "k_proj", "v_proj")]
        self.qkv_proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.qkv_proj.weight = nn.Parameter(torch.cat(weights).detach())
        self.fused = True

    def forward(self, x):
        qkv = self.qkv_proj(x).chunk(3, -1) if self.fused else (f(x) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in qkv)
        y = nn.functional.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()

    def forward(self, x):
        x = self.embed_tokens(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.lm_head = Model(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x):
        return self.lm_head(self.model(x))


def make():
    torch.manual_seed(1)
    model = Llama()
    for p in model.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=0.05)
    return model


def write(directory):
    """The model as files for model.init."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
        "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}
    with open(directory + "/config.json", "w") as f:
        json.dump(config, f)
    header, data = {}, b""
    for name, p in make().state_dict().items():
        content = p.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(p.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(directory + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def train(settings):
    with open(settings) as f:
        s = json.load(f)
    sys.path.insert(0, s["modules"])
    quantizer, optimizer, rest = (importlib.import_module(s[n]) for n in ("quantizer", "optimizer", "rest"))
    model = make()
    if s["fused"]:
        for layer in model.model.layers:
            layer.self_attn.fuse()
    quantizer.quantize_(model, activations=s["activations"])
    batches = torch.tensor(s["tokens"]).reshape(s["steps"], -1, CONTEXT + 1)
    with torch.no_grad():  # for the initial values of activations
        model(batches[0, :, :-1])
    model.train()
    decayed = [p for n, p in model.named_parameters() if n.endswith("_proj.weight")]
    others = [p for n, p in model.named_parameters() if not n.endswith("_proj.weight")]
    optimizers = [optimizer.Optimizer([{"params": decayed, "weight_decay": 0.1}], lr=s["rate"]),
                  rest.Optimizer(others, lr=s["rate"])]
    quantizer.CAGE(optimizers[0], model, s["steps"], strength=s["strength"], silence=s["silence"])
    losses = []
    for batch in batches:
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        for opt in optimizers:
            opt.step()
    json.dump(losses, sys.stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"write": write, "train": train}[sys.argv[1]](sys.argv[2])
