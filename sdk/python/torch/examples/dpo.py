"""Trains on preferences with TRL's DPOTrainer, in 4 bits with CAGE: python dpo.py MODEL JSONL OUT [STEPS]

Each line has "prompt", "chosen" and "rejected". The reference is the model before quantization, in full precision.
"""

import sys

import cage_torch
import torch
from cage_torch.trainer import CAGECallback
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

name, rows, out, *steps = sys.argv[1:]
model, reference = (AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32) for _ in range(2))
print(cage_torch.quantize_(model, "absmax", bits=4, granularity="group", group=32, scale_dtype="f16"))
arguments = DPOConfig(
    out, max_steps=int(steps[0]) if steps else 100, per_device_train_batch_size=2, learning_rate=5e-6, max_length=512,
    logging_steps=10, report_to="none", save_strategy="no", bf16=torch.cuda.is_available(),
)  # fmt: skip
trainer = DPOTrainer(
    model, reference, arguments, train_dataset=load_dataset("json", data_files=rows, split="train"), callbacks=[CAGECallback()],
    processing_class=AutoTokenizer.from_pretrained(name),
)  # fmt: skip
trainer.train()
cage_torch.save(model, out)
trainer.processing_class.save_pretrained(out)
