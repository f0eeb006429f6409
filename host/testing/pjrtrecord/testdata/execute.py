"""Compiles and executes StableHLO programs on XLA's CPU client, for the recorder: forward.c has the requests.

Standard input is a socket. Every request is answered in turn; an answer to COMPILE has what XLA says of memory, one to EXECUTE has data only
where one device failed. With CAGE_RECORD_FAULTS, the path of a JSON file, uploads, compilations and executions fail as that file says: a list of
rules, each with "at" ("upload", "compile" or "execute"), "contains" (text of the program, which uploads have none of), "after" (how many such events go well before),
"code" and "message", and "end": "kill" ends this process, "hang" does so when the file changes, "replica" fails the last device only, and "" fails the request.

With the arguments ADDRESS RANK SIZE it computes with the other processes of this kind, of which the first listens there: each has CAGE_RECORD_DEVICES devices,
and sums across them go over TCP. With CAGE_RECORD_EXACTLY one process has no more devices than these, too.
"""
import json
import os
import re
import signal
import socket
import struct
import sys
import time

ADDRESS, RANK, SIZE = (sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 1 else ("", 0, 1)
# XLA has as many threads as devices, unless the machine has more processors, and divides sums among them: bits depend on it.
EXACTLY = ADDRESS or os.environ.get("CAGE_RECORD_EXACTLY")
DEVICES = int(os.environ["CAGE_RECORD_DEVICES"]) if EXACTLY else 8
# Programs run once or a few times: what LLVM spends on making them fast, four fifths of the time to compile, would be lost.
COMPILE_FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
# NaN of minima and maxima, as on a GPU: that library loses it in rows of more than 512. Numbers below 2⁻¹²⁶ XLA makes 0 here.
EXACT = "--xla_cpu_enable_fast_min_max=false --xla_cpu_experimental_ynn_fusion_type="
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{COMPILE_FAST} {EXACT} --xla_force_host_platform_device_count={DEVICES}"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import jax
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import xla_client as xc

jax.config.update("jax_enable_x64", True)
if ADDRESS:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(ADDRESS, SIZE, RANK, cluster_detection_method="deactivate", coordinator_bind_address=ADDRESS)

COMPILE, UPLOAD, EXECUTE, DOWNLOAD, FREE, FORGET = range(1, 7)
TYPES = {1: np.bool_, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.uint8, 7: np.uint16, 8: np.uint32, 9: np.uint64,
         10: np.float16, 11: np.float32, 12: np.float64, 13: ml_dtypes.bfloat16}  # PJRT_Buffer_Type
CODES = dict(CANCELLED=1, UNKNOWN=2, INVALID_ARGUMENT=3, DEADLINE_EXCEEDED=4, NOT_FOUND=5, RESOURCE_EXHAUSTED=8, FAILED_PRECONDITION=9,
             ABORTED=10, OUT_OF_RANGE=11, UNIMPLEMENTED=12, INTERNAL=13, UNAVAILABLE=14)


class Failure(Exception):
    def __init__(self, code, message, replica=None):
        super().__init__(message)
        self.code, self.replica = code, replica


class Faults:
    """The rules, with how often each of them has applied."""

    def __init__(self, path):
        self.path, self.text, self.rules = path, None, []

    def check(self, at, program, devices):
        if not self.path or not os.path.exists(self.path):
            return
        with open(self.path) as file:
            text = file.read()
        if text != self.text:
            self.text, self.rules = text, [dict(rule, seen=0) for rule in json.loads(text)]
        for rule in self.rules:
            if rule["at"] != at or rule["contains"] not in program:
                continue
            rule["seen"] += 1
            if rule["seen"] <= rule["after"]:
                continue
            if rule["end"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if rule["end"] == "hang":
                while open(self.path).read() == self.text:
                    time.sleep(0.1)
                sys.exit(1)
            raise Failure(rule["code"], rule["message"], devices - 1 if rule["end"] == "replica" else None)


class Program:
    def __init__(self, text, options):
        options = xc.CompileOptions.ParseFromString(options)
        build, self.text = options.executable_build_options, text
        self.replicas = n = build.num_replicas
        options.compile_portable_executable = False
        everywhere = jax.devices()[:n] if n > 1 else jax.local_devices()[:1]
        options.device_assignment = xc.DeviceAssignment.create(np.array([d.id for d in everywhere], dtype=np.int32).reshape(n, 1))
        self.devices = [d for d in everywhere if d.process_index == RANK]
        self.executable = self.devices[0].client.compile_and_load(text, xc.DeviceList(tuple(everywhere)), options)
        head = text[text.index("@main(") : text.index(") ->", text.index("@main("))]
        self.aliased = ["tf.aliasing_output" in argument for argument in head.split("%")[1:]]
        self.everywhere = NamedSharding(Mesh(np.array(everywhere), ("replica",)), PartitionSpec())

    def run(self, arguments, keep):
        """Runs on lists of arguments, one for each device, and returns such lists. XLA overwrites what an output may replace: what the
        caller keeps is copied before."""
        rows = []
        for i, parts in enumerate(zip(*arguments)):
            if self.aliased[i]:
                parts = [jax.device_put(np.array(x), x.sharding) if d_keep else x for x, d_keep in zip(parts, keep[i])]
            # To XLA these are copies of one array, whatever is in them.
            rows.append(parts[0] if self.replicas == 1 else jax.make_array_from_single_device_arrays(parts[0].shape, self.everywhere.with_memory_kind(parts[0].sharding.memory_kind), list(parts)))
        results = self.executable.execute_sharded(rows).disassemble_into_single_device_arrays()
        jax.block_until_ready(results)
        return [list(of_device) for of_device in zip(*results)]


class Server:
    def __init__(self, faults):
        self.faults, self.programs, self.buffers = faults, {}, {}

    def numbers(self, data, count, at=0):
        return struct.unpack_from(f"={count}q", data, 8 * at)

    def compile(self, data):
        serial, length = self.numbers(data, 2)
        text = data[16 + length :].decode()
        self.faults.check("compile", text, 0)
        program = self.programs[serial] = Program(text, data[16 : 16 + length])
        memory = program.executable.get_compiled_memory_stats()
        return struct.pack("=9q", memory.generated_code_size_in_bytes, memory.argument_size_in_bytes, memory.output_size_in_bytes,
                           memory.alias_size_in_bytes, memory.temp_size_in_bytes,
                           memory.host_argument_size_in_bytes, memory.host_output_size_in_bytes, memory.host_alias_size_in_bytes, memory.host_temp_size_in_bytes)

    def upload(self, data):
        serial, device, kind, rank = self.numbers(data, 4)
        shape = self.numbers(data, rank, 4)
        if kind not in TYPES:
            raise Failure(CODES["UNIMPLEMENTED"], f"buffers of PJRT's type {kind}")
        self.faults.check("upload", "", 0)
        array = np.frombuffer(data, TYPES[kind], offset=8 * (4 + rank)).reshape(shape)
        self.buffers[serial] = jax.device_put(array, jax.local_devices()[device])

    def execute(self, data):
        serial, devices, inputs, outputs, kept = self.numbers(data, 5)
        keep = set(self.numbers(data, kept, 5))
        ids = self.numbers(data, devices * (inputs + outputs), 5 + kept)
        program = self.programs[serial]
        self.faults.check("execute", program.text, devices)
        arguments = [[self.buffers[s] for s in ids[d * inputs : (d + 1) * inputs]] for d in range(devices)]
        results = program.run(arguments, [[d * inputs + i in keep for d in range(devices)] for i in range(inputs)])
        for s, x in zip(ids[devices * inputs :], (x for of_device in results for x in of_device)):
            self.buffers[s] = x

    def download(self, data):
        return np.ascontiguousarray(self.buffers[self.numbers(data, 1)[0]]).tobytes()

    def free(self, data):
        self.buffers.pop(self.numbers(data, 1)[0], None)

    def forget(self, data):
        self.programs.pop(self.numbers(data, 1)[0], None)

    def answer(self, kind, data):
        """The code of an error, 0 for none, and the data or the message."""
        try:
            return 0, {COMPILE: self.compile, UPLOAD: self.upload, EXECUTE: self.execute, DOWNLOAD: self.download, FREE: self.free, FORGET: self.forget}[kind](data) or b""
        except Failure as e:
            return (e.code, str(e).encode()) if e.replica is None else (0, struct.pack("=q", e.replica) + str(e).encode())
        except KeyError as e:
            return CODES["INVALID_ARGUMENT"], f"there is no buffer or program {e}".encode()
        except Exception as e:
            name = re.match(r"([A-Z_]+): ", str(e))
            return CODES.get(name and name[1], CODES["INTERNAL"]), str(e).encode() or repr(e).encode()


def read(channel, size):
    data = bytearray(size)
    at = memoryview(data)
    while at:
        n = channel.recv_into(at)
        if n == 0:
            os._exit(0)  # without waiting for the processes of others
        at = at[n:]
    return bytes(data)


def main():
    channel = socket.socket(fileno=0)
    server = Server(Faults(os.environ.get("CAGE_RECORD_FAULTS")))
    while True:
        kind, size = struct.unpack("=QQ", read(channel, 16))
        code, data = server.answer(kind, read(channel, size))
        if kind not in (FREE, FORGET):
            channel.sendall(struct.pack("=QQ", code, len(data)) + data)


main()
