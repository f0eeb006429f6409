"""Fine-tunes a model of transformers in 4 bits with CAGE: python finetune.py MODEL TEXT OUT"""

import sys

import cage_torch
import torch
from transformers import (AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments,
                          get_cosine_schedule_with_warmup)

name, text, out = sys.argv[1:]
steps, length = 100, 256
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
print(cage_torch.quantize_(model, "quest", bits=4))  # all linear layers but lm_head

ids = tokenizer(open(text).read())["input_ids"]
rows = [ids[i:i + length] for i in range(0, len(ids) - length + 1, length)]
data = [{"input_ids": row, "labels": row} for row in rows]

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
schedule = get_cosine_schedule_with_warmup(optimizer, 10, steps)
cage_torch.CAGE(optimizer, model, steps, scheduler=schedule)

arguments = TrainingArguments(out, max_steps=steps, per_device_train_batch_size=4, logging_steps=10,
                              report_to="none", save_strategy="no")
Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, schedule)).train()
model.save_pretrained(out)
tokenizer.save_pretrained(out)
