"""Makes the warden, a process of its own, count in the coverage of its tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.moto import moto  # noqa: F401  (a fixture of several files)

from tradewind.deployer.runner.warden import client as warden_client

_MEASURED = """
import coverage
measured = coverage.Coverage(config_file={config!r}, data_suffix=True, source=["tradewind"])
measured.start()
try:
    exec({bootstrap!r})
finally:
    measured.stop()
    measured.save()
"""


@pytest.fixture(autouse=True)
def _measure_the_warden(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        from coverage import Coverage
    except ImportError:
        return
    current = Coverage.current()
    if current is None:
        return
    plain = warden_client.warden_command()
    data = Path(current.get_data().base_filename())
    config = str(Path(__file__).parents[2] / "pyproject.toml")
    code = _MEASURED.format(config=config, bootstrap=plain[4]).replace(
        "data_suffix", f"data_file={str(data)!r}, data_suffix"
    )
    command = [plain[0], "-c", code, plain[5]]
    monkeypatch.setattr(warden_client, "warden_command", lambda: command)
