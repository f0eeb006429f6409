"""Compiles a step's StableHLO program for a GPU that is not there, and says what XLA makes of it. See scripts/predict.sh.

usage: predict.py compile PROGRAM.mlir DUMP_DIR [GPU]    prints a JSON object; XLA's dump goes to DUMP_DIR
       predict.py kernels PROGRAM.mlir DUMP_DIR [GPU]    prints each distinct kernel that is no product: instructions of its machine code, registers,
                                                         warps on a multiprocessor, times; fails where one needs more registers than it has
       predict.py own PROGRAM.mlir DUMP_DIR [GPU]        prints a JSON object for each of cage's own kernels: its name and the type of its first result,
                                                         instructions of a warp for 32 elements, registers, warps, bytes that a thread spills, and
                                                         the microseconds of its bytes and of its instructions, at two a clock
       predict.py table NAME=FILE:BENCH...               prints such objects, one for each size, as a table, with the operations that a model
                                                         takes from the answer of `cage bench step --alone`

See gpucompiler.py for what it needs.
"""
import collections
import glob
import json
import math
import os
import re
import sys
import time
from typing import NamedTuple

import machinecode
from gpucompiler import GPU, Compiler

# What of a GPU's rates is reached by good kernels: bytes a second, and operations by the type of their operands; what it does on bfloat16 at most,
# by which utilisation is counted; the rate of its clock while it works; and bytes that it sends to other GPUs a second. Those of a B200 are the same shares of what NVIDIA states, but for products of four-bit floats: a third,
# because tiles of 128 × 256 have to be read faster than its cache is likely to give them.
RATES = {
    "NVIDIA H200 141GB HBM3e": dict(bytes=4.0e12, bf16=600e12, f16=600e12, s8=1200e12, tf32=300e12, f32=40e12, peak=989e12, clock=1.755e9, link=360e9),
    "NVIDIA H100 80GB HBM3": dict(bytes=2.8e12, bf16=600e12, f16=600e12, s8=1200e12, tf32=300e12, f32=40e12, peak=989e12, clock=1.755e9, link=360e9),
    "NVIDIA A100-SXM4-80GB": dict(bytes=1.7e12, bf16=190e12, f16=190e12, s8=380e12, tf32=95e12, f32=12e12, peak=312e12, clock=1.41e9, link=240e9),
    "NVIDIA L40S": dict(bytes=0.72e12, bf16=220e12, f16=220e12, s8=440e12, tf32=110e12, f32=55e12, peak=362e12, clock=2.23e9, link=25e9),
    "NVIDIA B200": dict(bytes=6.7e12, bf16=1365e12, f16=1365e12, s8=2730e12, f4=3000e12, tf32=680e12, f32=48e12, peak=2250e12, clock=1.74e9, link=720e9),
}
LAUNCH = 2e-6
HOST = (0.39e-3, 0.60e-3)  # what the host does between two steps, while the GPU waits: measured with `cage bench step` and the recorder, 30M and 430M
SPILLED = 128  # bytes of a thread that are no mistake: a smaller tile would take more than the instructions that write and read them, which are counted
SCHEDULERS = 4  # of a multiprocessor, each of which starts an instruction of a warp in each clock
SIZE = dict(f64=8, u64=8, s64=8, f32=4, u32=4, s32=4, bf16=2, f16=2, s16=2, u16=2, pred=1, u8=1, s8=1, s4=0.5, u4=0.5)
TENSOR = re.compile("(" + "|".join(sorted(SIZE, key=len, reverse=True)) + r")\[([\d,]*)\](?:\{([\d,]*))?")
CROSSING = {"all-reduce": "sums over GPUs", "reduce-scatter": "sums over GPUs, scattered", "all-gather": "gathered from GPUs"}
KINDS = ["linear products", "rotation products", "head products", "attention", "quantization", "elementwise on tokens", "softmax and loss",
         "weights, optimizer, statistics", *CROSSING.values(), "other"]


def product(numbers):
    n = 1
    for x in numbers:
        n *= x
    return n


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def tensors(text):
    """The dimensions and bytes of the tensors of a type."""
    return [(numbers(shape), product(numbers(shape)) * SIZE[kind]) for kind, shape, _ in TENSOR.findall(text)]


class Module:
    """The text of an optimized HLO module: computations, lists of (name, type, operation, rest of the line), and the name of the result of each."""

    def __init__(self, path):
        self.computations, self.results, self.entry, name = {}, {}, None, None
        with open(path) as file:
            lines = file.readlines()
        for line in lines:
            head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
            if head:
                name = head[2]
                self.computations[name] = []
                self.entry = name if head[1] else self.entry
            elif line.startswith("}"):
                name = None
            elif name:
                m = re.match(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$", line)
                if m:
                    self.computations[name].append(m.groups()[1:])
                    if m[1]:
                        self.results[name] = m[2]

    def inside(self, op):
        """The operations of what a line calls, those inside of these, and the line itself."""
        yield op
        for callee in re.findall(r"(?:calls|to_apply|body)=%?([\w.\-]+)", op[3]):
            for inner in self.computations.get(callee, []):
                yield from self.inside(inner)

    def executed(self, computation, times=1):
        """The lines that a computation executes, the types of what they read, and how often: the body of a loop as often as it runs."""
        types = {name: kind for name, kind, *_ in self.computations[computation]}
        for op in self.computations[computation]:
            if op[2] == "while":
                rounds = re.search(r'"known_trip_count":\{"n":"(\d+)"', op[3])
                if not rounds:
                    sys.exit(f"XLA does not say how often the loop {op[0]} runs")
                yield from self.executed(re.search(r"body=%?([\w.\-]+)", op[3])[1], times * int(rounds[1]))
            elif op[2] == "async-start":
                yield from self.executed(re.search(r"calls=%?([\w.\-]+)", op[3])[1], times)
            elif op[2] not in ("parameter", "bitcast", "get-tuple-element", "tuple", "constant", "async-update", "async-done"):
                yield op, types, times

    def replaced(self, op):
        """The dimensions and bytes of a slice, and the name of what it is written into, if that is what a line computes."""
        callee = re.search(r"calls=%?([\w.\-]+)", op[3]) if op[2] == "fusion" else None
        if not callee:
            return None
        root = next(x for x in self.computations[callee[1]] if x[0] == self.results[callee[1]])
        if root[2] != "dynamic-update-slice":
            return None
        types = {name: kind for name, kind, *_ in self.computations[callee[1]]}
        return tensors(types[operands(root)[1]]), operands(root)[0]

    def taken(self, op, i):
        """How many elements of its i-th operand a line reads, if it reads slices or gathers rows of it only; None: all of them."""
        if op[2] in ("slice", "dynamic-slice", "gather") and i == 0:
            return product(tensors(op[1])[0][0])
        if op[2] == "fusion":
            callee = re.search(r"calls=%?([\w.\-]+)", op[3])[1]
            name = next(x[0] for x in self.computations[callee] if x[2] == "parameter" and x[3].startswith(f"{i})"))
            if (replaced := self.replaced(op)) and replaced[1] == name:
                return 0
            return self.taken_inside(callee, name)
        return None

    def taken_inside(self, computation, name):
        """The same for all lines of a computation that read what has this name, or the same elements under another."""
        if name == self.results[computation]:
            return None
        total = 0
        for op in self.computations[computation]:
            for i, operand in enumerate(operands(op)):
                if operand == name:
                    same = op[2] in ("bitcast", "convert", "copy", "reshape", "transpose")
                    count = self.taken_inside(computation, op[0]) if same else self.taken(op, i)
                    if count is None:
                        return None
                    total += count
        return total

    def dots(self, op):
        """The products in a line: operations, dimensions of operands and result, type of the operands, line of the program. XLA rounds floats of 32
        bits to TF32 unless the program asks for more."""
        for callee in re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", op[3]):
            types = {name: kind for name, kind, *_ in self.computations.get(callee, [])}
            for inner in self.computations.get(callee, []):
                if inner[2] == "dot":
                    left = types[operands(inner)[0]]
                    dims = tensors(left)[0][0]
                    k = product(dims[i] for i in numbers(re.search(r"lhs_contracting_dims=\{([\d,]*)\}", inner[3])[1]))
                    out = tensors(inner[1])[0][0]
                    line = re.search(r"source_line=(\d+)", inner[3])
                    kind = "tf32" if left.startswith("f32") and "operand_precision={high" not in inner[3] else left.split("[")[0]
                    yield 2 * k * product(out), {*dims, *out, *tensors(types[operands(inner)[1]])[0][0]}, kind, line and int(line[1])
                yield from self.dots(inner)


def operands(op):
    return [name for name, _ in references(op)]


def references(op):
    """The operands, each with the number of the element where it is one of a tuple: name#1 is the second."""
    return re.findall(r"%([\w.\-]+)(?:#(\d+))?", re.split(r"\), |\)$", op[3])[0])


def read(module, op, types):
    """The dimensions of what a line reads, and the bytes that it reads of it."""
    found, names = [], references(op)
    for name in dict.fromkeys(names):
        parts = tensors(types.get(name[0], ""))
        if name[1]:
            parts = [parts[int(name[1])]]
        counts = [module.taken(op, i) for i, other in enumerate(names) if other == name]
        if len(parts) == 1 and None not in counts:
            dims, size = parts[0]
            parts = [(dims, min(size, sum(counts) * size / max(1, product(dims))))]
        found += parts
    return found


def over_gpus(op):
    """What a line does over how many GPUs, and the bytes that each of them sends: a sum of which each gets its part, or a gathering, moves all
    parts but the own one once, and a sum for all does both."""
    what = re.match("all-reduce|all-gather|reduce-scatter", op[2])
    if not what or op[2].endswith("done"):
        return None
    listed, counted = re.search(r"replica_groups=\{\{([\d,]+)\}", op[3]), re.search(r"replica_groups=\[\d+,(\d+)\]", op[3])
    n = len(numbers(listed[1])) if listed else int(counted[1])
    size = sum(size for _, size in tensors(op[1]))
    if what[0] != "all-reduce" and op[2].endswith("start"):  # the type has what is read and what is written, one of them in n parts
        size *= n / (n + 1)
    elif what[0] == "reduce-scatter":
        size *= n
    return what[0], n, (2 if what[0] == "all-reduce" else 1) * (n - 1) / n * size


def transposes(module, op):
    """Whether a kernel, if it is no product, writes rows as columns. Rows that change their places are whole before and after."""
    if op[2] == "copy":
        types = {name: kind for name, kind, *_ in module.computations[module.entry]}
        source = types.get(operands(op)[0], op[1])
        return TENSOR.findall(source)[0][2] != TENSOR.findall(op[1])[0][2]
    lines = list(module.inside(op))
    moved = [numbers(re.search(r"dimensions=\{([\d,]*)\}", x[3])[1]) for x in lines if x[2] == "transpose"]
    return any(m[-1] != len(m) - 1 for m in moved) and not any(x[2] == "dot" for x in lines)


def rotations(text):
    """The lines of a program on which rotations are: products of numbers in two halves with a matrix that is twice as deep as wide."""
    lines = set()
    for m in re.finditer(r'"stablehlo\.dot_general"\([^:]*?: \(tensor<[^>]*>, tensor<(\d+)x(\d+)xbf16>\) ->', text):
        deep, wide = int(m[1]), int(m[2])
        if deep == 2 * wide and wide & (wide - 1) == 0:
            lines.add(text.count("\n", 0, m.start()) + 1)
    return lines


class Kernel(NamedTuple):
    op: tuple
    times: int
    kind: str
    bytes: float  # of one run, as what follows
    flop: int
    floor: float  # seconds that bytes or operations take
    issue: float  # seconds that instructions take, at four a clock on each multiprocessor; 0 for products
    launch: machinecode.Launch
    code: machinecode.Code

    def seconds(self, issued):
        """The time, where a multiprocessor starts so many instructions a clock."""
        return max(self.floor, self.issue * SCHEDULERS / issued) + LAUNCH

    def as_codes(self, rates):
        """The seconds of a product, if it multiplied four-bit floats with a scale of a byte for each 16 in the place of bfloat16 numbers."""
        written = sum(size for _, size in tensors(self.op[1]))
        if 'name = "cage_blocks_product' in self.op[3]:
            return self.floor
        return max((written + (self.bytes - written) * 4.5 / 16) / rates["bytes"], self.flop / rates["f4"])


class Machine:
    """A GPU as XLA describes it, and machine code for it."""

    def __init__(self, description, dump, module, clock):
        def limit(name):
            return int(re.search(rf"\b{name}: (\d+)", description)[1])
        self.cores, self.registers, self.threads, self.shared = (limit(x) for x in ("core_count", "registers_per_core_limit", "threads_per_core_limit", "shared_memory_per_core"))
        self.clock, self.launches = clock, machinecode.launches(dump)
        loops = {}
        for op in (op for lines in module.computations.values() for op in lines if "__gpu$xla.gpu.triton" in op[3]):
            for launch in self.launches.get(op[0], []):
                loops[launch.kernel] = machinecode.tile_loops(op[3], launch.blocks)
        self.codes = machinecode.assemble(sorted(glob.glob(dump + "/*.ptx")), loops)

    def occupancy(self, code, launch):
        """The warps that a multiprocessor has room for."""
        warps = math.ceil(launch.threads / 32)
        by_registers = self.registers // (math.ceil(max(code.registers, 1) * 32 / 256) * 256) // 4 * 4 // warps
        return warps * min(by_registers, self.threads // launch.threads, self.shared // (code.shared + launch.shared + 1024), 32)

    def issue(self, code, launch):
        """Seconds in which the busiest multiprocessor starts all instructions of its blocks, one for each scheduler and clock."""
        return math.ceil(launch.blocks / self.cores) * math.ceil(launch.threads / 32) * code.instructions / (SCHEDULERS * self.clock)


def kernels(module, tokens, vocab, rotated, rates, machine):
    """Each kernel that a program runs."""
    for op, types, times in module.executed(module.entry):
        replaced = module.replaced(op)
        touched = (replaced[0] if replaced else tensors(op[1])) + read(module, op, types)
        moved, dots = sum(size for _, size in touched), list(module.dots(op))
        flop, rate = sum(d[0] for d in dots), rates[dots[0][2]] if dots else 1
        def per_token(dims):
            return any(d % tokens == 0 for d in dims) or any(product(dims[:i]) % tokens == 0 for i in range(1, max(2, len(dims))))
        if "fmha" in op[3]:
            b, t, h, d = tensors(op[3].split("operand_layout_constraints=")[1])[0][0]
            flop, rate, kind = 2 * b * h * t * t * d * (2.5 if "Backward" in op[3] else 1), rates["bf16"], "attention"  # half of the square is masked
        elif any(line in rotated for *_, line in dots):
            kind = "rotation products"
        elif dots:
            kind = "head products" if any(vocab in dims for _, dims, *_ in dots) else "linear products"
        elif 'name = "cage_blocks_product' in op[3]:
            read_x, _, _, read_y, *_ = (tensors(types[name])[int(part or 0)][0] for name, part in references(op))
            flop, rate, kind = 2 * read_x[0] * read_y[0] * 2 * read_x[1], rates["f4"], "linear products"  # two numbers in a byte
        elif "__gpu$xla.gpu.triton" in op[3]:
            own = {"cage_loss": "softmax and loss", "cage_norm": "elementwise on tokens", "cage_rotation": "weights, optimizer, statistics"}
            kind = next((own[name] for name in own if f'name = "{name}_' in op[3]), "quantization")  # a program of a plugin, as one kernel
        elif any(product(dims) >= tokens * vocab or times * product(dims) >= tokens * vocab and dims[-1] == vocab for dims, _ in touched):
            kind = "softmax and loss"
        elif any(per_token(dims) for dims, _ in touched if dims):
            kind = "elementwise on tokens"
        else:
            kind = "weights, optimizer, statistics" if op[2] in ("fusion", "copy") else "other"
        floor = max(moved / rates["bytes"], flop / rate)
        if over := over_gpus(op):
            kind, moved = CROSSING[over[0]], over[2]
            floor = moved / rates["link"]
        launch = next(iter(machine.launches.get(op[0], [])), None)
        code = machine.codes.get(launch.kernel) if launch and not flop else None
        yield Kernel(op, times, kind, moved, flop, floor, machine.issue(code, launch) if code else 0, launch, code)


def beside_rotations(module, kinds):
    """Kernels that transpose what a rotation reads or writes."""
    entry = {op[0]: op for op in module.computations[module.entry]}
    users = collections.defaultdict(list)
    for op in entry.values():
        for o in operands(op):
            users[o].append(op[0])
    def reach(name, step, seen):
        for other in step(name):
            if other not in seen and other in entry:
                seen.add(other)
                if entry[other][2] in ("bitcast", "get-tuple-element", "tuple"):
                    reach(other, step, seen)
        return seen
    near = set()
    for name, kind in kinds.items():
        if kind == "rotation products":
            near |= reach(name, lambda n: users[n], set()) | reach(name, lambda n: operands(entry[n]) if n in entry else [], set())
    return sorted(n for n in near if n in kinds and transposes(module, entry[n]))


def compile_program(path, dump, gpu):
    """The program, the optimized one, the GPU with machine code, and XLA's seconds and statistics of memory."""
    os.makedirs(dump, exist_ok=True)
    with open(path) as file:
        text = file.read()
    compiler = Compiler(gpu, f" --xla_dump_hlo_as_text --xla_dump_emitter_re=ptx --xla_dump_to={dump}")
    start = time.time()
    memory = compiler.compile(text).get_compiled_memory_stats()
    files = [f for f in glob.glob(dump + "/*after_optimizations.txt") if not re.search("buffer|memory|live", os.path.basename(f))]
    module = Module(max(files, key=os.path.getmtime))
    return text, module, Machine(compiler.target, dump, module, RATES[gpu]["clock"]), dict(compile_seconds=round(time.time() - start, 1), arguments=memory.argument_size_in_bytes, outputs=memory.output_size_in_bytes,
                      aliases=memory.alias_size_in_bytes, temporaries=memory.temp_size_in_bytes)


def describe(path, dump, gpu):
    text, module, machine, result = compile_program(path, dump, gpu)
    head = text[text.index("@main(") : text.index(") ->", text.index("@main("))]
    rows = [int(x) for x in re.search(r"tensor<(\d+x[\dx]+)xi32>", head)[1].split("x")]  # the tokens, each sequence with one more
    embedding = re.search(r"%param_embedding: tensor<(\d+)x", head)
    vocab = int(embedding[1]) if embedding else max(int(n) for n in re.findall(r"tensor<(\d+)x\d+xf32>", head))
    result["states"] = sum(4 * product(int(x) for x in re.findall(r"(\d+)x", m)) for m in re.findall(r"tensor<([^>]*f32)> \{ ?tf.aliasing_output", head))
    groups = {kind: dict(kernels=0, bytes=0, flop=0, seconds=0, half=0) for kind in KINDS}
    kinds, masked, codes = {}, 0, 0
    for k in kernels(module, rows[-2] * (rows[-1] - 1), vocab, rotations(text), RATES[gpu], machine):
        kinds[k.op[0]] = k.kind
        for key, x in dict(kernels=1, bytes=k.bytes, flop=k.flop, seconds=k.seconds(SCHEDULERS), half=k.seconds(SCHEDULERS / 2)).items():
            groups[k.kind][key] += k.times * x
        if "fmhaBackward" in k.op[3] or "fmhaSoftmaxBackward" in k.op[3]:
            masked += k.times * k.flop * 6 / 5  # of all pairs a step takes 4 operations forward and 8 backward, and half of this is masked
        if k.kind == "linear products" and "f4" in RATES[gpu]:
            codes += k.times * (k.as_codes(RATES[gpu]) + LAUNCH)
    result.update({key: sum(g[key] for g in groups.values()) for key in ("kernels", "seconds", "half")})
    replicas = re.search(r"num_replicas = (\d+)", text)
    result.update(gpus=int(replicas[1]) if replicas else 1, step=[result["seconds"] + HOST[0], result["half"] + HOST[1]], groups=groups, gpu=gpu, masked=masked, codes=codes,
                  transposes_beside_rotations=beside_rotations(module, kinds))
    return result


def print_kernels(path, dump, gpu):
    """A table of the distinct kernels that are no products, the longest first; whether one spills registers."""
    text, module, machine, _ = compile_program(path, dump, gpu)
    found = collections.defaultdict(list)
    for k in kernels(module, sys.maxsize, sys.maxsize, rotations(text), RATES[gpu], machine):
        if k.code:
            found[k.launch.kernel].append(k)
    print(f"{'kernel':40} runs blocks threads instructions registers warps shared  bytes, µs  issue, µs: at 4, at 2 a clock")
    for name, runs in sorted(found.items(), key=lambda x: -sum(k.times * k.seconds(SCHEDULERS / 2) for k in x[1])):
        k = runs[0]
        note = " spills" * (k.code.spilled > 0) + " has a loop of unknown length" * (None in k.code.loops)
        print(f"{name:40} {sum(k.times for k in runs):4} {k.launch.blocks:6} {k.launch.threads:7} {k.code.instructions:12} {k.code.registers:9}"
              f" {machine.occupancy(k.code, k.launch):5} {k.code.shared + k.launch.shared:6} {1e6 * k.floor:10.2f} {1e6 * k.issue:10.2f} {2e6 * k.issue:6.2f}{note}")
    spilling = sorted(name for name, code in machine.codes.items() if code.spilled > SPILLED)
    if spilling:
        sys.exit(f"these kernels need more registers than they have: {', '.join(spilling)}")


def print_own(path, dump, gpu):
    text, module, machine, _ = compile_program(path, dump, gpu)
    for k in kernels(module, sys.maxsize, sys.maxsize, rotations(text), RATES[gpu], machine):
        if k.code and (name := re.search(r', name = "(\w+)"', k.op[3])):
            elements = product(tensors(k.op[1])[0][0])
            print(json.dumps(dict(name=name[1], result=re.search(r"\w+\[[\d,]*\]", k.op[1])[0], registers=k.code.registers, spilled=k.code.spilled,
                                  instructions=round(k.code.instructions * k.launch.blocks * k.launch.threads / elements, 1),
                                  warps=machine.occupancy(k.code, k.launch), bytes=round(1e6 * k.floor, 1), issue=round(2e6 * k.issue, 1))))


def table(named):
    """A table in Markdown. A time is a range where a multiprocessor starts four instructions a clock, as it can, or half as many."""
    results = {}
    for name, paths in (x.split("=", 1) for x in named):
        compiled, bench = paths.split(":")
        with open(compiled) as file:
            results[name] = json.load(file)
        with open(bench) as file:
            results[name]["model_flops"] = json.load(file)["flops"] - results[name]["masked"] * results[name]["gpus"]
    line = lambda first, cells: print("| " + " | ".join([first, *cells]) + " |")
    line("predicted", results)
    line("---", ["---"] * len(results))
    each = lambda f: [f(r) for r in results.values()]
    between = lambda form, low, high: form.format(low) if form.format(low) == form.format(high) else f"{form.format(low)} to {form.format(high)}"
    for kind in KINDS:
        if any(each(lambda r: r["groups"][kind]["kernels"])):
            line(f"{kind}, ms (kernels; GB; TFLOP)", each(lambda r: "{} ({}; {:.1f}; {:.2f})".format(
                between("{:.1f}", *(1e3 * r["groups"][kind][x] for x in ("seconds", "half"))), r["groups"][kind]["kernels"], r["groups"][kind]["bytes"] / 1e9, r["groups"][kind]["flop"] / 1e12)))
    line("sum, ms (kernels)", each(lambda r: f"{between('{:.1f}', 1e3 * r['seconds'], 1e3 * r['half'])} ({r['kernels']})"))
    line("step with the host's part, ms", each(lambda r: between("{:.1f}", *(1e3 * x for x in r["step"]))))
    line("model FLOP utilisation", each(lambda r: between("{:.0%}", *(r["model_flops"] / r["gpus"] / x / RATES[r["gpu"]]["peak"] for x in reversed(r["step"])))))
    if any(each(lambda r: r["codes"])):
        line("linear products, if all multiplied four-bit floats, ms", each(lambda r: f"{1e3 * r['codes']:.1f}"))
        line("step, if they did and to quantize took nothing more, ms", each(lambda r: between("{:.1f}", *(1e3 * (x - r["groups"]["linear products"][y] + r["codes"]) for x, y in zip(r["step"], ("seconds", "half"))))))
    line("parameters and states, GB", each(lambda r: f"{r['states'] / 1e9:.2f}"))
    line("of them updated in place, GB", each(lambda r: f"{r['aliases'] / 1e9:.2f}"))
    line("temporaries, GB", each(lambda r: f"{r['temporaries'] / 1e9:.1f}"))
    line("transposes beside rotations", each(lambda r: str(len(r["transposes_beside_rotations"]))))


def main(command, *arguments):
    if command in ("compile", "kernels", "own") and arguments[2:] and arguments[2] not in RATES:
        sys.exit(f"the rates of {arguments[2]!r} are not known, only those of {', '.join(RATES)}")
    if command == "compile" and len(arguments) in (2, 3):
        print(json.dumps(describe(*arguments[:2], arguments[2] if arguments[2:] else GPU)))
    elif command == "kernels" and len(arguments) in (2, 3):
        print_kernels(*arguments[:2], arguments[2] if arguments[2:] else GPU)
    elif command == "own" and len(arguments) in (2, 3):
        print_own(*arguments[:2], arguments[2] if arguments[2:] else GPU)
    elif command == "table" and arguments:
        table(arguments)
    else:
        sys.exit(__doc__)


main(*sys.argv[1:] or [""])
