"""The machine code of kernels: NVIDIA's assembler (ptxas) makes it from what XLA wrote, and NVIDIA's disassembler (nvdisasm) makes it readable.

Counted are the instructions that one warp executes on its longest way through a kernel. What a subroutine does (divisions and roots of numbers out
of the usual range) and what only diverging threads do is left out. A loop counts as often as it runs. That is read from the code where it counts
from a constant to a constant; else from the kernel's text, where it goes over tiles, from an instance's number in steps of their number; else it
counts once, and the kernel says that it has such a loop.
"""
import glob
import math
import os
import re
import shutil
import struct
import subprocess
import sys
from typing import NamedTuple

INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:\{ *)?(?:@(!?U?P\w+)\s+)?([\w.]+)\s*(.*?)\s*[;}]")
LABEL = re.compile(r"^\.?(L_\w+|text\.\S+):")
COMPARE = dict(NE=lambda a, b: a != b, EQ=lambda a, b: a == b, LT=lambda a, b: a < b, LE=lambda a, b: a <= b, GT=lambda a, b: a > b, GE=lambda a, b: a >= b)


class Code(NamedTuple):
    instructions: float  # of a warp
    registers: int  # of a thread
    shared: int  # bytes of a block of threads, without those that a launch adds
    spilled: int  # bytes of a thread
    loops: list  # how often each runs; None where that is not known


class Launch(NamedTuple):
    kernel: str
    blocks: int
    threads: int  # of a block
    shared: int  # bytes that it adds


class Instruction(NamedTuple):
    guard: str
    name: str
    operands: list

    def target(self):
        label = re.search(r"`\(\.?(\S+?)\)", ",".join(self.operands))
        return label and label[1]


def tool(name):
    """A program of CUDA's toolkit, installed by pip or found in PATH."""
    found = [*glob.glob(f"{sys.prefix}/lib/python3*/site-packages/nvidia/cu*/bin/{name}"), shutil.which(name)]
    if not found[0]:
        sys.exit(f"there is no {name}: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm")
    return found[0]


def assemble(files, steps):
    """The code of each kernel in files of PTX, by its name. steps says, by the same names, how often loops over tiles run (see tile_loops)."""
    if not files:
        sys.exit("XLA left no PTX: its version does not know --xla_dump_emitter_re=ptx")
    with open(files[0]) as file:
        architecture = re.search(r"^\.target (\w+)", file.read(), re.M)[1]
    binary = os.path.join(os.path.dirname(files[0]), "kernels.cubin")
    said = subprocess.run([tool("ptxas"), "-v", f"-arch={architecture}", *files, "-o", binary], stderr=subprocess.PIPE, text=True, check=True).stderr
    listing = subprocess.run([tool("nvdisasm"), "-ndf", "-c", binary], stdout=subprocess.PIPE, text=True, check=True).stdout
    codes = {}
    for name, body in re.findall(r"^\.text\.(\S+):\n(.*?)^//-----", listing + "//-----", re.M | re.S):
        properties = said.split(f"'{name}'")[1]
        spilled = sum(int(n) for n in re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", properties).groups())
        instructions, loops = count(parse(body), steps.get(name, []))
        used = re.search(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?", properties)
        codes[name] = Code(instructions, int(used[1]), int(used[2] or 0), spilled, loops)
    return codes


def parse(body):
    """Blocks of instructions that are executed one after the other, each beginning where a branch can go to or where one ended; and those that labels name."""
    lines = [(LABEL.match(line), INSTRUCTION.match(line)) for line in body.splitlines()]
    used = {target for _, i in lines if i and (target := Instruction(i[1], i[2], [i[3]]).target())}
    blocks, labels = [[]], {}
    for label, instruction in lines:
        if label and label[1] in used:
            if blocks[-1]:
                blocks.append([])
            labels[label[1]] = len(blocks) - 1
        if instruction:
            blocks[-1].append(Instruction(instruction[1], instruction[2], [x.strip() for x in instruction[3].split(",")]))
            if re.match(r"(BRA|BRX|EXIT|RET|CALL|BSYNC)", instruction[2]):
                blocks.append([])
    return blocks, labels


def follow(blocks, labels):
    """The blocks that can come after each, without those that call a subroutine if there is a way around it."""
    joins, after = {}, []
    for n, block in enumerate(blocks):
        joins.update({x.operands[0]: x.target() for x in block if x.name.startswith("BSSY")})
        last = block[-1] if block else Instruction(None, "", [])
        nexts, always = [n + 1], last.guard is None and not any(x.startswith(("P", "!P", "UP", "!UP")) for x in last.operands)
        if last.name.startswith("BRA") and "DIV" not in last.name and "CONV" not in last.name:
            nexts = [labels.get(last.target(), n + 1)] + ([] if always else nexts)
        elif last.name.startswith("BSYNC"):
            nexts = [labels.get(joins.get(last.operands[0]), n + 1)] + ([] if always else nexts)
        elif last.name.startswith(("EXIT", "RET")):
            nexts = [] if always else nexts
        after.append([m for m in nexts if m < len(blocks)])
    for n, nexts in enumerate(after):
        around = [m for m in nexts if not (blocks[m] and blocks[m][-1].name.startswith("CALL"))]
        after[n] = around or nexts
    return after


def count(parsed, steps):
    """The instructions on the longest way, and how often each loop runs."""
    blocks, labels = parsed
    after, order, back, state = follow(blocks, labels), [], [], {}
    stack = [(0, iter(after[0]))]
    state[0] = "open"
    while stack:
        n, nexts = stack[-1]
        m = next(nexts, None)
        if m is None:
            state[n] = "done"
            order.append(n)
            stack.pop()
        elif state.get(m) == "open":
            back.append((n, m))
        elif m not in state:
            state[m] = "open"
            stack.append((m, iter(after[m])))
    loops = {}
    for n, head in back:
        inside, todo = loops.setdefault(head, {head}), [n]
        while todo:
            if (m := todo.pop()) not in inside:
                inside.add(m)
                todo += [k for k, nexts in enumerate(after) if m in nexts and k in state]
    runs = {head: trips(blocks, after, inside) for head, inside in sorted(loops.items())}
    unknown = [head for head, n in runs.items() if n is None]
    if len(unknown) == len(steps):
        runs.update(zip(unknown, steps))
    ways = {}
    for n in order:  # what comes after a block is done before it
        times = math.prod(runs[head] or 1 for head, inside in loops.items() if n in inside)
        ways[n] = times * len(blocks[n]) + max((ways[m] for m in after[n] if (n, m) not in back), default=0)
    return ways[0], list(runs.values())


def trips(blocks, after, inside):
    """How often a loop runs whose counter is a register that goes from a constant in equal steps to a constant, or None."""
    exits = [(n, m) for n in inside for m in after[n] if m not in inside]
    if len(exits) != 1 or blocks[exits[0][0]][-1].name != "BRA":
        return None
    (n, _), body = exits[0], [x for m in sorted(inside) for x in blocks[m]]
    last = blocks[n][-1]
    condition = last.guard or next((x for x in last.operands if re.match(r"!?U?P\d", x)), "")
    stays = condition.startswith("!") == (after[n][0] not in inside)
    def setter(predicate, end):
        return next(((i, x) for i, x in reversed(list(enumerate(body[:end]))) if predicate in x.operands[:2] and re.match(r"U?(ISETP|PLOP3)", x.name)), (None, None))
    at, test = setter(condition.lstrip("!"), len(body))
    if test and test.name.startswith(("PLOP3", "UPLOP3")):  # copies the result of a uniform comparison
        at, test = setter(next((x for x in test.operands if re.match(r"UP\d", x)), ""), len(body))
        if test and test.operands[1:5] == ["UPT"] * 4:
            return 2  # a flag that the first round clears
    if test and ".EX" in test.name:  # the upper half of 64 bits
        at, test = setter(test.operands[-1], at)
    if not test or "ISETP" not in test.name:
        return None
    compare = COMPARE.get(next((p for p in test.name.split(".")[1:] if p in COMPARE), ""))
    sources = [x.split(".")[0] for x in test.operands[2:4]]
    before = [x for block in blocks[: min(inside)] for x in block]
    for i, register in enumerate(sources):
        adds = [(j, x) for j, x in enumerate(body) if re.match(r"U?IADD3$|U?VIADD$", x.name) and x.operands[0] == register and register in [o.split(".")[0] for o in x.operands[1:]]]
        if len(adds) == 1 and compare and not adds[0][1].guard:
            (j, add), start, end = adds[0], constant(register, before), constant(sources[1 - i], before)
            step = next((v for o in add.operands[1:] if o != "RZ" and (v := constant(o, [])) is not None), None)
            if None in (start, end, step) or step == 0:
                return None
            value, n = start + (step if j < at else 0), 1
            while compare(*((value, end) if i == 0 else (end, value))) == stays and n < 1 << 20:
                value, n = value + step, n + 1
            return n
    return None


def constant(operand, before):
    """The value of a number, or of a register that was last written one, or None."""
    if re.fullmatch(r"-?0x[0-9a-f]+", operand):
        value = int(operand, 16)
        return value - (1 << 32) if value >= 1 << 31 else value
    if operand in ("RZ", "URZ", "SRZ"):
        return 0
    for x in reversed(before):
        pair = x.name == "CS2R" and re.sub(r"\d+", lambda m: str(int(m[0]) + 1), x.operands[0]) == operand
        if x.operands[0] == operand or pair:
            if x.name in ("MOV", "UMOV", "CS2R", "CS2R.32") and len(x.operands) == 2 or x.name == "IMAD.MOV.U32":
                return constant(x.operands[-1], [])
            if x.name.startswith("HFMA2") and x.operands[1:3] == ["-RZ", "RZ"]:  # two halves of a number, written as floats
                return struct.unpack("<i", struct.pack("<ee", float(x.operands[4]), float(x.operands[3])))[0]
            return None
    return None


def launches(dump):
    """What each line of an optimized program launches, by its name, from XLA's dump of one program."""
    def text(ending):
        with open(glob.glob(f"{dump}/*.{ending}")[0]) as file:
            return file.read()
    names = {m[2]: m[1] for m in re.finditer(r'profile_annotation: "(.*?)"\s+thunk_id: (\d+)', text("thunk_metadata.txt"))}
    found = {}
    for m in re.finditer(r"^ *0*(\d+): .*\] (\S+) grid: \[(.*?)\] threads: \[(.*?)\] +shared_memory: (\d+)", text("thunk_sequence.txt"), re.M):
        blocks, threads = (math.prod(int(n) for n in m[i].split(",")) for i in (3, 4))
        found.setdefault(names.get(m[1]), []).append(Launch(m[2], blocks, threads, int(m[5])))
    return found


def tile_loops(text, grid):
    """How often each loop of a kernel in Triton's representation runs that begins at the number of an instance, for the first of grid instances."""
    values, found = {}, []
    for line in re.split(r"\n|\\0A|\\n", text):
        m = re.match(r"\s*(%\w+) = (?:arith\.(constant|addi|subi|muli|divsi|minsi)|tt\.get_(program_id|num_programs)) (.*?)(?: : \S+)?$", line)
        if m:
            numbers = [values.get(x, int(x) if re.fullmatch(r"-?\d+", x) else None) for x in m[4].split(", ")]
            if m[3]:
                values[m[1]] = 0 if m[3] == "program_id" else grid
            elif None not in numbers:
                values[m[1]] = dict(constant=lambda a: a, addi=int.__add__, subi=int.__sub__, muli=int.__mul__, divsi=int.__floordiv__, minsi=min)[m[2]](*numbers)
        elif m := re.search(r"scf\.for %\w+ = (%\w+) to (%\w+) step (%\w+)", line):
            start, end, step = (values.get(x) for x in m.groups())
            if None in (start, end, step):
                return []
            found.append(max(0, math.ceil((end - start) / step)))
    return found
