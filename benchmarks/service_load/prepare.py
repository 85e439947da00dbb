"""Makes the server's data: users with tokens, an application, and requests of the past; prints what it has made.

python benchmarks/service_load/prepare.py [--folder FOLDER] [--past 1000]
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.requests import OPEN, NewRequestEvent

TENANTS = 10
USERS = 60
"""Each may have 100 streams: enough for 5,000."""

APPLICATION = """\
name: quick
application:
  title: A program that ends at once
  fields:
    size: {type: integer, min: 1, max: 100000, default: 1}
job:
  command: [/bin/true, "{{ size }}"]
space:
  nodes: [1]
offers:
  provider: [local]
"""


def people(context: Context) -> list[dict[str, str]]:
    """Users with tokens, over some tenants."""
    found = []
    for number in range(USERS):
        user = context.accounts.add_user(f"user{number}", tenant=f"tenant{number % TENANTS}")
        token = context.accounts.make_token(user.id, "load")
        found.append({"name": user.name, "tenant": user.tenant, "token": token})
    return found


def principal(context: Context, name: str) -> Principal:
    user = context.accounts.store.user_named(name)
    return Principal(user.id, user.name, user.role, user.tenant)  # type: ignore[arg-type]


def past(context: Context, names: list[str], count: int) -> None:
    """Requests that have ended, as a month of use leaves them."""
    for number in range(count):
        who = principal(context, names[number % len(names)])
        row = context.requests.submit(who, {"application": "quick", "parameters": {"size": 1 + number}})
        for state in ("booting", "executing"):
            context.requests.store.change_free(row.id, OPEN, {"state": state}, NewRequestEvent(state, "as it was"))
        over = {"state": "done", "cost": 0.001, "started": row.created, "ended": time.time()}
        context.requests.store.change_free(row.id, OPEN, over, NewRequestEvent("done", "it has ended well"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tradewind_service_load"))
    parser.add_argument("--past", type=int, default=1000)
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    url = f"sqlite:///{options.folder}/tradewind.db"
    context = open_context(ServiceSettings(), url, options.folder / "home")
    admin = context.accounts.add_user("admin", role="admin")
    made = people(context)
    context.applications.register(principal(context, admin.name), APPLICATION, shared=True)
    past(context, [one["name"] for one in made], options.past)
    context.close()
    (options.folder / "people.json").write_text(json.dumps(made))
    print(f"{len(made)} users of {TENANTS} tenants, {options.past} requests: {options.folder}")


if __name__ == "__main__":
    main()
