"""Reads the files of sdk/protocol, which Go has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format

from cage_sdk import Program, wire
from cage_sdk.infer import Type

PROTOCOL = Path(__file__).resolve().parents[2] / "protocol"


def programs() -> list[dict[str, Any]]:
    """The lines of programs.jsonl."""
    return [json.loads(line, parse_int=_number) for line in (PROTOCOL / "programs.jsonl").read_text().splitlines()]


def answers() -> list[dict[str, Any]]:
    """The lines of answers.jsonl."""
    return [json.loads(line, parse_int=_number) for line in (PROTOCOL / "answers.jsonl").read_text().splitlines()]


def _number(text: str) -> float:
    return -0.0 if text == "-0" else int(text)


def message(name: str, fields: Any) -> Any:
    """A message from its JSON form."""
    return json_format.ParseDict(fields, wire.message(name)())


def program(fields: Any) -> Program:
    return wire.from_program(message("Program", fields))


def array(t: Type, numbers: list[Any]) -> Any:
    kinds = {"float": np.float64, "int": np.int32, "uint": np.uint32, "bool": np.bool_}
    return np.array([float(v) for v in numbers]).astype(np.int64 if t.dtype != "float" else float).astype(kinds[t.dtype]).reshape(t.shape)
