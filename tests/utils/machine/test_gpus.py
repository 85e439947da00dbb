"""The GPUs of a machine, with programs in the place of their makers' tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.gpus import have_amd, have_nvidia

from tradewind.deployer.runner.resource_limits import missing_gpus
from tradewind.utils.machine import gpus
from tradewind.utils.machine.gpus import Gpu, describe_gpus, gpus_here, why_none


def test_those_of_nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have_nvidia(monkeypatch, tmp_path)
    found = gpus_here()
    assert found[1] == Gpu(1, "NVIDIA H100 80GB HBM3", "GPU-1a", 79.6, "nvidia")
    assert describe_gpus(found) == "2 × NVIDIA H100 80GB HBM3 (79.6 GiB)"


def test_those_of_amd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have_amd(monkeypatch, tmp_path, 1)
    assert gpus_here() == (Gpu(0, "AMD Instinct MI300X", "0x1", 192.0, "amd"),)


def test_without_a_tool_those_that_the_driver_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have_nvidia(monkeypatch, tmp_path, 0)
    assert gpus_here() == ()
    assert describe_gpus(()) == "none"
    place = tmp_path / "gpus" / "driver" / "0000:01:00.0"
    place.mkdir(parents=True)
    (place / "information").write_text("Model: \t\t NVIDIA A10G\nGPU UUID: \t GPU-77\nDevice Minor: \t 0\n")
    gpus._found.cache_clear()
    assert gpus_here() == (Gpu(0, "NVIDIA A10G", "GPU-77"),)


@pytest.mark.parametrize(
    ("named", "left"), [("1", [1]), ("GPU-0", [0]), ("", []), ("1,0", [0, 1]), ("-1", []), ("1,-1,0", [1])]
)
def test_what_the_environment_hides_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, left: list[int]
) -> None:
    have_nvidia(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert [gpu.index for gpu in gpus_here()] == left


@pytest.mark.parametrize("said", ["", "Unable to determine the device handle\n", "{}", "[1]", "{", '{"card0": 3}'])
def test_a_tool_that_says_nothing_of_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str) -> None:
    have_amd(monkeypatch, tmp_path)
    (tmp_path / "gpus" / "said").write_text(said)
    gpus._found.cache_clear()
    assert gpus_here() == ()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("", "CUDA_VISIBLE_DEVICES='' hides 2 × NVIDIA H100"),
        ("MIG-3a", "parts of a GPU by MIG are not known"),
        ("0", ""),
    ],
)
def test_who_hides_them_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, words: str) -> None:
    have_nvidia(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert words in why_none() if words else why_none() == ""
    if words:
        assert why_none() in missing_gpus(1.0)
    have_nvidia(monkeypatch, tmp_path, 0)
    assert why_none() == ""


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, [1, 2]),
        ({"HIP_VISIBLE_DEVICES": "2"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, [0, 1, 2]),
    ],
)
def test_rocm_has_two_variables_of_which_one_counts_what_the_other_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], left: list[int]
) -> None:
    have_amd(monkeypatch, tmp_path, 3)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert [gpu.index for gpu in gpus_here()] == left
    assert ("HIP_VISIBLE_DEVICES='1' hides 3 × AMD" in why_none()) is (not left)
