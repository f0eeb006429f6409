"""Plugins as processes: how they are found, started and asked for programs. See docs/reference/plugin-protocol.md."""

from __future__ import annotations

import atexit
import difflib
import json
import logging
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import grpc
from cage_sdk import wire
from cage_sdk.program import Program
from cage_sdk.serve import API, COOKIE, MAX_MESSAGE, PROTOCOL

Kind = Literal["quantizer", "optimizer"]
Setting = int | float | bool | str
Shape = tuple[int, ...]

log = logging.getLogger("cage_torch")


class PluginError(RuntimeError):
    """A plugin that was not found, did not start, refused a tensor or its settings, or made a mistake."""


@dataclass(frozen=True)
class State:
    """A float tensor that belongs to a quantized tensor or to a parameter: trained, or kept from step to step."""

    name: str
    shape: Shape
    constrain: Program | None
    storage: str
    """How an optimizer keeps it: float32, int8, uint8 or bfloat16."""
    maximum: bool
    """Whether the state after a step is the maximum over its forward passes, not the mean."""


@dataclass(frozen=True)
class QuantizerPrograms:
    """What a quantizer answers for one tensor."""

    program: Program
    evaluate: Program
    init: Program | None
    trained: list[State]
    init_state: Program | None
    next: Program | None
    state: list[State]
    backward: Program | None


@dataclass(frozen=True)
class OptimizerPrograms:
    """What an optimizer answers for one parameter."""

    init: Program | None
    update: Program
    observe: Program | None
    first_refresh: Program | None
    refresh: Program | None
    rate: Program | None
    state: list[State]
    due: tuple[int, int, int]


def search_path() -> list[Path]:
    """Where plugins are looked for by name: CAGE_PLUGIN_PATH, this wheel's, beside the command cage, plugins/ here."""
    beside = [Path(sys.prefix) / "bin" / "plugins"]
    if command := shutil.which("cage"):
        beside.append(Path(command).resolve().parent / "plugins")
    given = [Path(d) for d in os.environ.get("CAGE_PLUGIN_PATH", "").split(os.pathsep) if d]
    return [*given, *beside, Path("plugins")]


def find(name: str) -> Path:
    """The executable of a plugin, by its name or, with a slash, by its path."""
    if os.sep in name:
        path = Path(name)
        if path.is_dir():
            raise PluginError(f"{name} is a directory: build it first (go build -o NAME {name}), and name the executable")
        if not os.access(path, os.X_OK):
            raise PluginError(f"{name} is no file that can be executed (chmod +x?)" if path.exists() else f"{name} does not exist")
        return path.resolve()
    known: set[str] = set()
    for directory in search_path():
        if directory.is_dir():
            path = directory / name
            if path.is_file() and os.access(path, os.X_OK):
                return path.resolve()
            known.update(f.name for f in directory.iterdir() if f.is_file() and os.access(f, os.X_OK))
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}" if known else "there are none"
    looked = ", ".join(map(str, search_path()))
    raise PluginError(f"there is no plugin {name!r} ({hint}); looked in {looked}")


class Plugin:
    """A plugin that was started. It ends with this process, or by close."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name, self.kind, self.path = name, kind, find(name)
        self._last: list[str] = []  # of its output, for messages
        self._limit = _timeout()
        with tempfile.TemporaryDirectory(prefix="cage") as directory:
            environment = {
                **os.environ, "CAGE_PLUGIN": COOKIE, "PLUGIN_PROTOCOL_VERSIONS": str(PROTOCOL),
                "PLUGIN_UNIX_SOCKET_DIR": directory, "CAGE_PLUGIN_LIFELINE": "stdin", "CAGE_PLUGIN_LOG": "warn",
            }  # fmt: skip
            try:
                self._process = subprocess.Popen(
                    [self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env=environment, start_new_session=True, text=True, errors="replace",
                )  # fmt: skip
            except OSError as e:
                raise PluginError(f"plugin {name} does not start: {e}") from None
            atexit.register(self.close)
            threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True).start()
            try:
                address = self._handshake()
                options = [
                    ("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE),
                    ("grpc.client_idle_timeout_ms", 2**31 - 1),  # a channel that was closed could not be opened again
                ]  # fmt: skip
                self._channel = grpc.insecure_channel(address, options=options)
                answer = self._call("Describe", "DescribeRequest", "DescribeResponse", api_versions=[API])
            except BaseException:
                self.close()
                raise
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        if answer.api_version != API:
            self.close()
            raise PluginError(f"plugin {name} speaks version {answer.api_version} of the API, want {API}: install a current one")
        self.description = answer.description
        self.parameters = {p.name: p for p in self.description.parameters}

    def _handshake(self) -> str:
        assert self._process.stdout is not None
        with ThreadPoolExecutor(1) as one:
            try:
                line = one.submit(self._process.stdout.readline).result(self._limit).strip()
            except TimeoutError:
                self.close()  # ends the read
                raise PluginError(
                    f"plugin {self.name} was not ready within {self._limit:g} s (CAGE_PLUGIN_TIMEOUT=1m allows a minute)"
                ) from None
        fields = line.split("|")
        if len(fields) < 5 or fields[0] != "1" or fields[4] != "grpc" or fields[2] not in ("unix", "tcp"):
            raise PluginError(f"plugin {self.name} is no plugin of cage: it printed {line[:100]!r}{self._tail()}")
        if fields[1] != str(PROTOCOL):
            raise PluginError(f"plugin {self.name} speaks protocol {fields[1]}, want {PROTOCOL}: build it again")
        return f"unix:{fields[3]}" if fields[2] == "unix" else fields[3]

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._last = [*self._last[-9:], line.rstrip()]
            try:
                record = json.loads(line)
                level = {"warn": "WARNING"}.get(record["@level"], str(record["@level"]).upper())
                log.log(logging.getLevelNamesMapping().get(level, logging.DEBUG), "%s: %s", self.name, record["@message"])
            except (ValueError, KeyError, TypeError):
                log.debug("%s: %s", self.name, line.rstrip())

    def _tail(self) -> str:
        return "".join(f"\n  {line}" for line in self._last)

    def _call(self, method: str, request: str, response: str, **fields: Any) -> Any:
        service = f"/{wire.PACKAGE}.{self.kind.capitalize()}/{method}"
        call = self._channel.unary_unary(
            service, request_serializer=lambda m: m.SerializeToString(), response_deserializer=wire.message(response).FromString
        )
        try:
            return call(wire.message(request)(**fields), timeout=self._limit, wait_for_ready=method == "Describe")
        except grpc.RpcError as e:
            code = e.code()
            if code == grpc.StatusCode.UNIMPLEMENTED:
                raise PluginError(f"plugin {self.name} is no {self.kind}") from None
            if code == grpc.StatusCode.INVALID_ARGUMENT:
                raise PluginError(f"{self.name}: {e.details()}") from None
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise PluginError(
                    f"plugin {self.name} did not answer within {self._limit:g} s (CAGE_PLUGIN_TIMEOUT=1m allows a minute)"
                ) from None
            raise PluginError(f"plugin {self.name} failed ({code.name}): {e.details()}{self._tail()}") from None

    def settings(self, given: Mapping[str, Setting]) -> dict[str, dict[str, Setting]]:
        """The values of all parameters, checked, as the fields of messages; those that are not given have their defaults."""
        for name in given:
            if name not in self.parameters:
                near = difflib.get_close_matches(name, self.parameters, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self.parameters) or 'none'}"
                raise PluginError(f"{self.name} has no parameter {name!r}: {hint}")
        return {name: self._value(p, given[name] if name in given else None) for name, p in self.parameters.items()}

    def _value(self, p: Any, v: Setting | None) -> dict[str, Setting]:
        kind = p.default.WhichOneof("kind")
        if v is None:
            return {kind: getattr(p.default, kind)}
        types: dict[str, Any] = {"integer": Integral, "float": Real, "boolean": bool, "string": str}
        want = {"integer": "an integer", "float": "a number", "boolean": "True or False", "string": "a text"}[kind]
        ok = isinstance(v, types[kind]) and (kind == "boolean") == isinstance(v, bool)
        if ok and kind in ("integer", "float"):
            ok = p.min <= v <= p.max
            if not math.isinf(p.min) or not math.isinf(p.max):
                want += f" from {p.min:g} to {p.max:g}"
        if ok and p.choices:
            ok = v in p.choices
        if p.choices:
            want = "one of " + ", ".join(map(repr, p.choices))
        if not ok:
            raise PluginError(f"{self.name}: {p.name} = {v!r}: want {want}")
        return {kind: {"float": float, "integer": int}.get(kind, lambda v: v)(v)}

    def quantizer(self, role: str, name: str, shape: Shape, settings: Mapping[str, Setting], context: int = 0) -> QuantizerPrograms:
        """The programs for a tensor: a weight [out, in], or an activation [tokens, in]."""
        roles = {"weight": 1, "activation": 2}
        site = {"role": roles[role], "name": name, "shape": shape, "values": self.settings(settings), "context": context, "layers": 1}
        m = self._call("Quantize", "QuantizeRequest", "QuantizeResponse", site=site).program
        if m.search_every:
            raise PluginError(f"{self.name} searches for its state outside of programs, which is possible in cage alone")
        for p in (m.init, m.init_state):
            if len(p.inputs) > 1:
                raise PluginError(f"{self.name} starts from statistics of columns, which is possible in cage alone")
        program = wire.from_program(m.program)
        return QuantizerPrograms(
            program, _optional(m, "evaluate") or program, _optional(m, "init"), _state(m.trained), _optional(m, "init_state"),
            _optional(m, "next"), _state(m.state), _optional(m, "backward"),
        )  # fmt: skip

    def optimizer(self, role: str, name: str, shape: Shape, settings: Mapping[str, Setting]) -> OptimizerPrograms | None:
        """The programs for a parameter, or None where the optimizer is for other parameters."""
        roles = {"matrix": 1, "vector": 2, "embedding": 3, "head": 4}
        tensor = {"role": roles[role], "name": name, "shape": shape, "values": self.settings(settings)}
        answer = self._call("Program", "ProgramRequest", "ProgramResponse", tensor=tensor)
        if answer.WhichOneof("answer") == "declined":
            return None
        m = answer.program
        alone = {
            "computes in its own process": answer.WhichOneof("answer") == "opaque",
            "takes a second gradient": m.probe_due.first > 0,
            "sums over parameters": m.HasField("collect"),
            "evaluates other weights than it trains": m.HasField("evaluate"),
            "rounds weights to bfloat16": m.rounded != 0,
        }
        for what, so in alone.items():
            if so:
                raise PluginError(f"{self.name} {what}, which is possible in cage alone")
        names = ("init", "update", "observe", "first_refresh", "refresh", "rate")
        programs = {n: _optional(m, n) for n in names}
        return OptimizerPrograms(**programs, state=_state(m.state), due=(m.due.first, m.due.next, m.due.every))  # type: ignore[arg-type]

    def __reduce__(self) -> Any:
        """A copy, also in another process, is the plugin of the same name."""
        return start, (str(self.path) if os.sep in self.name else self.name, self.kind)

    def close(self) -> None:
        """Ends the process, within a second by itself, or else with its process group."""
        atexit.unregister(self.close)
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, 9)
                self._process.wait()


_started: dict[tuple[str, Kind, int], Plugin] = {}


def start(name: str, kind: Kind) -> Plugin:
    """A running plugin: one process for each plugin and Python process."""
    key = (name, kind, os.getpid())
    plugin = _started.get(key)
    if plugin is None or plugin._process.poll() is not None:
        plugin = _started[key] = Plugin(name, kind)
    return plugin


def _optional(m: Any, name: str) -> Program | None:
    return wire.from_program(getattr(m, name)) if m.HasField(name) else None


def _state(tensors: Any) -> list[State]:
    storages = {n: word for word, n in wire._STORAGE.items()}
    return [State(t.name, tuple(t.shape), _optional(t, "constrain"), storages[t.storage], t.maximum) for t in tensors]


def _timeout() -> float:
    """CAGE_PLUGIN_TIMEOUT in seconds: a number with the unit s, m or h; 10 s by default."""
    text = os.environ.get("CAGE_PLUGIN_TIMEOUT", "10s")
    units = {"s": 1, "m": 60, "h": 3600}
    try:
        return float(text[:-1]) * units[text[-1]]
    except (ValueError, KeyError, IndexError):
        raise PluginError(f"CAGE_PLUGIN_TIMEOUT is {text!r}: want a time such as 30s or 2m") from None
