"""Checkpoints of runs in pods: through several Secrets, of runs that have ended, and those that are too large."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.continued import assert_goes_on
from tests.deployer.runner.kubernetes.test_runner import IMAGE, REAL, KubeBench, shell
from tests.engines.kube_api import KubeApi, kube_cluster
from tests.waiting import eventually

from tradewind.deployer.checkpoints import CheckpointStore
from tradewind.deployer.runner.kubernetes import checkpoints
from tradewind.deployer.runner.kubernetes.runner import KubernetesRunner
from tradewind.errors import DeployError, UnreachableError
from tradewind.problem import CheckpointPlan, Handle, RunRequest, RunState
from tradewind.testing.runners import poll_until, wait_for_end

pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]
__all__ = ["kube_cluster"]


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubeBench]:
    cluster: KubeApi | None = None if REAL else request.getfixturevalue("kube_cluster")
    bench = KubeBench(tmp_path, cluster)
    yield bench
    bench.close()
    if cluster is not None:
        cluster.reset()


def request_of(bench: KubeBench, script: str, *, kept: bool = False) -> RunRequest:
    return replace(shell(bench, script), checkpoint=CheckpointPlan(bench.folder / "checkpoints", 60.0, kept=kept))


def save(bench: KubeBench, content: bytes) -> None:
    def copy(folder: Path) -> float:
        folder.mkdir()
        (folder / "state").write_bytes(content)
        return 1.0

    CheckpointStore(bench.folder / "checkpoints").add(copy)


def test_a_checkpoint_goes_through_several_secrets(bench: KubeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PART_BYTES", 1000)
    save(bench, os.urandom(2500))
    request = request_of(bench, 'wc -c < "$TRADEWIND_CHECKPOINT/state"')
    assert sorted(checkpoints.checkpoint_parts(request.checkpoint)) == [f"checkpoint-0{n}" for n in range(3)]
    runner = bench.make()
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    assert (request.folder / "stdout").read_text().strip() == "2500"


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_run_has_left_is_there_for_others_where_it_is_to_be_kept(bench: KubeBench, *, kept: bool) -> None:
    runner, request = bench.make(), request_of(bench, 'echo last > "$TRADEWIND_CHECKPOINT/state"', kept=kept)
    handle = bench.submit(runner, request)
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert bool(runner.look_at_checkpoint(handle).fingerprint) == kept
    if kept:
        runner.copy_checkpoint(handle, bench.folder / "copy")
        assert (bench.folder / "copy" / "state").read_text() == "last\n"
    runner.collect(handle, request)
    assert not (request.folder / "left").exists()


def test_one_that_is_too_large_is_refused_in_words(bench: KubeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MOST_BYTES", 1000)
    save(bench, os.urandom(2000))
    request = request_of(bench, "head -c 200000 /dev/urandom > $TRADEWIND_CHECKPOINT/state; sleep 60")
    with pytest.raises(DeployError, match="compressed, and Kubernetes takes 1000 B"):
        checkpoints.checkpoint_parts(request.checkpoint)
    CheckpointStore(bench.folder / "checkpoints").remove()
    runner = bench.make()
    handle = bench.submit(runner, request)
    poll_until(runner, handle, lambda status: bool(runner.look_at_checkpoint(handle).fingerprint))
    with pytest.raises(DeployError, match="or more, and Kubernetes takes"):
        runner.copy_checkpoint(handle, bench.folder / "copy")
    runner.cancel(handle)
    wait_for_end(runner, handle)


def test_a_run_without_a_pod_has_none(bench: KubeBench) -> None:
    runner, request = bench.make(), request_of(bench, "true")
    handle = bench.submit(runner, request)
    wait_for_end(runner, handle)
    runner.forget(handle)
    eventually(lambda: _unreachable(runner, handle))  # the cluster removes it in its own time
    assert runner.look_at_checkpoint(handle).fingerprint == ""


def _unreachable(runner: KubernetesRunner, handle: Handle) -> bool:
    try:
        runner.open_channel(handle, ["true"]).close()
    except UnreachableError:
        return True
    return False


@pytest.mark.slow
def test_paused_promoted_and_interrupted_trials_go_on_from_their_checkpoints(bench: KubeBench) -> None:
    runner = {"use": "kubernetes", "kubeconfig": str(bench.config), "helper_image": "local/busybox:1"}
    assert_goes_on(bench.folder, runner, image=IMAGE)
