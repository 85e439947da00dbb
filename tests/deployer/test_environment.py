"""What a shell cannot have as a variable is refused before anything is started."""

from __future__ import annotations

import pytest

from tradewind.deployer.environment import check_variables
from tradewind.errors import DeployError


@pytest.mark.parametrize("name", ["A B", "A-B", "1A", "", "Ä", "A\n", "A=B", "$(id)"])
def test_a_name_that_no_shell_knows_is_refused(name: str) -> None:
    check_variables(["PATH", "_x1"])
    with pytest.raises(DeployError, match="is not the name of an environment variable") as raised:
        check_variables(["PATH", name])
    assert not raised.value.retryable
