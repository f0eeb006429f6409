"""Trains with plain PyTorch and FSDP2, in 4 bits with CAGE: torchrun --nproc-per-node 2 fsdp.py MODEL TEXT OUT [STEPS]"""

import sys
from pathlib import Path

import cage_torch
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoTokenizer

name, text, out, *given = sys.argv[1:]
length, batch, steps = 256, 4, int(given[0]) if given else 100
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, processes = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).to(device)

report = cage_torch.quantize_(model, "absmax", bits=4, granularity="group", group=32, scale_dtype="f16")  # before fully_shard
if rank == 0:
    print(report)
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)  # after it
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
cage_torch.CAGE(optimizer, model, steps, scheduler=scheduler)

ids = torch.tensor(tokenizer(Path(text).read_text())["input_ids"])
rows = ids[: len(ids) // length * length].reshape(-1, length).to(device)
generator = torch.Generator().manual_seed(rank)  # each process has rows of its own
for step in range(steps):
    some = rows[torch.randint(len(rows), (batch,), generator=generator).to(device)]
    loss = model(some, labels=some).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if rank == 0 and step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
cage_torch.save(model, out)  # by all processes
if rank == 0:
    tokenizer.save_pretrained(out)
dist.destroy_process_group()
