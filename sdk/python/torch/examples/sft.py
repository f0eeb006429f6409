"""Trains on conversations with TRL's SFTTrainer, in 4 bits with CAGE: python sft.py MODEL JSONL OUT [STEPS]

Each line has "messages", a list of {"role", "content"}. The model's tokenizer has a chat template.
"""

import sys

import cage_torch
import torch
from cage_torch.trainer import CAGECallback
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

name, rows, out, *steps = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
print(cage_torch.quantize_(model, "absmax", bits=4, granularity="group", group=32, scale_dtype="f16"))
arguments = SFTConfig(
    out, max_steps=int(steps[0]) if steps else 100, per_device_train_batch_size=4, learning_rate=1e-4, max_length=512,
    logging_steps=10, report_to="none", save_strategy="no", bf16=torch.cuda.is_available(),
)  # fmt: skip
trainer = SFTTrainer(
    model, arguments, train_dataset=load_dataset("json", data_files=rows, split="train"), callbacks=[CAGECallback()],
    processing_class=AutoTokenizer.from_pretrained(name),
)  # fmt: skip
trainer.train()
cage_torch.save(model, out)
trainer.processing_class.save_pretrained(out)
