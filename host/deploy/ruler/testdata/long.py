"""Writes long.json: what RULER's scripts make at lengths and seeds that ruler.json has not.

    RULER=<checkout of github.com/NVIDIA/RULER at c3f5e3b4> python3 long.py

Needs numpy, scipy and tqdm. Inputs are those of ruler.json; a token is a word between
white space. Of prompts only the digest is kept."""
import hashlib
import json
import logging
import os
import re
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(os.environ["RULER"], "scripts/data/synthetic")

NEEDLES = {  # scripts/synthetic.yaml: haystack, keys, values; number of keys, values and queries
    "niah_single_1": "noise words numbers 1 1 1", "niah_single_2": "essay words numbers 1 1 1",
    "niah_single_3": "essay words uuids 1 1 1", "niah_multikey_1": "essay words numbers 4 1 1",
    "niah_multikey_2": "needle words numbers 1 1 1", "niah_multikey_3": "needle uuids uuids 1 1 1",
    "niah_multivalue": "essay words numbers 1 4 1", "niah_multiquery": "essay words numbers 1 1 4",
}
FLAGS = ["type_haystack", "type_needle_k", "type_needle_v", "num_needle_k", "num_needle_v", "num_needle_q"]
TASKS = {name: ("niah", dict(zip(FLAGS, text.split()))) for name, text in NEEDLES.items()} | {
    "vt": ("variable_tracking", {}), "cwe": ("common_words_extraction", {}), "fwe": ("freq_words_extraction", {}),
    "qa_1": ("qa", {"dataset": "squad"}), "qa_2": ("qa", {"dataset": "hotpotqa"}),
}


def module(name, **content):
    m = types.ModuleType(name)
    m.__dict__.update(content)
    sys.modules[name] = m
    return m


def prepare(given, folder):
    """Puts the inputs where RULER's scripts look for them; returns the list that samples go to."""
    written = []
    files = {"PaulGrahamEssays": {"text": given["essay"]}, "squad": given["qa"]["squad"], "hotpotqa": given["qa"]["hotpotqa"],
             "english_words": {str(i): w for i, w in enumerate(given["english_words"])}}
    os.mkdir(os.path.join(folder, "json"))
    for name, content in files.items():
        with open(os.path.join(folder, "json", name + ".json"), "w") as f:
            json.dump(content, f)
    split = lambda text: [s for s in re.split(r"(?<=[.!?])\s+", text) if s]
    tokens = types.SimpleNamespace(text_to_tokens=str.split)
    lists = module("wonderwords.random_word", _get_words_from_text_file=lambda name: list(given["words"][name]))
    module("wonderwords", random_word=lists)
    module("nltk")
    module("nltk.tokenize", sent_tokenize=split)
    module("tokenizer", select_tokenizer=lambda kind, path: tokens)
    module("manifest_utils", write_manifest=lambda path, samples: written.extend(samples))
    return written


def main():
    with open(os.path.join(HERE, "ruler.json"), encoding="utf-8") as f:
        given = json.load(f)
    sys.path.insert(0, SCRIPTS)
    from constants import TASKS as texts
    logging.disable(logging.CRITICAL)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        written = prepare(given, folder)
        for length, seed, before, after in [(2000, 7, "", ""), (4096, 42, "", ""), (4100, 5, "<user>", "</user>\n"), (9000, 11, "", "")]:
            for task, (script, flags) in TASKS.items():
                text = texts[script]
                argv = {"save_dir": folder, "save_name": task, "tokenizer_path": "-", "max_seq_length": length, "num_samples": 3,
                        "tokens_to_generate": text["tokens_to_generate"], "random_seed": seed,
                        "template": before + text["template"] + after + text["answer_prefix"]} | flags
                sys.argv = [script] + [part for k, v in argv.items() for part in ("--" + k, str(v))]
                with open(os.path.join(SCRIPTS, script + ".py"), encoding="utf-8") as f:
                    code = compile(f.read(), script, "exec")
                written.clear()
                space = {"__name__": script, "__file__": os.path.join(folder, script + ".py")}
                exec(code, space)
                space["main"]()
                cases.append({"task": task, "max_seq_length": length, "seed": seed, "before": before, "after": after, "samples": [
                    {"index": s["index"], "length": s["length"], "outputs": s["outputs"],
                     "token_position_answer": s.get("token_position_answer"),
                     "sha256": hashlib.sha256((s["input"] + "\0" + s["answer_prefix"]).encode()).hexdigest()} for s in written]})
                print(task, length, seed, [s["length"] for s in written], file=sys.stderr)
    with open(os.path.join(HERE, "long.json"), "w") as f:
        f.write('{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")


main()
