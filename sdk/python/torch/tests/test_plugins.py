"""Plugins as processes: right ones, and such that crash, hang, print something else, or are of another version."""

from __future__ import annotations

import pytest
from cage_torch import PluginError
from cage_torch.plugins import Plugin, find, start


def script(tmp_path, name, text):
    path = tmp_path / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


BROKEN = {
    "ends": ("exit 3", "no plugin of cage"),
    "prints": ("echo hello; sleep 60", "printed 'hello'"),
    "old": ("echo '1|1|unix|/tmp/x|grpc'; sleep 60", "protocol 1, want 2: build it again"),
    "tells": ("echo 'why it ends' >&2; exit 1", "why it ends"),
    "closed": ("echo '1|2|unix|/nowhere/x|grpc'; sleep 60", "did not answer within 1 s"),
    "hangs": ("sleep 60", "was not ready within 1 s"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(tmp_path, monkeypatch, name):
    text, message = BROKEN[name]
    monkeypatch.setenv("CAGE_PLUGIN_TIMEOUT", "1s")
    with pytest.raises(PluginError, match=message):
        Plugin(script(tmp_path, name, text), "quantizer")


def test_names(tmp_path, monkeypatch):
    script(tmp_path, "mine", "")
    monkeypatch.setenv("CAGE_PLUGIN_PATH", str(tmp_path))
    assert find("mine") == tmp_path / "mine"
    with pytest.raises(PluginError, match="did you mean 'mine'"):
        find("mien")
    with pytest.raises(PluginError, match="build it first"):
        find(str(tmp_path))
    (tmp_path / "text").write_text("")
    with pytest.raises(PluginError, match="chmod"):
        find(str(tmp_path / "text"))
    monkeypatch.setenv("CAGE_PLUGIN_TIMEOUT", "soon")
    with pytest.raises(PluginError, match="want a time such as 30s"):
        Plugin("mine", "quantizer")


def test_own_plugins_first(tmp_path, monkeypatch):
    """Those of the environment's wheel come before those beside another cage on the path."""
    for d in ("own/bin/plugins", "other/plugins"):
        (tmp_path / d).mkdir(parents=True)
        script(tmp_path / d, "mine", "")
    script(tmp_path / "other", "cage", "")
    monkeypatch.setenv("CAGE_PLUGIN_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert find("mine") == tmp_path / "other/plugins/mine"
    monkeypatch.setattr("sys.prefix", str(tmp_path / "own"))
    assert find("mine") == tmp_path / "own/bin/plugins/mine"


def test_settings():
    p = start("absmax", "quantizer")
    assert p.settings({"bits": 3})["bits"] == {"integer": 3}
    for given, message in (
        ({"bit": 3}, "did you mean 'bits'"), ({"bits": 9}, "from 1 to 8"), ({"bits": True}, "an integer"),
        ({"grid": "round"}, "one of 'symmetric'"), ({"bits": "4"}, "an integer"),
    ):  # fmt: skip
        with pytest.raises(PluginError, match=message):
            p.settings(given)
    with pytest.raises(PluginError, match="is no quantizer"):
        Plugin("adamw", "quantizer")
    with pytest.raises(PluginError, match="1 bit"):
        p.quantizer("weight", "w", (4, 32), {"bits": 1})


def test_ends_with_its_input():
    p = Plugin("absmax", "quantizer")
    p.close()
    assert p._process.returncode is not None
    assert start("absmax", "quantizer") is start("absmax", "quantizer")
