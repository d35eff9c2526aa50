from __future__ import annotations

import builtins
import json
import re
from typing import Any

import pytest
import torch

import attsvm
from attsvm.cli import info as command
from cli.runner import invoke


def told() -> dict[str, Any]:
    result = invoke("info", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_versions_engines_devices_threads_and_cache() -> None:
    found = told()
    assert found["attsvm"]["version"] == attsvm.__version__
    assert found["libraries"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert not {"pytest", "sphinx", "attsvm"} & set(found["libraries"])
    assert found["engines"]["TorchEngine"] == "yes"
    assert next(iter(found["devices"])) == "cpu"
    assert len(found["devices"]) == 1 + (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert found["compile cache"]["kernels"] is None or found["compile cache"]["kernels"] >= 0


def test_the_text_says_the_same() -> None:
    said = invoke("info").stdout
    for part in told().values():
        for name, value in part.items():
            assert re.search(
                rf"^  {re.escape(name)} +{re.escape('-' if value is None else str(value))}$", said, re.M
            ), name


def test_the_cache_is_counted_where_numba_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "kernel.nbc").write_bytes(bytes(300_000))
    assert told()["compile cache"] == {"folder": f"{tmp_path} (NUMBA_CACHE_DIR)", "kernels": 1, "megabytes": 0.3}


def test_a_broken_torch_is_reported_and_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def broken(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch":
            raise OSError("libtorch_cpu.so: cannot open shared object file\nmore")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", broken)
    found = command.collect()
    assert found["engines"]["CompiledEngine"] == "no: torch fails: libtorch_cpu.so: cannot open shared object file"
    assert found["devices"] == {}


def test_the_home_folder_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.Path, "home", lambda: command.Path("/home/somebody"))
    assert command._shown("/home/somebody/env/attsvm") == "~/env/attsvm"
    assert command._shown("/home/somebodyelse/env") == "/home/somebodyelse/env"
