"""Fine-tunes a model of transformers on a text, in 4 bits with CAGE: python trainer.py MODEL TEXT OUT [STEPS]"""

import sys
from pathlib import Path

import cage_torch
import torch
from cage_torch.trainer import CAGECallback
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

name, text, out, *steps = sys.argv[1:]
length = 256
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
print(cage_torch.quantize_(model, "absmax", bits=4, granularity="group", group=32, scale_dtype="f16"))

ids = tokenizer(Path(text).read_text())["input_ids"]
rows = [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
arguments = TrainingArguments(
    out, max_steps=int(steps[0]) if steps else 100, per_device_train_batch_size=4, learning_rate=1e-4, lr_scheduler_type="cosine",
    logging_steps=10, report_to="none", save_strategy="no",
)  # fmt: skip
data = [{"input_ids": row, "labels": row} for row in rows]
Trainer(model, arguments, train_dataset=data, callbacks=[CAGECallback()]).train()
cage_torch.save(model, out)
tokenizer.save_pretrained(out)
