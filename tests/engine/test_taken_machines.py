"""A search on spot machines that are really taken away: hosts with a network and disks of their own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.engines.hosts import Hosts, hosts
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.checkpoints import CheckpointStore
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.engine.search_builder import build_search, find_or_create_study
from tradewind.problem import UNINTERRUPTED_COST, Interruptions, Run, RunState, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import Store
from tradewind.utils.clock import SystemClock

pytestmark = pytest.mark.xdist_group("ssh")

__all__ = ["hosts"]

PRICE = 36.0
STEPS = 25

CLOUD = '''
"""A cloud that lends the hosts of a test, one after the other."""

import json
from dataclasses import replace
from pathlib import Path

from tradewind.deployer.provisioner.base import ReachableBySsh
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.problem import Machine
from tradewind.utils.clock import SystemClock


class Cloud(SimulatedProvisioner, ReachableBySsh):
    """Each run gets the host whose number is that of its attempt."""

    def _cluster(self, run_id, entry):
        found = super()._cluster(run_id, entry)
        hosts = json.loads(Path(__file__).with_name("hosts.json").read_text())
        name, address = hosts["addresses"][int(run_id.rpartition("-")[2]) - 1]
        machine = Machine(name, address, {"ssh": hosts["facts"]})
        return replace(found, machines=(machine,) if found.machines else ())
'''
JOB = """
name: taken
job: {command: [sh, count.sh]}
space: {instance: {provider: csv, spot: "any"}}
catalogues: {csv: {path: prices.csv}}
objective: {minimise: cost}
budget: {trials: 1, dollars: 5}
searcher: random
deploy:
  provisioner: {use: "cloud.py:Cloud", boot: 0}
  runner: {use: ssh, folder: FAR, ssh: {connect_seconds: 2}, patience: 2}
  interruptions_per_hour: 6
  checkpoint: 400ms
  spot_attempts: 2
  retries: 0
"""
COUNT = f"""
n=$(cat "$TRADEWIND_CHECKPOINT/n" 2>/dev/null || echo 0)
echo "from $n"
while [ "$n" -lt {STEPS} ]; do
  sleep 0.1
  n=$((n + 1))
  echo "$n" >"$TRADEWIND_CHECKPOINT/part" && mv "$TRADEWIND_CHECKPOINT/part" "$TRADEWIND_CHECKPOINT/n"
done
echo "to $n"
"""


@pytest.fixture
def place(tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cloud.py").write_text(CLOUD)
    facts = {"addresses": list(hosts.addresses.items()), "facts": hosts.facts}
    (tmp_path / "hosts.json").write_text(json.dumps(facts))
    prices = "API Name,Provider,CPU,Memory,Category,Price,Spot\n"
    (tmp_path / "prices.csv").write_text(f"{prices}m5.large,aws,1,1,general,{PRICE},yes\n")
    (tmp_path / "count.sh").write_text(COUNT)
    yield tmp_path
    hosts.mend("h1")
    for name in hosts.names:
        hosts.run(name, ["rm", "-rf", f"/mnt/{tmp_path.name}"])


def take_away(folder: Path, hosts: Hosts, run_id: str, trial: Path, when: dict[str, float]) -> None:
    """Take the first host, with all that is on it, once it has made a checkpoint that is worth something."""

    def worth() -> bool:
        latest = CheckpointStore(trial).latest()
        return latest is not None and latest.seconds > 0.5

    eventually(worth, 30)
    hosts.cut("h1")
    cloud = SimulatedProvisioner(settings=SimulatedSettings(boot=0.0), data_folder=folder)
    cloud.clock = SystemClock()
    when["taken"] = time.time()
    cloud.destroy(Cluster(run_id, ClusterState.UNKNOWN))


def test_a_run_goes_on_from_its_checkpoint_on_another_machine_and_every_second_is_paid(
    place: Path, hosts: Hosts
) -> None:
    spec = parse_spec(JOB.replace("FAR", f"/mnt/{place.name}"), file="job.yaml", base=place)
    data = place / "data"
    when: dict[str, float] = {}
    opened: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{place}/study.db")
    with closing(opened) as store:
        study, _ = find_or_create_study(spec, store)
        trial_folder = data / "checkpoints" / study.owner / "00000"
        thief = threading.Thread(
            target=take_away, args=(data, hosts, f"{study.owner}-00000-1", trial_folder, when), daemon=True
        )
        thief.start()
        search = build_search(spec, study, store, data)
        search.run()
        thief.join()
        [trial], runs = store.trials(study.id), list(store.runs(study.id))
    assert trial.state is TrialState.SUCCEEDED
    assert [run.state for run in runs] == [RunState.PREEMPTED, RunState.DONE]
    first, second = runs
    assert [run.machines for run in runs] == [(), ()], "all machines were given back"
    began, ended = Path(second.folder, "stdout").read_text().splitlines()
    assert 0 < int(began.removeprefix("from ")) < STEPS
    assert ended == f"to {STEPS}"
    saved = second.usage.resumed_seconds
    assert 0.5 < saved <= first.runtime
    # All that was spent is what both runs cost. The machine was paid for until it was seen to be taken, as quickly as a
    # loaded machine does; tests/deployer/lifecycle/test_lost_machines.py holds that it is no longer than that.
    assert search.parts.machine.ledger.spent == pytest.approx(first.cost + second.cost, abs=1e-9)
    assert trial.spent == pytest.approx(first.cost + second.cost, abs=1e-8)
    assert first.started is not None
    lived = when["taken"] - first.started
    assert lived - 5.0 <= first.cost / PRICE * 3600.0 <= lived + 30.0
    assert first.cost > 0
    # The trial is judged by a whole run, what was saved counted once, and by what such runs are expected to cost.
    seen = trial.observation
    assert seen is not None
    assert seen.metrics[UNINTERRUPTED_COST] == pytest.approx(second.cost + PRICE * saved / 3600.0)
    assert seen.runtime == pytest.approx(
        Interruptions(6.0, 0.4).expected_runtime(second.runtime + saved, _setup(second)), rel=1e-3
    )
    assert seen.cost > seen.metrics[UNINTERRUPTED_COST]
    assert not trial_folder.exists()


def _setup(run: Run) -> float:
    return max(0.0, run.cost / PRICE * 3600.0 - float(-(-run.runtime // 1.0)))
