"""Trains small tokenizers with the Python `tokenizers` package and records the ids it computes.

    pip install tokenizers==0.23.3
    python generate.py

writes NAME.tokenizer.json and NAME.golden.json for every NAME below. The Go tests read both.
"""
import json
import pathlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = (HERE / "corpus.txt").read_text(encoding="utf-8")

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEXTS = [
    "",
    " ",
    "   ",
    "a",
    "\n",
    "\n\n\n",
    "The training loop reads a batch.",
    " leading space, trailing space ",
    "two  spaces   three    four\tone tab\t\ttwo tabs",
    "line one\nline two\r\nline three\n\n\nline six   \n   \n",
    "\tfor i, v := range x {\n\t\tout[i] = float32(q) * scale\n\t}\n",
    "    if x == nil:\n        return None   # why\n",
    "I'm sure they'll say it's what we've done; you'd think they're wrong, don't you? HE'S, WE'LL, I'VE, '\u017f",
    "1 12 123 1234 12345 123456789 3.14159 -2.5e-10 0x1F $1,299.00",
    "Größe, déjà vu, naïve, Ångström, e\u0301 \u00e9, ﬁ, ①, ½",
    "Разбиение текста: части слов.",
    "模型计算文本的片段。モデルは断片を数えます。한국어 텍스트",
    "emoji 🙂👩‍👩‍👧‍👦🇩🇪 and symbols ≤ ≥ → ∑ \u00a0 nbsp \u3000 wide \u2028 line \u0085 nel",
    "nul \x00 bell \x07 escape \x1b unit \x1f del \x7f bom \ufeff replacement \ufffd private \ue000",
    "zero\u200bwidth soft\u00adhyphen",
    "<|begin|>special<|end|> tokens <|begin|> in  <|end|>text<|beginning|>",
    "  <mask>  strips <mask>\n both sides <mask>",
    "under_score camelCase HTTPServer x86_64 a/b/c C:\\dir http://example.org/?q=1&r=2#top",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the the thethethe quantizer dequantize requantizes",
    "▁ literal ▁▁ meta",
    CORPUS,
]

SPECIALS = [
    AddedToken("<|begin|>", special=True, normalized=False),
    AddedToken("<|end|>", special=True, normalized=False),
    AddedToken("<mask>", special=True, normalized=False, lstrip=True, rstrip=True),
    AddedToken("requantizes", special=False, normalized=True),
]


def byte_level(pre, vocab_size, edit=lambda model: None):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    tok.train_from_iterator(
        [CORPUS],
        trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    spec = json.loads(tok.to_str())
    edit(spec["model"])
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.decoder = decoders.ByteLevel()
    tok.add_tokens(SPECIALS)
    return tok


def gpt2():
    """ByteLevel with its own pattern; no document marker."""
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), 420)


def gpt2_prefix():
    """As gpt2, with a space put before every text, digits apart, and NFC."""
    tok = byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)]
        ),
        320,
    )
    tok.normalizer = normalizers.Sequence([normalizers.NFC()])
    return tok


def llama3():
    """The split of Llama 3 (look-ahead, inline flags), ids of whole words before merges, a begin marker."""
    pre = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    def edit(model):
        # A word that no merge produces: only ignore_merges finds it, as with some words of Llama 3.
        model["ignore_merges"] = True
        model["vocab"]["\u0120spaces"] = len(model["vocab"])

    tok = byte_level(pre, 420, edit)
    begin = ("<|begin|>", tok.token_to_id("<|begin|>"))
    tok.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[begin]
            ),
        ]
    )
    return tok


def sentencepiece(pre, normalizer, decoder):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # Training sees words; the finished tokenizer may see whole texts, as converted SentencePiece models do.
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    text = CORPUS.replace("\n", " ").replace("\t", " ")
    # Rare characters stay out of the vocabulary, so that the bytes are needed. Naming the others keeps the trainer from
    # breaking ties by chance.
    alphabet = sorted({"\u2581"} | {c for c in text if c != " " and text.count(c) >= 3})
    tok.train_from_iterator(
        [text],
        trainers.BpeTrainer(
            vocab_size=256 + 420,
            special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        ),
    )
    spec = json.loads(tok.to_str())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] in ("<unk>", "<s>", "</s>")]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoder
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tok


def llama2():
    """A converted SentencePiece model: text as one word, spaces as U+2581, bytes for unknown characters."""
    return sentencepiece(
        None,
        normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
        decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )


def metaspace():
    """The newer form of the same: Metaspace instead of a normalizer."""
    return sentencepiece(
        pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=True),
        None,
        decoders.Metaspace(replacement="\u2581", prepend_scheme="first", split=True),
    )


def write(name, tok):
    (HERE / f"{name}.tokenizer.json").write_text(tok.to_str(pretty=False) + "\n", encoding="utf-8")
    cases = []
    for text in TEXTS:
        ids = tok.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False)})
    marker = tok.encode("", add_special_tokens=True).ids
    golden = {
        "generator": f"tokenizers {tokenizers.__version__}",
        "bos": marker[0] if marker and tok.post_processor is not None else -1,
        "cases": cases,
    }
    lines = json.dumps(golden, ensure_ascii=True, indent=None, separators=(",", ":"))
    lines = lines.replace('{"text"', '\n{"text"')
    (HERE / f"{name}.golden.json").write_text(lines + "\n", encoding="utf-8")
    print(name, tok.get_vocab_size(), sum(len(c["ids"]) for c in cases))


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
AFTER = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BEGIN, UPPER, LOWER = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {  # of published tokenizers, and of what else a pattern may have
    "tekken": [f"{BEGIN}{UPPER}*{LOWER}+|{BEGIN}{UPPER}+{LOWER}*|" r"\p{N}" + AFTER],
    "gpt-4o": [f"{BEGIN}{UPPER}*{LOWER}+{CONTRACTIONS}?|{BEGIN}{UPPER}+{LOWER}*{CONTRACTIONS}?|" r"\p{N}{1,3}" + AFTER],
    "qwen35": [CONTRACTIONS + "|" + BEGIN + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"],
    "possessive": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
                   r"\s*[\r\n]|\s+(?!\S)|\s"],
    "exaone": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
               r"\s*[\r\n]|\s+(?!\S)|\s+"],
    "thousands": [r"\d{1,3}(?=(?:\d{3})*(?!\d))"], "words": [r"\S+|\n"], "line": ["^"], "end": [r"\s+$"],
    "interval": ["(?:a|the){2}?", "e{,2}", "[a-z]{2}+"], "behind": [r"(?<=e)\s(?!t)"], "scripts": [r"\p{Han}+|\p{^Greek}{2}"],
    "escapes": [r"[\u00e9\x{1F642}\-]|\x{6F}"],
}


def patterns():
    """Ids of the tokenizer gpt2 with other pre-tokenizers, which split at one pattern after the other."""
    texts = [text for text in TEXTS if text != CORPUS] + [
        "ÉÀàé ABCdef HTMLParser iPhone's I'LL'S ǅungla", "नमस्ते दुनिया สวัสดี مرحبا بكم x\u0301y", "a//b/\r\n\r\n  \r\n\tc /\n/",
        "1234567 12,345 ٣٤٥ ½²Ⅷ৹", "#include <a_b> $x `y` ...\n?!", "the theaaa eee e the", "'s's 'ſ 'LL",
    ]
    base = json.loads((HERE / "gpt2.tokenizer.json").read_text(encoding="utf-8"))
    cases = []
    for name, expressions in PATTERNS.items():
        splits = [("Isolated", False)]
        if name in ("possessive", "words", "behind"):
            splits += [("Removed", True), ("Contiguous", False), ("MergedWithPrevious", True), ("MergedWithNext", False)]
        for behavior, invert in splits:
            steps = [{"type": "Split", "pattern": {"Regex": e}, "behavior": behavior, "invert": invert} for e in expressions]
            if name == "deepseek-coder":
                steps.append({"type": "Digits", "individual_digits": True})
            steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
            base["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
            tok = Tokenizer.from_str(json.dumps(base))
            ids = [tok.encode(text, add_special_tokens=False).ids for text in texts]
            cases.append({"name": name, "pre_tokenizer": base["pre_tokenizer"], "ids": ids})
    golden = {"generator": f"tokenizers {tokenizers.__version__}", "texts": texts, "cases": cases}
    lines = json.dumps(golden, separators=(",", ":")).replace('{"name"', '\n{"name"')
    (HERE / "patterns.golden.json").write_text(lines + "\n", encoding="utf-8")


for build in (gpt2, gpt2_prefix, llama3, llama2, metaspace):
    write(build.__name__, build())
patterns()
