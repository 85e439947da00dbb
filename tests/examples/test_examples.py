"""The example jobs are accepted, and their programs run by themselves and give right results."""

from __future__ import annotations

import bz2
import csv
import importlib.util
import json
import lzma
import re
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tradewind import plugins
from tradewind.problem import Offer
from tradewind.problem.job_spec.spec import load_spec
from tradewind.testing.interpreters import make_output

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = sorted(path.parent.name for path in EXAMPLES.glob("*/job.yaml"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the pool pickles by module name
    spec.loader.exec_module(module)
    return module


def local_offers() -> list[Offer]:
    return [
        Offer(
            "local", f"local.{letter}{cpus}", cpus, cpus * ratio, 0.04 * cpus + 0.005 * cpus * ratio, category=category
        )
        for cpus in (1, 2)
        for letter, category, ratio in (("c", "compute", 1.0), ("g", "general", 2.0), ("m", "memory", 4.0))
    ]


@pytest.mark.parametrize("name", JOBS)
def test_the_job_is_accepted(name: str) -> None:
    spec = load_spec(EXAMPLES / name / "job.yaml")
    assert spec.budget.dollars is not None
    for choice in spec.interpret:
        plugins.create("interpreter", choice.name, choice.settings, base=EXAMPLES / name)


@pytest.mark.parametrize("name", ["compress", "replay"])
def test_the_space_is_large_enough_to_be_worth_a_search(name: str) -> None:
    spec = load_spec(EXAMPLES / name / "job.yaml")
    queries = spec.instance_queries()
    offers = {name: [offer for offer in local_offers() if query.matches(offer)] for name, query in queries.items()}
    assert len(spec.build_space(offers)) >= 150


def test_the_examples_are_all_described() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert all(f"{name}/" in text for name in JOBS)


# ------------------------------------------------------------------ compress


def compress(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "compress" / "compress.py"), f"--cache={tmp_path}", *words],
        capture_output=True,
        text=True,
        check=False,
        env={"TRADEWIND_METRICS": str(tmp_path / "metrics.jsonl"), "PATH": ""},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "level"), [("zlib", 1), ("bz2", 9), ("lzma", 3)])
def test_the_compressor_reports_the_true_ratio(tmp_path: Path, codec: str, level: int) -> None:
    done = compress(tmp_path, "--mib=1", f"--codec={codec}", f"--level={level}", "--block-kib=256")
    assert done.returncode == 0, done.stderr
    data = next(tmp_path.glob("tradewind-corpus*")).read_bytes()

    def squeeze(block: bytes) -> bytes:
        if codec == "lzma":
            return lzma.compress(block, preset=level)
        return zlib.compress(block, level) if codec == "zlib" else bz2.compress(block, level)

    packed = sum(len(squeeze(data[i : i + (256 << 10)])) for i in range(0, len(data), 256 << 10))
    metrics = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert len(data) == 1 << 20
    assert metrics["ratio"] == pytest.approx(len(data) / packed)
    assert metrics["throughput_mb_s"] > 0


@pytest.mark.slow
def test_workers_change_nothing_but_the_time(tmp_path: Path) -> None:
    for workers in (1, 2):
        done = compress(tmp_path, "--mib=1", f"--workers={workers}", "--block-kib=64")
        assert done.returncode == 0, done.stderr
    first, second = [json.loads(line)["ratio"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert first == second


@pytest.mark.slow
def test_the_job_reads_what_the_compressor_prints(tmp_path: Path) -> None:
    done = compress(tmp_path, "--mib=1")
    choice = next(c for c in load_spec(EXAMPLES / "compress" / "job.yaml").interpret if c.name == "regex")
    interpreter = plugins.create("interpreter", "regex", choice.settings, base=tmp_path)
    found = interpreter.interpret(make_output(tmp_path / "run", {"stdout": done.stdout.encode()}), {})
    reported = json.loads((tmp_path / "metrics.jsonl").read_text())
    # As printed: three decimals and one.
    printed = {"ratio": 0.0006, "throughput_mb_s": 0.051}
    assert found == {name: pytest.approx(value, abs=printed[name]) for name, value in reported.items()}


@pytest.mark.slow
def test_a_block_that_does_not_decompress_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = load(EXAMPLES / "compress" / "compress.py")
    monkeypatch.setitem(program.CODECS, "zlib", (zlib.compress, lambda packed: b"something else"))
    with pytest.raises(ValueError, match="does not decompress"):
        program.main(["--mib=1", f"--cache={tmp_path}"])


@pytest.mark.slow
def test_the_corpus_is_the_same_everywhere(tmp_path: Path) -> None:
    program = load(EXAMPLES / "compress" / "compress.py")
    path = program.corpus(3, tmp_path)
    data = path.read_bytes()
    assert len(data) == 3 << 20
    path.unlink()
    assert program.corpus(3, tmp_path).read_bytes() == data
    assert data[: 1 << 20] != data[2 << 20 :]
    assert zlib.crc32(data) == 0x3AFF5441


def test_wrong_words_are_refused(tmp_path: Path) -> None:
    assert compress(tmp_path, "--workers=0").returncode == 2
    assert compress(tmp_path, "--level=10").returncode == 2


# ------------------------------------------------------------------ train


def test_training_learns_and_reports_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_METRICS", str(tmp_path / "metrics.jsonl"))
    monkeypatch.setenv("TRADEWIND_OUTPUTS", str(tmp_path / "outputs"))
    for name, value in {"LEARNING_RATE": "0.3", "EPOCHS": "6", "DTYPE": "float64", "INSTANCE": "local.c1"}.items():
        monkeypatch.setenv(f"TRADEWIND_PARAM_{name}", value)
    assert load(EXAMPLES / "train" / "train.py").main(["--samples=4000"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["accuracy"] > 0.45  # one in five by chance
    assert float((tmp_path / "outputs" / "accuracy.txt").read_text()) == pytest.approx(lines[-1]["accuracy"], abs=1e-4)


def test_training_that_diverges_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = load(EXAMPLES / "train" / "train.py")
    assert program.main(["--samples=2000", "--learning-rate=1e6", "--epochs=3", "--batch=16"]) == 1
    assert "too large" in capsys.readouterr().err


def test_a_training_step_on_a_gpu_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load(EXAMPLES / "gpu" / "train_step.py")
    monkeypatch.setenv("TRADEWIND_PARAM_INSTANCE", "local.c1-gpu1")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert program.main([]) == 3
    assert "pip install torch" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    assert program.main([]) == 3
    assert "sees no GPU" in capsys.readouterr().err


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    np = pytest.importorskip("numpy")
    program = load(EXAMPLES / "train" / "train.py")
    rng = np.random.default_rng(0)
    x, labels = program.make_data(50, "float64")

    def network(seed: int = 3) -> object:
        r = np.random.default_rng(seed)
        return program.Network(*[0.3 * r.normal(size=shape) for shape in ((12, 4), 4, (4, 5), 5)])

    def loss(one: object) -> float:
        _, chance = one.forward(x)  # type: ignore[attr-defined]
        return float(-np.log(chance[np.arange(50), labels] + 1e-12).mean())

    moved = network()
    moved.learn(x, labels, 1.0)  # type: ignore[attr-defined]
    for name in ("w1", "b1", "w2", "b2"):
        before, slope = getattr(network(), name), getattr(network(), name) - getattr(moved, name)
        place = tuple(int(rng.integers(n)) for n in before.shape)
        up, down = network(), network()
        getattr(up, name)[place] += 1e-6
        getattr(down, name)[place] -= 1e-6
        assert (loss(up) - loss(down)) / 2e-6 == pytest.approx(slope[place], rel=1e-3, abs=1e-7)


# ------------------------------------------------------------------ replay


def test_the_recorded_runs_cover_the_space_and_are_plausible() -> None:
    with (EXAMPLES / "replay" / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    keys = {tuple(row[name] for name in ("instance", "workers", "codec", "level", "block_kib")) for row in rows}
    assert len(keys) == len(rows) == 240
    assert all(float(row["runtime"]) > 0 and float(row["ratio"]) > 1 and row["exit_code"] == "0" for row in rows)


@pytest.mark.slow
def test_recording_continues_where_it_stopped(tmp_path: Path) -> None:
    program = load(EXAMPLES / "replay" / "record.py")
    words = ["--out", str(tmp_path / "runs.csv"), "--machine", "here=1", "--mib=1", "--workers", "1", "4"]
    words += ["--codecs", "zlib", "--levels", "1", "--cache", str(tmp_path)]
    assert program.main([*words, "--blocks", "64"]) == 0
    assert program.main([*words, "--blocks", "64", "256"]) == 0
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["instance"], row["workers"], row["block_kib"]) for row in rows] == [
        ("here", "1", "64"),
        ("here", "1", "256"),
    ]
    assert all(re.fullmatch(r"[0-9.]+", row["runtime"]) and float(row["ratio"]) > 1.5 for row in rows)
