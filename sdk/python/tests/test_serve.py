"""A plugin as a process: handshake, services, errors and end, as docs/reference/plugin-protocol.md has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from cage_sdk import wire
from cage_sdk.serve import COOKIE

PLUGIN = Path(__file__).parent / "plugin_of_tests.py"
ROOT = Path(__file__).resolve().parents[1]


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@pytest.fixture
def level():
    return "debug"


@pytest.fixture
def plugin(tmp_path, level):
    env = environment(CAGE_PLUGIN=COOKIE, PLUGIN_UNIX_SOCKET_DIR=str(tmp_path), CAGE_PLUGIN_LIFELINE="stdin", CAGE_PLUGIN_LOG=level)
    process = subprocess.Popen([sys.executable, PLUGIN], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    core, protocol, network, address, kind = process.stdout.readline().decode().strip().split("|")
    assert (core, protocol, network, kind) == ("1", "2", "unix", "grpc") and address.startswith(str(tmp_path))
    with grpc.insecure_channel("unix:" + address) as channel:
        yield process, lambda method, request, response: channel.unary_unary(
            method, lambda m: m if isinstance(m, bytes) else m.SerializeToString(), wire.message(response).FromString if response else bytes
        )(request)
    process.stdin.close()
    assert process.wait(5) == 0


def quantize(call, role=1, **values):
    site = {"role": role, "name": "w", "shape": [2, 4], "values": {"trouble": {"string": values.get("trouble", "")}}}
    return call("/cage.plugin.v1.Quantizer/Quantize", wire.message("QuantizeRequest")(site=site), "QuantizeResponse")


def test_answers(plugin):
    _, call = plugin
    described = call("/cage.plugin.v1.Quantizer/Describe", wire.message("DescribeRequest")(api_versions=[1]), "DescribeResponse")
    assert described.api_version == 1 and described.description.name == "of-tests"
    assert quantize(call).program.program.name == "of-tests/w"
    tensor = {"role": 1, "name": "w", "shape": [3]}
    request = wire.message("ProgramRequest")(tensor=tensor)
    assert call("/cage.plugin.v1.Optimizer/Program", request, "ProgramResponse").WhichOneof("answer") == "declined"
    assert call("/grpc.health.v1.Health/Check", b"", None) == b"\x08\x01"


@pytest.mark.parametrize(
    "trouble, role, code, reason, text",
    [
        ("refuse", 1, "INVALID_ARGUMENT", b"REFUSED", "use another"),
        ("divide", 1, "INTERNAL", b"MISTAKE", "ZeroDivisionError: division by zero (plugin_of_tests.py:"),
        ("surrogate", 1, "INTERNAL", b"MISTAKE", "ValueError: half ? of a pair (plugin_of_tests.py:"),
        ("exit", 1, "INTERNAL", b"MISTAKE", "SystemExit: no license (plugin_of_tests.py:"),
        ("interrupt", 1, "INTERNAL", b"MISTAKE", "KeyboardInterrupt (plugin_of_tests.py:"),
        ("shape", 1, "INTERNAL", b"MISTAKE", "do not go together: ranks must be equal and axes equal or 1 (reshape or broadcast one operand) (plugin_of_tests.py:"),
        ("", 99, "INVALID_ARGUMENT", b"UNREADABLE_REQUEST", "role 99 is unknown"),
    ],
)  # fmt: skip
def test_errors(plugin, trouble, role, code, reason, text):
    _, call = plugin
    with pytest.raises(grpc.RpcError) as e:
        quantize(call, role, trouble=trouble)
    assert e.value.code().name == code and text in e.value.details()
    details = dict(e.value.trailing_metadata())["grpc-status-details-bin"]
    assert reason in details and b"cage.plugin.v1" in details


@pytest.mark.parametrize("level", ["debug", "trace", "off", "WARN"])
def test_log(plugin, level):
    process, call = plugin
    quantize(call, trouble="print")
    process.stdin.close()
    log = process.stderr.read().decode()
    assert "printed\n" in log and '{"@level": "warn", "@message": "logged"}' in log
    assert "three" in log and '"@message": "could not\\nTraceback' in log and "ZeroDivisionError" in log


def test_missing_service(plugin):
    _, call = plugin
    with pytest.raises(grpc.RpcError) as e:
        call("/cage.plugin.v1.Quantizer/Nothing", b"", None)
    assert e.value.code().name == "UNIMPLEMENTED"


def test_by_hand():
    out = subprocess.run([sys.executable, PLUGIN], env=environment(), capture_output=True, text=True)
    assert out.returncode == 1 and "is a plugin of cage: the quantizer of-tests" in out.stderr
