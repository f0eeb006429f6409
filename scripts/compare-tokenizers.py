#!/usr/bin/env python3
"""Compares cage's tokenizers with the Python package `tokenizers`.

    pip install tokenizers==0.23.3
    scripts/compare-tokenizers.py DIR [--texts 10000]

trains a tokenizer for each family of published models, with exactly their pipeline (normalizer, pre-tokenizer,
model options, added tokens, post-processor), on the sources of Go; makes texts of many kinds; and has a test
of host/data/tokenizer compare the ids. The other tests need none of this: host/data/tokenizer/testdata has
small tokenizers with their ids.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3, QWEN2 = GPT4 % r"\p{N}{1,3}", GPT4 % r"\p{N}"
VOCAB = 16000


def special(*contents, **options):
    return [AddedToken(c, special=True, normalized=False, **options) for c in contents]


def trained(pre, corpus, **model):
    """A byte-level BPE, trained with a pre-tokenizer."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    tok.train_from_iterator(
        corpus,
        trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    spec = json.loads(tok.to_str())
    spec["model"].update(model)
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def gpt2(corpus):
    tok = trained(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), corpus)
    tok.add_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])
    return tok


def smollm2(corpus):
    tok = trained(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]), corpus)
    tok.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>", "<jupyter_code>"))
    return tok


def llama3(corpus):
    tok = trained(split(LLAMA3), corpus, ignore_merges=True)
    tok.add_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|reserved_special_token_1|>", "<|reserved_special_token_10|>"))
    begin = ("<|begin_of_text|>", tok.token_to_id("<|begin_of_text|>"))
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[begin]),
    ])
    return tok


def qwen25(corpus):
    tok = trained(split(QWEN2), corpus)
    tok.normalizer = normalizers.NFC()
    tok.add_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|box_start|>"))
    tok.add_tokens([AddedToken(c, special=False, normalized=False) for c in ("<tool_call>", "</tool_call>", "<|fim_prefix|>")])
    return tok


def olmo2(corpus):
    tok = trained(split(LLAMA3, behavior="removed", invert=True), corpus)
    tok.add_tokens(special("<|endoftext|>", "<|fim_prefix|>", "<|pad|>"))
    tok.add_tokens([AddedToken(c, special=False, normalized=False) for c in ("|||IP_ADDRESS|||", "|||EMAIL_ADDRESS|||")])
    tok.add_tokens([AddedToken("<mask>", special=True, normalized=False, lstrip=True, rstrip=True)])
    return tok


def sentencepiece(corpus, normalizer, pre, normalized):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tok.train_from_iterator(
        (part.replace("\n", " ") for part in corpus),
        trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=names, limit_alphabet=500, show_progress=False),
    )
    spec = json.loads(tok.to_str())
    spec["added_tokens"] = [dict(t, normalized=normalized) for t in spec["added_tokens"] if t["content"] in names[:3]]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.normalizer, tok.pre_tokenizer = normalizer, pre
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tok


def llama2(corpus):
    return sentencepiece(
        corpus, normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None, True)


def mistral3(corpus):
    tok = sentencepiece(corpus, None, pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False), False)
    tok.add_tokens(special("[INST]", "[/INST]", "[TOOL_CALLS]", "[control_8]"))
    return tok


FAMILIES = [gpt2, smollm2, llama3, qwen25, olmo2, llama2, mistral3]


def go_sources(limit):
    root = pathlib.Path(subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()) / "src"
    files, size = [], 0
    for path in sorted(root.rglob("*.go")):
        text = path.read_text(encoding="utf-8", errors="replace")
        files.append(text)
        size += len(text)
        if size > limit:
            break
    return files


def texts(count, files, names):
    """Texts of many kinds; the same on every machine."""
    rng = random.Random(12)
    known = [chr(c) for c in range(0x20, 0x30000) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    blocks = [known[i:i + 300] for i in range(0, len(known), 300)]
    white = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u1680", "\x0b", "\x0c", "\x1c"]
    words = "it's I'LL don't we've THEY'RE 'ſx 'S 's' 'ſ ''t l'd 3.14 1234567 ½Ⅷ٣ e\u0301 a\u030a ﬁ \u1e9b\u0323 가각 🙂👩‍👩‍👧 ▁ ▁▁a whole wholesome".split(" ")
    makers = [
        lambda: "".join(rng.choice(known) for _ in range(rng.randrange(1, 80))),
        lambda: "".join(rng.choice(rng.choice(blocks)) for _ in range(rng.randrange(1, 80))),
        lambda: "".join(rng.choice(block) + rng.choice(["", "", " "]) for block in [rng.choice(blocks)] for _ in range(rng.randrange(1, 80))),
        lambda: (lambda f: f[(a := rng.randrange(len(f))):a + rng.randrange(400)])(rng.choice(files)),
        lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(200))).decode("utf-8", errors="replace"),
        lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(100))).decode("latin-1"),
        lambda: "".join(rng.choice(white) * rng.randrange(1, 5) + rng.choice(["", "a", "!", "9", "é", "\n"]) for _ in range(rng.randrange(1, 30))),
        lambda: "".join(rng.choice(words) + rng.choice(["", " ", "  ", "\n"]) for _ in range(rng.randrange(1, 30))),
        lambda: "".join(rng.choice(names) + rng.choice(["", " ", " a", "b ", "\n", rng.choice(words)]) for _ in range(rng.randrange(1, 15))),
        lambda: rng.choice("aA1 é\n!模▁") * rng.randrange(1, 300),
    ]
    return [makers[i % len(makers)]().encode("utf-8", errors="replace").decode("utf-8") for i in range(count)]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("dir", type=pathlib.Path)
    args.add_argument("--texts", type=int, default=10000)
    args = args.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    files = go_sources(8 << 20)
    toks = {}
    for make in FAMILIES:
        path = args.dir / make.__name__ / "tokenizer.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            make(files).save(str(path))
        toks[make.__name__] = Tokenizer.from_file(str(path))
    names = sorted({t.content for tok in toks.values() for t in tok.get_added_tokens_decoder().values()})
    made = texts(args.texts, files, names)
    (args.dir / "texts.json").write_text(json.dumps(made))
    for name, tok in toks.items():
        ids = [tok.encode(text, add_special_tokens=False).ids for text in made]
        (args.dir / name / "ids.json").write_text(json.dumps(ids))
    test = ["go", "test", "-count=1", "./host/data/tokenizer", "-run", "^TestCompare$"]
    environment = dict(os.environ, CAGE_TOKENIZERS=str(args.dir.resolve()))
    sys.exit(subprocess.run(test, cwd=ROOT, env=environment).returncode)


if __name__ == "__main__":
    main()
