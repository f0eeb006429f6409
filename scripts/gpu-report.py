"""Part of gpu-check.sh: the shapes of presets, and the report on what the stages left behind.

usage: gpu-report.py sizes PRESET        flags of that size, for another program
       gpu-report.py report WORK OUT     writes OUT/report.json and OUT/report.md
"""
import json
import pathlib
import re
import sys

SIZES = {  # layers, heads, width
    "30M": (6, 5, 640), "50M": (7, 6, 768), "100M": (8, 8, 1024),
    "200M": (10, 10, 1280), "430M": (13, 13, 1664), "800M": (16, 16, 2048),
}

# How far losses of a GPU may be from those of the CPU: the first, before anything was trained, and that of the
# evaluation at the end, relatively. Trainings drift apart, so that the second says only that both learn.
LIMITS = {"cuda": (1e-4, 0.03), "bfloat16": (5e-3, 0.03), "kernels": (5e-3, 0.03), "integers": (5e-3, 0.03)}


def sizes(preset):
    layers, heads, width = SIZES[preset]
    return f"--layers {layers} --heads {heads} --width {width} --vocab 32000"


def last_json(path):
    """The last JSON object among the lines of a file, or None."""
    if not path.exists():
        return None
    for line in reversed(path.read_text(errors="replace").splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def stages(work):
    result = {}
    for line in (work / "stages").read_text().splitlines():
        name, code, seconds = line.split("\t")
        result[name] = {"exit_code": None if code == "skipped" else int(code), "seconds": int(seconds)}
    return result


def tests(work, name):
    text = (work / f"{name}.out").read_text(errors="replace")
    found = {verdict: re.findall(rf"^\s*--- {verdict}: (\S+)", text, re.M) for verdict in ("PASS", "FAIL", "SKIP")}
    return {"passed": len(found["PASS"]), "skipped": len(found["SKIP"]), "failed": found["FAIL"]}


def training(work, name):
    """Losses of a run by step, and its validation loss."""
    run = work / "runs" / name
    losses, validation = {}, None
    if (run / "metrics.jsonl").exists():
        for line in (run / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record.get("val_loss") is not None:
                validation = record["val_loss"]
            elif record.get("loss") is not None:
                losses[record["step"]] = record["loss"]
    return losses, validation


def compare(work):
    """The runs on the GPU beside that on the CPU."""
    reference, validation = training(work, "cpu")
    result = {"cpu": {"first": reference.get(1), "last": reference.get(100), "validation": validation}}
    for name, (first_limit, validation_limit) in LIMITS.items():
        if not (work / "runs" / name).exists():
            continue
        losses, value = training(work, name)
        common = sorted(set(losses) & set(reference))
        entry = {"first": losses.get(1), "last": losses.get(100), "validation": value}
        if common and value is not None and validation:
            difference = [abs(losses[s] / reference[s] - 1) for s in common]
            entry["first_difference"] = difference[0]
            entry["largest_difference"] = max(difference)
            entry["validation_difference"] = abs(value / validation - 1)
            entry["ok"] = difference[0] <= first_limit and entry["validation_difference"] <= validation_limit
        result[name] = entry
    return result


def memory(work, preset):
    path = work / f"memory-{preset}"
    values = [int(v) for v in path.read_text().split() if v.isdigit()] if path.exists() else []
    return max(values, default=None)


def benchmarks(work, done):
    result = {}
    for name in done:
        kind, _, preset = name.partition("-")
        if kind in ("bench", "peer"):
            value = last_json(work / f"{name}.out") if done[name]["exit_code"] == 0 else None
            result.setdefault(preset, {})[kind] = value
    for preset, entry in result.items():
        entry["memory_mib"] = memory(work, preset)
        if entry.get("bench") and entry.get("peer"):
            entry["ratio"] = entry["peer"]["seconds"] / entry["bench"]["seconds"]
    return result


def number(value, form):
    return "-" if value is None else format(value, form)


def markdown(report):
    lines = ["# Device check", "", report["gpu"] or "nvidia-smi says nothing", "", str(report["device"]), ""]
    failed = [name for name, s in report["stages"].items() if s["exit_code"] not in (0, None)]
    skipped = [name for name, s in report["stages"].items() if s["exit_code"] is None]
    lines += ["Failed: " + (", ".join(failed) or "nothing"), "Not reached in time: " + (", ".join(skipped) or "nothing"), ""]
    if report["tests"]:
        lines += ["| tests of | passed | skipped | failed |", "|---|---|---|---|"]
        lines += [f"| {n} | {t['passed']} | {t['skipped']} | {', '.join(t['failed']) or '-'} |" for n, t in report["tests"].items()]
        lines.append("")
    if report["demo"]:
        lines += ["| demo, 100 steps | first loss | last | validation | first, difference | largest | validation, difference |", "|---|---|---|---|---|---|---|"]
        for name, e in report["demo"].items():
            lines.append("| " + " | ".join([name] + [number(e.get(k), ".5f") for k in ("first", "last", "validation")]
                         + [number(e.get(k), ".1e") for k in ("first_difference", "largest_difference", "validation_difference")]) + " |")
        lines.append("")
    if report["benchmarks"]:
        lines += ["| preset | step ms | model TFLOP/s | GPU memory MiB | peer ms | times as fast |", "|---|---|---|---|---|---|"]
        for preset, e in report["benchmarks"].items():
            own, peer = e.get("bench") or {}, e.get("peer") or {}
            ms = [None if v.get("seconds") is None else 1e3 * v["seconds"] for v in (own, peer)]
            tflops = None if own.get("gflops") is None else own["gflops"] / 1e3
            lines.append(f"| {preset} | {number(ms[0], '.1f')} | {number(tflops, '.1f')} | {number(e['memory_mib'], 'd')} "
                         f"| {number(ms[1], '.1f')} | {number(e.get('ratio'), '.2f')} |")
        lines.append("")
    return "\n".join(lines)


def write(work, out):
    done = stages(work)
    report = {
        "gpu": (work / "gpu").read_text().strip(),
        "device": last_json_text(work / "device.out"),
        "stages": done,
        "tests": {n.removeprefix("test-"): tests(work, n) for n, s in sorted(done.items()) if n.startswith("test-") and s["exit_code"] is not None},
        "demo": compare(work) if "demo-cpu" in done else {},
        "benchmarks": benchmarks(work, done),
    }
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    text = markdown(report)
    (out / "report.md").write_text(text)
    print(text)
    wrong = [n for n, s in done.items() if s["exit_code"] not in (0, None)] + [n for n, e in report["demo"].items() if e.get("ok") is False]
    return 1 if wrong else 0


def last_json_text(path):
    """A file that is one JSON object over several lines."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    if sys.argv[1:2] == ["sizes"] and len(sys.argv) == 3:
        if sys.argv[2] not in SIZES:
            sys.exit(f"no preset {sys.argv[2]}: known are {', '.join(SIZES)}")
        print(sizes(sys.argv[2]))
    elif sys.argv[1:2] == ["report"] and len(sys.argv) == 4:
        sys.exit(write(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
    else:
        sys.exit(__doc__)
