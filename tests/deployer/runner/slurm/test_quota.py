"""What slurmctld says of limits that jobs share, as Slurm 22.05 wrote it, and what is made of it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tradewind.deployer.runner.slurm.commands import SlurmCommands
from tradewind.deployer.runner.slurm.queue import SlurmQueue, SlurmQueueRow
from tradewind.deployer.runner.slurm.quota import SlurmQuota

_JOB = (
    "JobId=14 JobName=wrap UserId=root(0) GroupId=root(0) Nice=0 Account=b QOS=small JobState=PENDING Reason=x "
    "Partition=main NumCPUs=4 {kind}=cpu=4,mem=2G,node=1,billing=4,gres/gpu=2 Socks/Node=*"
)
_PARTITION = "PartitionName=main AllowQos=ALL Default=YES QoS={qos} DefaultTime=NONE TRES=cpu=12,mem=24000M,node=3"
_QOS = (
    "QOS={name}(3) UsageRaw=0.000000 GrpJobs=N(0) GrpTRES=cpu={grp}(0),mem=N(0),node=N(0),billing=N(0) "
    "GrpTRESMins=cpu=N(0),mem=N(0) MaxWallPJ= MaxTRESPJ= MaxTRESPN= MinTRESPJ= PreemptMode=OFF Priority=0 "
    "Account Limits= a={{MaxJobsPA=N(0) MaxTRESPA=cpu=1(0),mem=N(0)}} "
    "b={{MaxJobsPA=N(0) MaxTRESPA=cpu=N(0),mem={mem}(0)}} "
    "User Limits= 1000={{MaxJobsPU=N(0) MaxTRESPU=cpu=1(0)}} "
    "0={{MaxJobsPU=N(0) MaxSubmitJobsPU=N(2) MaxTRESPU=cpu={user}(0),mem=N(0),gres/gpu={gpu}(0)}}"
)
_ASSOC = (
    "ClusterName=c Account={account} UserName={user} ParentAccount={parent} GrpTRES=cpu={cpu}(0),mem=N(0) GrpTRESMins="
)


def quota(folder: Path, *qos: str, partition: str = "N/A", assoc: str = "", kind: str = "TRES") -> SlurmQuota:
    said = {
        "job": _JOB.format(kind=kind),
        "partition": _PARTITION.format(qos=partition),
        "qos": "\n".join(["Current Association Manager state", "QOS Records", *qos]),
        "assoc": assoc,
    }
    for name, text in said.items():
        (folder / name).write_text(text + "\n")
    script = folder / "scontrol"
    script.write_text(
        f"#!/bin/sh\necho x >> {folder}/calls\nkind=$3\n"
        "for word; do case $word in flags=qos) kind=qos ;; flags=assoc) kind=assoc ;; esac; done\n"
        f"cat {folder}/$kind\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return SlurmQuota(SlurmQueue(SlurmCommands(str(folder), None), 0.0, 5.0))


def waits(reason: str, name: str = "run-1") -> SlurmQueueRow:
    return SlurmQueueRow("14", "14", name, 0, "PENDING", reason, 0.0, {})


def qos(name: str = "small", grp: str = "N", user: str = "N", mem: str = "N", gpu: str = "N") -> str:
    return _QOS.format(name=name, grp=grp, user=user, mem=mem, gpu=gpu)


@pytest.mark.parametrize("kind", ["TRES", "ReqTRES"])
@pytest.mark.parametrize(
    ("limits", "reason", "words"),
    [
        ({"user": "2"}, "QOSMaxCpuPerUserLimit", "QOS small allows 2 (cpu) for all jobs of a user together"),
        ({"user": "4"}, "QOSMaxCpuPerUserLimit", ""),
        ({"user": "N"}, "QOSMaxCpuPerUserLimit", ""),
        ({"grp": "2"}, "QOSGrpCpuLimit", "QOS small allows 2 (cpu) for all jobs together"),
        ({"grp": "2"}, "QOSMaxCpuPerUserLimit", ""),
        ({"mem": "1000"}, "MaxMemoryPerAccount", "1000 MiB (mem) for all jobs of an account together"),
        ({"mem": "2048"}, "MaxMemoryPerAccount", ""),
        ({"gpu": "1"}, "QOSMaxGRESPerUser", "1 (gres/gpu)"),
        ({"user": "2"}, "Resources", ""),
        ({"user": "2"}, "QOSGrpCPUMinutesLimit", ""),
        ({"user": "2"}, "QOSMaxJobsPerUserLimit", ""),
    ],
)
def test_only_what_one_job_exceeds_by_itself_is_for_ever(
    tmp_path: Path, limits: dict[str, str], reason: str, words: str, kind: str
) -> None:
    found = quota(tmp_path, qos("normal", grp="1", user="1"), qos(**limits), kind=kind).beyond(waits(reason))
    assert (words in found) if words else found == ""


def test_the_qos_of_the_partition_goes_before_that_of_the_job(tmp_path: Path) -> None:
    """Or the other way round, with a flag: only what is beyond both is sure."""
    asked = quota(tmp_path, qos(user="2"), qos("part", user="8"), partition="part")
    assert asked.beyond(waits("QOSMaxCpuPerUserLimit")) == ""
    asked = quota(tmp_path, qos(user="2"), qos("part", user="3"), partition="part")
    assert "allows 3 (cpu)" in asked.beyond(waits("QOSMaxCpuPerUserLimit"))


def test_the_limits_of_an_association_are_those_of_all_accounts_above_too(tmp_path: Path) -> None:
    def records(*cpus: str) -> str:
        places = [("b", "root(0)", ""), ("b", "", "a(3)"), ("a", "", "root(1)"), ("other", "", "root(1)")]
        return "\n".join(
            _ASSOC.format(account=account, user=user, parent=parent, cpu=cpu)
            for (account, user, parent), cpu in zip(places, cpus, strict=True)
        )

    for cpus, words in (
        (("N", "N", "3", "1"), "account a allows 3 (cpu)"),
        (("2", "N", "N", "1"), "account b allows 2 (cpu)"),
        (("4", "4", "4", "1"), ""),
    ):
        found = quota(tmp_path, assoc=records(*cpus)).beyond(waits("AssocGrpCpuLimit"))
        assert (words in found) if words else found == ""


def test_slurm_is_asked_once_for_an_array_and_for_few_at_a_look(tmp_path: Path) -> None:
    asked = quota(tmp_path, qos(user="4"))
    for _ in range(3):
        asked.begin()
        assert asked.beyond(waits("QOSMaxCpuPerUserLimit")) == ""
    assert len((tmp_path / "calls").read_text().split()) == 3
    asked.begin()
    for number in range(100):
        asked.beyond(waits("QOSMaxCpuPerUserLimit", f"run-{number + 2}"))
    assert len((tmp_path / "calls").read_text().split()) == 3 * (1 + 3)


def test_a_slurm_that_says_nothing_of_limits_leaves_the_job_waiting(tmp_path: Path) -> None:
    asked = quota(tmp_path)
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'Access/permission denied' >&2; exit 1\n")
    assert asked.beyond(waits("QOSMaxCpuPerUserLimit")) == ""
    assert asked.beyond(waits("AssocGrpCpuLimit", "run-2")) == ""
