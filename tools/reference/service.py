"""service.md: the settings of a server."""

from __future__ import annotations

import inspect
import re

from reference.text import code_marks, page, table
from tradewind.cli.plugins import setting_rows
from tradewind.service.settings import ENVIRONMENT_PREFIX, ServiceSettings

INTRO = f"""\
`tradewind serve` takes each setting from the first place that has it: the command line (`--port 8080` for the common
ones, `--set session_hours=8` for all), the environment (`{ENVIRONMENT_PREFIX}PORT=8080`), the YAML file of `--config`
(`port: 8080`), the default. [Administration](../guides/administration.md) says what they are for. In the environment, a
mapping is written as JSON. A secret is given by reference only: `env:NAME`, `file:PATH` or `keyring:SERVICE/NAME`."""


def write() -> str:
    """The page."""
    words = _words()
    rows = [[f"`{row.name}`", row.type, row.default, words[row.name]] for row in setting_rows(ServiceSettings)]
    return page("Settings of the service", INTRO, table(["setting", "type", "default", "what it does"], rows))


def _words() -> dict[str, str]:
    """What the class says of each setting, which is more than the one line of its field."""
    section = (inspect.getdoc(ServiceSettings) or "").partition("Attributes:\n")[2]
    return {
        match["name"]: code_marks(" ".join(match["text"].split()))
        for match in re.finditer(r"^    (?P<name>\w+): (?P<text>.*(?:\n        .*)*)", section, re.M)
    }
