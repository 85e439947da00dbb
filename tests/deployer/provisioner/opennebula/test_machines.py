"""What the states of OpenNebula's machines mean."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tradewind.deployer.provisioner.opennebula.machines import parse_vm

_ACTIVE = 3

# enum LcmState of include/VirtualMachine.h of OpenNebula, of 2024, and what it means for a job.
_LCM = {
    "booting": (
        "LCM_INIT 0, PROLOG 1, BOOT 2, PROLOG_MIGRATE 8, PROLOG_RESUME 9, CLEANUP_RESUBMIT 15, BOOT_UNKNOWN 19, "
        "BOOT_POWEROFF 20, BOOT_SUSPENDED 21, BOOT_STOPPED 22, PROLOG_UNDEPLOY 31, BOOT_UNDEPLOY 32, BOOT_MIGRATE 35"
    ),
    "running": (
        "RUNNING 3, MIGRATE 4, SAVE_MIGRATE 7, HOTPLUG 17, HOTPLUG_SNAPSHOT 24, HOTPLUG_NIC 25, HOTPLUG_SAVEAS 26, "
        "DISK_SNAPSHOT 57, DISK_SNAPSHOT_REVERT 58, DISK_SNAPSHOT_DELETE 59, DISK_RESIZE 62, HOTPLUG_RESIZE 66, "
        "BACKUP 69"
    ),
    "leaving": "EPILOG 11, SHUTDOWN 12, CLEANUP_DELETE 23",
    "unknown": "UNKNOWN 16",
    "stopped": (
        "SAVE_STOP 5, SAVE_SUSPEND 6, EPILOG_STOP 10, SHUTDOWN_POWEROFF 18, HOTPLUG_SAVEAS_POWEROFF 27, "
        "HOTPLUG_SAVEAS_SUSPENDED 28, SHUTDOWN_UNDEPLOY 29, EPILOG_UNDEPLOY 30, HOTPLUG_PROLOG_POWEROFF 33, "
        "HOTPLUG_EPILOG_POWEROFF 34, DISK_SNAPSHOT_POWEROFF 51, DISK_SNAPSHOT_REVERT_POWEROFF 52, "
        "DISK_SNAPSHOT_DELETE_POWEROFF 53, DISK_SNAPSHOT_SUSPENDED 54, DISK_SNAPSHOT_DELETE_SUSPENDED 56, "
        "DISK_RESIZE_POWEROFF 63, DISK_RESIZE_UNDEPLOYED 64, HOTPLUG_NIC_POWEROFF 65, HOTPLUG_SAVEAS_UNDEPLOYED 67, "
        "HOTPLUG_SAVEAS_STOPPED 68, BACKUP_POWEROFF 70"
    ),
    "failed": (
        "BOOT_FAILURE 36, BOOT_MIGRATE_FAILURE 37, PROLOG_MIGRATE_FAILURE 38, PROLOG_FAILURE 39, EPILOG_FAILURE 40, "
        "EPILOG_STOP_FAILURE 41, EPILOG_UNDEPLOY_FAILURE 42, PROLOG_MIGRATE_POWEROFF_FAILURE 44, "
        "PROLOG_MIGRATE_SUSPEND_FAILURE 46, BOOT_UNDEPLOY_FAILURE 47, BOOT_STOPPED_FAILURE 48, "
        "PROLOG_RESUME_FAILURE 49, PROLOG_UNDEPLOY_FAILURE 50, PROLOG_MIGRATE_UNKNOWN_FAILURE 61"
    ),
}


@pytest.mark.parametrize("phase", _LCM)
def test_what_a_state_of_the_life_cycle_means(phase: str) -> None:
    """A machine that is off is no running one, whatever is done to its disk: its job is gone."""
    for words in _LCM[phase].split(", "):
        name, number = words.split()
        document = f"<VM><ID>1</ID><NAME>m</NAME><STATE>{_ACTIVE}</STATE><LCM_STATE>{number}</LCM_STATE></VM>"
        vm = parse_vm(ElementTree.fromstring(document))
        assert vm.phase == phase, name
        if phase in ("stopped", "failed"):
            assert vm.words == name
