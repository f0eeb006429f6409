"""Part of gpu-check.sh: the shapes of presets, and the report on what the stages left behind.

usage: gpu-report.py sizes PRESET                    flags of that size, for another program
       gpu-report.py predictions NAME=FILE:BENCH...  predicted.json, from what scripts/predict.py table is given
       gpu-report.py report WORK OUT [--quiet]       writes OUT/report.json and OUT/report.md, and prints the latter
"""
import datetime
import json
import os
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


def memory(work, name):
    path = work / f"memory-{name}"
    values = [int(v) for v in path.read_text().split() if v.isdigit()] if path.exists() else []
    return max(values, default=None)


def benchmarks(work, done, predicted):
    """What was measured of each step, by the name of its stage, beside what was predicted for its preset and batch."""
    result = {}
    for name in done:
        kind, _, step = name.partition("-")
        if kind != "bench":
            continue
        value = last_json(work / f"{name}.out") if done[name]["exit_code"] == 0 else None
        entry = result[step] = {"bench": value, "memory_mib": memory(work, step)}
        if value:
            entry["first_step_seconds"] = value.get("first_step_seconds")
            found = predicted.get("steps", {}).get(f"{step.partition('-')[0]}:{value.get('batch')}")
            if found and not step.endswith("-graph"):
                entry["predicted_seconds"] = found["seconds"]
                entry["times_predicted"] = value["seconds"] / found["seconds"][-1]
        peer = last_json(work / f"peer-{step.partition('-')[0]}.out")
        if value and peer:
            entry["peer"], entry["ratio"] = peer, peer["seconds"] / value["seconds"]
    return result


def warnings(work, done):
    """What cage does without, and why: each warning once, with the stages that have it."""
    found = {}
    for name in done:
        path = work / f"{name}.err"
        text = path.read_text(errors="replace") if path.exists() else ""
        for message in re.findall(r"\[WARN\] +(?:cage: )?(.*)", text):
            found.setdefault(message, []).append(name)
    return found


def failures(work, done):
    """The last line of each stage that failed, which says why."""
    found = {}
    for name, stage in done.items():
        if stage["exit_code"] in (0, None) or name.startswith("test-"):
            continue
        path = work / f"{name}.err"
        lines = [line for line in (path.read_text(errors="replace") if path.exists() else "").splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("cage: ")] or lines[-1:]
        if stage["exit_code"] in (124, 137):
            said = [f"its time was over after {stage['seconds']} s" + (f"; last it said: {said[-1]}" if said else "")]
        found[name] = said[-1].removeprefix("cage: ") if said else f"exit code {stage['exit_code']}, and not a word"
    return found


def predictions(named):
    """What scripts/predict.sh found, NAME=COMPILED:BENCH for each size, as the file that the report reads."""
    steps, gpu = {}, None
    for name, paths in (x.split("=", 1) for x in named):
        compiled = last_json_text(pathlib.Path(paths.split(":")[0]))
        batch = re.search(r", (\d+) ×", name)[1]
        gpu = compiled["gpu"]
        steps[f"{name.split(',')[0]}:{batch}"] = {
            "seconds": [round(x, 6) for x in compiled["step"]],
            "groups": {kind: {"kernels": g["kernels"], "seconds": [round(g[x], 6) for x in ("seconds", "half")]} for kind, g in compiled["groups"].items() if g["kernels"]}}
    print(json.dumps({"gpu": gpu, "made": datetime.date.today().isoformat(), "steps": steps}, indent=1))


def next_steps(report):
    """What to try next, the most important first."""
    steps = []
    failed, done, bench = report["failures"], report["stages"], report["benchmarks"]
    if "device" in failed:
        return ["The device does not open. What to do: " + failed["device"]]
    for name, stage in done.items():
        if name.startswith("trials-without-") and stage["exit_code"] == 0:
            parts = name.removeprefix("trials-without-").split("-")
            keys = " and ".join({"attention": "`device.attention = \"plain\"`", "kernels": "`device.kernels = \"graph\"`"}[p] for p in parts)
            steps.append(f"The device works with {keys}, with which all that follows was run: train so, and look at log.txt for why the trial ended.")
    for name, why in failed.items():
        if name.endswith("-fused") and bench.get(name.removeprefix("bench-").removesuffix("-fused") + "-graph", {}).get("bench"):
            steps.append(f"Kernels fail and graphs do not: train with `device.kernels = \"graph\"`, and look at log.txt for {name}.")
        steps.append(f"{name}: {why}")
    for name, entry in bench.items():
        if entry.get("times_predicted", 0) > 1.15:
            steps.append(f"{name} takes {entry['times_predicted']:.2f} times the upper prediction: "
                         f"`nsys profile bin/cage bench step --set 'device.kind=\"cuda\"' --set 'model.preset=\"{name.partition('-')[0]}\"' …` names all kernels")
    for name, entry in bench.items():
        fused, graph = entry["bench"], bench.get(name.removesuffix("-fused") + "-graph", {}).get("bench")
        if name.endswith("-fused") and fused and graph and fused["seconds"] > 1.02 * graph["seconds"]:
            steps.append(f"{name}: kernels are slower than graphs ({1e3 * fused['seconds']:.1f} and {1e3 * graph['seconds']:.1f} ms): "
                         "`device.kernels = \"auto\"` should choose graphs, see the trials.")
    wrong = [name for name, e in report["demo"].items() if e.get("ok") is False]
    if wrong:
        steps.append("Losses on the GPU are not those of the CPU: " + ", ".join(wrong) + ". Compare with `device.kernels = \"graph\"` and `device.attention = \"plain\"`.")
    tests = [f"{n}: {t['failed'][0]}" for n, t in report["tests"].items() if t["failed"]]
    if tests:
        steps.append("Tests fail: " + "; ".join(tests) + ". log.txt has what they say.")
    skipped = [name for name, s in done.items() if s["exit_code"] is None]
    if skipped:
        phases = dict.fromkeys({"bench": "bench", "peer": "bench", "demo": "demo"}.get(n.partition("-")[0], "tests") for n in skipped)
        steps.append(f"No time was left for {', '.join(skipped)}: `PHASES=\"{' '.join(phases)}\" scripts/gpu-check.sh`")
    return steps or ["Nothing: all is as it should be."]


def number(value, form):
    return "-" if value is None else format(value, form)


def table(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)] + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def markdown(report):
    device = report["device"] or {}
    lines = ["# Device check", "", report["gpu"] or "nvidia-smi says nothing", "", device.get("device") or "The device does not open.", ""]
    if device:
        lines += [f"cage {device['version']}: " + ", ".join(f"{k} {v}" for k, v in device["build"].items()), ""] + [f"lacks: {x}" for x in device.get("lacks") or []] + [""]
    lines += ["## What to do next", ""]
    lines += [f"{i}. {step}" for i, step in enumerate(report["next"], 1)] + [""]
    lines += [", ".join(f"{name} {s['seconds']} s" + ("" if s["exit_code"] == 0 else " (not reached)" if s["exit_code"] is None else " (failed)")
                        for name, s in report["stages"].items()), ""]
    if report["warnings"]:
        lines += ["## What cage does without", ""] + [f"- {message} ({', '.join(names[:3])}{' …' if names[3:] else ''})" for message, names in report["warnings"].items()] + [""]
    if report["benchmarks"]:
        rows = []
        for name, e in report["benchmarks"].items():
            own, peer = e.get("bench") or {}, e.get("peer") or {}
            ms = [None if v.get("seconds") is None else 1e3 * v["seconds"] for v in (own, peer)]
            predicted = e.get("predicted_seconds")
            rows.append([name, number(own.get("batch"), "d"), number(ms[0], ".1f"),
                         "-" if not predicted else " to ".join(f"{1e3 * x:.1f}" for x in predicted), number(e.get("times_predicted"), ".2f"),
                         number(e.get("first_step_seconds"), ".1f"), number(None if own.get("gflops") is None else own["gflops"] / 1e3, ".1f"),
                         number(e["memory_mib"], "d"), number(ms[1], ".1f"), number(e.get("ratio"), ".2f")])
        lines += ["## Steps", "", f"Predictions are for an {report['predicted'].get('gpu', '?')}, of {report['predicted'].get('made', '?')}.", ""]
        lines += table(["step", "batch", "ms", "predicted ms", "of the upper", "first step s", "model TFLOP/s", "GPU memory MiB", "peer ms", "times as fast"], rows)
    if report["demo"]:
        rows = [[name] + [number(e.get(k), ".5f") for k in ("first", "last", "validation")]
                + [number(e.get(k), ".1e") for k in ("first_difference", "largest_difference", "validation_difference")] for name, e in report["demo"].items()]
        lines += ["## Demo, 100 steps", ""] + table(["device", "first loss", "last", "validation", "first, difference", "largest", "validation, difference"], rows)
    if report["tests"]:
        lines += ["## Tests", ""] + table(["tests of", "passed", "skipped", "failed"],
                                          [[n, str(t["passed"]), str(t["skipped"]), ", ".join(t["failed"]) or "-"] for n, t in report["tests"].items()])
    return "\n".join(lines)


def write(work, out, quiet):
    done, predicted = stages(work), last_json_text(work / "predicted.json") or {}
    report = {
        "gpu": (work / "gpu").read_text().strip() if (work / "gpu").exists() else "",
        "device": last_json_text(work / "device.out"),
        "stages": done,
        "failures": failures(work, done),
        "warnings": warnings(work, done),
        "benchmarks": benchmarks(work, done, predicted),
        "demo": compare(work) if "demo-cpu" in done else {},
        "tests": {n.removeprefix("test-"): tests(work, n) for n, s in sorted(done.items()) if n.startswith("test-") and s["exit_code"] is not None},
        "predicted": predicted,
    }
    report["next"] = next_steps(report)
    text = markdown(report)
    for name, content in (("report.json", json.dumps(report, indent=1) + "\n"), ("report.md", text)):
        new = out / f"{name}.{os.getpid()}"  # tests end at once
        new.write_text(content)
        new.replace(out / name)
    if not quiet:
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
    elif sys.argv[1:2] == ["report"] and len(sys.argv) in (4, 5):
        sys.exit(write(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4:] == ["--quiet"]))
    elif sys.argv[1:2] == ["predictions"] and sys.argv[2:]:
        predictions(sys.argv[2:])
    else:
        sys.exit(__doc__)
