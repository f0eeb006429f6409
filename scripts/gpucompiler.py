"""Compiles StableHLO programs for an NVIDIA GPU that is not there. As a program it does so for the recorder (host/testing/pjrtrecord), which
asks it over a socket, its standard input, and has CAGE_RECORD_COMPILE_ONLY set: what is compiled is never executed.

Needs jaxlib and JAX's plugin for CUDA, but neither a GPU nor a driver. Nothing is tuned by trying it out, as XLA does where there is a GPU. Plugins
before 0.12 have no descriptions of GPUs: CAGE_PREDICT_TARGETS names one that has.
"""
import glob
import os
import re
import socket
import struct
import sys

GPU = "NVIDIA H200 141GB HBM3e"
COMPILE = 1  # the request, as forward.c numbers them
INTERNAL = 13  # the code of an error


# GPUs that no plugin describes: like another one but for some fields, from what NVIDIA states and, of its computing capability, CUDA's guide.
LIKE = {"NVIDIA L40S": ("NVIDIA RTX A6000", dict(core_count="142", minor="9", clock_rate_ghz="2.52", memory_bandwidth="864000000000",
                                                 l2_cache_size="100663296", dnn_version='"9.10.0"', device_description_str='"NVIDIA L40S"'))}


def known(text, plugin):
    """The lines of a message whose fields a plugin's file describes: in such a description a name follows a 10 and its length."""
    lines, depth, skip = [], 0, None
    for line in text.splitlines(True):
        name = re.match(r"\s*(\w+)", line)
        if skip is None and name and b"\n" + bytes([len(name[1])]) + name[1].encode() not in plugin:
            skip = depth
        if skip is None:
            lines.append(line)
        depth += line.count("{") - line.count("}")
        if depth == skip:
            skip = None
    return "".join(lines)


def target(plugin, gpu):
    """The description of a GPU that plugins embed as text, without what an older plugin has no field for."""
    source = os.environ.get("CAGE_PREDICT_TARGETS") or plugin
    described, fields = LIKE.get(gpu, (gpu, {}))
    with open(source, "rb") as file:
        data = file.read()
    for m in re.finditer(rb"gpu_device_info \{", data):
        text = data[m.start() : data.index(b"\0", m.start())].decode("utf-8", "replace")
        if f'device_description_str: "{described}"' in text:
            for field, value in fields.items():
                text = re.sub(rf"\b{field}: .*", f"{field}: {value}", text)
            with open(plugin, "rb") as file:
                return known(text, file.read())
    known_gpus = sorted({m[1].decode() for m in re.finditer(rb'device_description_str: "(NVIDIA [^"]*)"', data)} | set(LIKE))
    sys.exit(f"{source} has no description of a GPU {gpu!r}, only of {', '.join(known_gpus)}")


class Compiler:
    """XLA, with flags, for a GPU."""

    def __init__(self, gpu, flags):
        import jaxlib
        packages = os.path.dirname(os.path.dirname(jaxlib.__file__))
        plugin = glob.glob(packages + "/jax_plugins/xla_cuda*/xla_cuda_plugin.so")[0]
        toolkit = glob.glob(packages + "/nvidia/cu*/nvvm")
        os.environ["XLA_FLAGS"] = flags + "".join(f" --xla_gpu_cuda_data_dir={os.path.dirname(t)}" for t in toolkit)
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
        from jaxlib import xla_client as xc
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import stablehlo
        self.target, self.plugin = target(plugin, gpu), xc.load_pjrt_plugin_dynamically("cuda", plugin)
        xc.initialize_pjrt_plugin("cuda")
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        self.context = ir.Context()
        self.context.append_dialect_registry(registry)
        stablehlo.register_dialect(self.context)
        self.context.load_all_available_dialects()

    def compile(self, text):
        import numpy as np
        from jaxlib import xla_client as xc
        from jaxlib.mlir import ir
        replicas = re.search(r"num_replicas = (\d+)", text)
        n = int(replicas[1]) if replicas else 1
        topology = xc.make_c_api_device_topology(self.plugin, "gpu", target_config=self.target, topology=f"1x1x{n}")
        devices = topology._make_compile_only_devices()[:n]
        options = xc.CompileOptions()
        build = options.executable_build_options
        options.num_replicas = build.num_replicas = n
        options.num_partitions = build.num_partitions = 1
        build.use_spmd_partitioning = n > 1
        options.device_assignment = xc.DeviceAssignment.create(np.arange(n, dtype=np.int32).reshape(n, 1))
        with self.context:
            module = ir.Module.parse(text)
        return devices[0].client.compile(module, xc.DeviceList(tuple(devices)), options)


def serve(channel, compiler):
    """Answers requests until the recorder ends: each is a kind, a number of bytes, and these; an answer the code of an error, or 0, and its message or
    what XLA says of memory."""
    with channel.makefile("rb") as requests:
        while head := requests.read(16):
            kind, size = struct.unpack("=QQ", head)
            data = requests.read(size)
            if kind != COMPILE:
                continue
            _, options = struct.unpack_from("=QQ", data)  # the replicas, which are all that they say, stand in the program, too
            code, message = 0, b""
            try:
                memory = compiler.compile(data[16 + options :].decode()).get_compiled_memory_stats()
                message = struct.pack("=9q", memory.generated_code_size_in_bytes, memory.argument_size_in_bytes, memory.output_size_in_bytes,
                                      memory.alias_size_in_bytes, memory.temp_size_in_bytes,
                                      memory.host_argument_size_in_bytes, memory.host_output_size_in_bytes, memory.host_alias_size_in_bytes, memory.host_temp_size_in_bytes)
            except Exception as e:
                code, message = INTERNAL, str(e).encode()
            channel.sendall(struct.pack("=QQ", code, len(message)) + message)


if __name__ == "__main__":
    serve(socket.socket(fileno=0), Compiler(GPU, os.environ.get("XLA_FLAGS", "")))
