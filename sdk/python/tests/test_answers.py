"""Equal algorithms have equal programs: Go's recorded answers against those of the same algorithms in Python."""

from __future__ import annotations

import algorithms
import pytest
import recorded
from google.protobuf import json_format

from cage_sdk import Refusal, build_optimizer, build_quantizer, wire

CASES = [c for c in recorded.answers() if c["plugin"] in algorithms.ALL]


def test_every_algorithm_is_compared():
    assert {c["plugin"] for c in CASES if not c["method"].endswith("Describe")} == set(algorithms.ALL)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['plugin']}-{c['method'].rsplit('/')[-1]}")
def test_answers(case):
    plugin, method = algorithms.ALL[case["plugin"]], case["method"].rsplit("/")[-1]
    if method == "Describe":
        if plugin.description.version:
            got = wire.to_description(plugin.description)
            assert got == recorded.message("DescribeResponse", case["answer"]).description
        return
    request = recorded.message(f"{method}Request", case["request"])
    try:
        if method == "Quantize":
            built = build_quantizer(plugin, wire.from_site(request.site))
            answer, names = wire.to_quantizer_program(built), ("program", "evaluate", "init", "unpack", "init_state", "next", "backward")
        else:
            built = build_optimizer(plugin, wire.from_tensor(request.tensor))
            answer, names = wire.to_optimizer_program(built), ("init", "update")
    except Refusal:
        assert case["error"]["code"] == "InvalidArgument"
        return
    want = recorded.message(f"{method}Response", case["answer"]).program
    for name in names:
        program = getattr(built, name)
        if program is not None:
            assert str(program) == str(wire.from_program(getattr(want, name))), name
    assert {name: getattr(built, name).hash() for name in names if getattr(built, name)} == case["hashes"]
    assert answer == want, json_format.MessageToJson(answer)
