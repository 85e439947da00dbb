"""An XML-RPC server that behaves like oned: there is no OpenNebula in any package.

It keeps its state in a file, so that it can be killed and started again. Its times, limits and faults stand in
``config.json`` beside it, read at every call. Run by itself it serves; imported it gives the fixture ``oned``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

SUCCESS, AUTHENTICATION, AUTHORIZATION, NO_EXISTS, ACTION = 0, 0x100, 0x200, 0x400, 0x800
API, INTERNAL, ALLOCATE, LOCKED = 0x1000, 0x2000, 0x4000, 0x8000

PENDING, HOLD, ACTIVE, STOPPED, SUSPENDED, DONE, POWEROFF, UNDEPLOYED, CLONING_FAILURE = 1, 2, 3, 4, 5, 6, 8, 9, 11
PROLOG, BOOT, RUNNING, EPILOG, SHUTDOWN, UNKNOWN = 1, 2, 3, 11, 12, 16
NAMES = {1: "PROLOG", 2: "BOOT", 3: "RUNNING", 11: "EPILOG", 12: "SHUTDOWN", 16: "UNKNOWN", 17: "HOTPLUG"}
FAILURES = {"BOOT_FAILURE": 36, "PROLOG_FAILURE": 39}

USERS: dict[str, list[Any]] = {"oneadmin": ["opennebula", 0], "ada": ["s3cr3t:with:colons", 2], "bob": ["b0b", 3]}
"""User -> password and number."""

TEMPLATES: dict[str, dict[str, Any]] = {
    "0": {
        "name": "node",
        "uid": 0,
        "xml": "<TEMPLATE><CPU>1</CPU><MEMORY>512</MEMORY><DISK><IMAGE>debian</IMAGE><CACHE>none</CACHE></DISK>"
        "<NIC><NETWORK>lan</NETWORK></NIC><SCHED_REQUIREMENTS>ARCH = x86_64</SCHED_REQUIREMENTS>"
        "<CONTEXT><TOKEN>YES</TOKEN><SSH_PUBLIC_KEY>$USER[SSH_PUBLIC_KEY]</SSH_PUBLIC_KEY>"
        "<START_SCRIPT>echo theirs</START_SCRIPT></CONTEXT></TEMPLATE>",
    },
    "1": {"name": "twice", "uid": 0, "xml": "<TEMPLATE/>"},
    "2": {"name": "twice", "uid": 2, "xml": "<TEMPLATE><DISK><IMAGE>not-there</IMAGE></DISK></TEMPLATE>"},
    "3": {"name": "both", "uid": 0, "xml": "<TEMPLATE/>"},
    "4": {"name": "both", "uid": 3, "xml": "<TEMPLATE/>"},
    "5": {
        "name": "gpus",
        "uid": 0,
        "xml": "<TEMPLATE><PCI><VENDOR>10de</VENDOR><DEVICE>1eb8</DEVICE></PCI><PCI><VENDOR>10DE</VENDOR>"
        "<DEVICE>1EB8</DEVICE><CLASS>0302</CLASS></PCI><PCI><TYPE>NIC</TYPE><NETWORK>lan</NETWORK></PCI></TEMPLATE>",
    },
}

CONFIG: dict[str, Any] = {
    "pending": 0.0,  # seconds in each state
    "prolog": 0.05,
    "boot": 0.05,
    "epilog": 0.05,
    "quota": None,  # machines of one user
    "hosts": None,  # machines that fit; others stay pending
    "leases": None,  # addresses of the network
    "slow": {},  # method -> seconds before it is carried out
    "lost": {},  # method -> how many answers are lost after the call was carried out
    "dropped": {},  # method -> how many calls are dropped before they are carried out
    "fails": {},  # node -> PROLOG_FAILURE or BOOT_FAILURE
    "errors": {},  # method -> [words, code], always
    "times": True,  # the list says when a host began to prepare a machine
}


class RefusalError(Exception):
    """What oned answers instead of doing it."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.words, self.code = words, code


class Daemon:
    """The state of a cloud, and what the calls do to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self.file = folder / "state.json"
        fresh: dict[str, Any] = {"vms": {}, "next": 0, "used": {}, "calls": {}}
        self.state = json.loads(self.file.read_text()) if self.file.exists() else fresh

    @property
    def config(self) -> dict[str, Any]:
        try:
            return {**CONFIG, **json.loads((self.folder / "config.json").read_text())}
        except (OSError, ValueError):
            return CONFIG

    def save(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.state))
        part.replace(self.file)

    def once(self, kind: str, method: str, config: dict[str, Any]) -> bool:
        """True as often as the configuration says."""
        key = f"{kind} {method} {config.get('round', 0)}"
        used = self.state["used"].get(key, 0)
        if used >= config[kind].get(method, 0):
            return False
        self.state["used"][key] = used + 1
        self.save()
        return True

    def call(self, method: str, session: str, *arguments: Any) -> Any:
        name, _, password = session.partition(":")
        if USERS.get(name, [None])[0] != password:
            raise RefusalError(f"[one.{method}] User couldn't be authenticated, aborting call.", AUTHENTICATION)
        config = self.config
        if method in config["errors"]:
            words, code = config["errors"][method]
            raise RefusalError(f"[one.{method}] {words}", code)
        with self.lock:
            self.state["calls"][method] = self.state["calls"].get(method, 0) + 1
            self.advance(config)
            done: Callable[..., Any] | None = getattr(self, method.replace(".", "_"), None)
            if done is None:
                raise xmlrpc.client.Fault(-506, f"Method 'one.{method}' not defined")
            answer = done(int(USERS[name][1]), *arguments)
            self.save()
            return answer

    # -- time ----------------------------------------------------------------------------------------------------

    def advance(self, config: dict[str, Any]) -> None:
        """Let time do its work on all machines."""
        now = time.time()
        for vm in sorted(self.state["vms"].values(), key=lambda vm: int(vm["id"])):
            while self.step(vm, now, config):
                pass

    def step(self, vm: dict[str, Any], now: float, config: dict[str, Any]) -> bool:
        state, lcm, since = vm["state"], vm["lcm"], vm["since"]
        at = self.action_time(vm)
        if at is not None and now >= at and state != DONE:
            try:
                self.terminate(vm)
                return True
            except RefusalError:
                pass
        if state == PENDING and now >= since + config["pending"]:
            busy = sum(each["state"] in (ACTIVE, POWEROFF, SUSPENDED) for each in self.state["vms"].values())
            if config["hosts"] is not None and busy >= config["hosts"]:
                vm["message"] = "Cannot dispatch VM: No host with enough capacity to deploy the VM"
                return False
            vm["pstime"] = now
            self.to(vm, ACTIVE, PROLOG, now)
        elif (state, lcm) == (ACTIVE, PROLOG) and now >= since + config["prolog"]:
            if self.fails(vm, "PROLOG_FAILURE", config, now):
                return False
            self.to(vm, ACTIVE, BOOT, since + config["prolog"])
        elif (state, lcm) == (ACTIVE, BOOT) and now >= since + config["boot"]:
            if self.fails(vm, "BOOT_FAILURE", config, now):
                return False
            vm["rstime"] = since + config["boot"]
            self.to(vm, ACTIVE, RUNNING, since + config["boot"])
        elif (state, lcm) == (ACTIVE, EPILOG) and now >= since + config["epilog"]:
            self.to(vm, DONE, 0, since + config["epilog"])
        else:
            return False
        return True

    def fails(self, vm: dict[str, Any], name: str, config: dict[str, Any], now: float) -> bool:
        if config["fails"].get(self.tag(vm, "TRADEWIND_NODE")) != name:
            return False
        vm["error"] = "Error executing image transfer script: Error copying image"
        self.to(vm, ACTIVE, FAILURES[name], now)
        return True

    def to(self, vm: dict[str, Any], state: int, lcm: int, since: float) -> None:
        vm.update(state=state, lcm=lcm, since=since)

    def tag(self, vm: dict[str, Any], name: str) -> str:
        return ElementTree.fromstring(vm["extra"]).findtext(name) or ""

    def action_time(self, vm: dict[str, Any]) -> float | None:
        text = ElementTree.fromstring(vm["extra"]).findtext("SCHED_ACTION/TIME")
        return float(text) if text else None

    def terminate(self, vm: dict[str, Any]) -> None:
        """What DispatchManager::terminate does in each state."""
        now = time.time()
        if vm["state"] in (POWEROFF, SUSPENDED, STOPPED, UNDEPLOYED):
            self.to(vm, ACTIVE, EPILOG, now)
        elif vm["state"] in (0, PENDING, HOLD, 10, CLONING_FAILURE):
            self.to(vm, DONE, 0, now)
        elif vm["state"] == ACTIVE:
            if vm["lcm"] not in (RUNNING, UNKNOWN, SHUTDOWN, *FAILURES.values()):
                words = f"Could not terminate VM {vm['id']}, wrong state {NAMES.get(vm['lcm'], vm['lcm'])}."
                raise RefusalError(f'[one.vm.action] Error performing action "terminate-hard": {words}', ACTION)
            self.to(vm, ACTIVE, EPILOG, now)

    # -- calls ---------------------------------------------------------------------------------------------------

    def system_version(self, uid: int) -> str:
        return "6.10.0"

    def machines_forget(self, uid: int) -> str:
        """No call of oned's: the tests forget their machines by it."""
        self.state.update(vms={}, calls={}, used={})
        return ""

    def templatepool_info(self, uid: int, whose: int, start: int, end: int) -> str:
        rows = [self.template_xml(number, each, short=True) for number, each in TEMPLATES.items()]
        return f"<VMTEMPLATE_POOL>{''.join(rows)}</VMTEMPLATE_POOL>"

    def template_info(self, uid: int, number: int, extended: bool = False, decrypt: bool = False) -> str:
        if str(number) not in TEMPLATES:
            raise RefusalError(f"[one.template.info] Error getting virtual machine template [{number}].", NO_EXISTS)
        return self.template_xml(str(number), TEMPLATES[str(number)])

    def template_xml(self, number: str, each: dict[str, Any], short: bool = False) -> str:
        owner = next(name for name, row in USERS.items() if row[1] == each["uid"])
        return (
            f"<VMTEMPLATE><ID>{number}</ID><UID>{each['uid']}</UID><GID>0</GID><UNAME>{owner}</UNAME>"
            f"<NAME>{each['name']}</NAME>{each['xml']}</VMTEMPLATE>"
        )

    def template_instantiate(self, uid: int, number: int, name: str, hold: bool, extra: str, persistent: bool) -> int:
        where = "[one.template.instantiate]"
        if str(number) not in TEMPLATES:
            raise RefusalError(f"{where} Error getting virtual machine template [{number}].", NO_EXISTS)
        try:
            document = ElementTree.fromstring(extra)
        except ElementTree.ParseError as error:
            raise RefusalError(f"{where} Cannot parse the template: {error}", INTERNAL) from None
        config = self.config
        alive = [vm for vm in self.state["vms"].values() if vm["state"] != DONE]
        own = sum(vm["uid"] == uid for vm in alive)
        if config["quota"] is not None and own >= config["quota"]:
            words = f"user [{uid}] limit of {config['quota']} reached for VMS quota in VM."
            raise RefusalError(f"{where} User [{uid}] : {words}", AUTHORIZATION)
        base = ElementTree.fromstring(TEMPLATES[str(number)]["xml"])
        disk = document.findtext("DISK/IMAGE") or base.findtext("DISK/IMAGE")
        if disk not in (None, "debian"):
            words = (
                f"User {uid} does not own an image with name: {disk} . Set IMAGE_UNAME or IMAGE_UID of owner in DISK."
            )
            raise RefusalError(f"{where} Error allocating a new virtual machine. {words}", ALLOCATE)
        network = document.findtext("NIC/NETWORK")
        if network not in (None, "lan"):
            words = f"User {uid} does not own a network with name: {network} . Set NETWORK_UNAME or NETWORK_UID."
            raise RefusalError(f"{where} Error allocating a new virtual machine. {words}", ALLOCATE)
        if config["leases"] is not None and len(alive) >= config["leases"]:
            words = "Cannot get IP/MAC lease from virtual network 0."
            raise RefusalError(f"{where} Error allocating a new virtual machine. {words}", ALLOCATE)
        number = self.state["next"]
        self.state["next"] += 1
        now = time.time()
        self.state["vms"][str(number)] = {
            "id": number, "uid": uid, "name": name, "extra": extra, "state": HOLD if hold else PENDING, "lcm": 0,
            "stime": now, "since": now, "pstime": 0, "rstime": 0, "message": "", "error": "", "updates": "",
        }  # fmt: skip
        return number

    def vm(self, uid: int, number: int, method: str) -> dict[str, Any]:
        vm: dict[str, Any] | None = self.state["vms"].get(str(number))
        if vm is None:
            raise RefusalError(f"[{method}] Error getting virtual machine [{number}].", NO_EXISTS)
        if uid not in (0, vm["uid"]):
            words = f"User [{uid}] : Not authorized to perform MANAGE VM [{number}]."
            raise RefusalError(f"[{method}] {words}", AUTHORIZATION)
        return vm

    def vm_info(self, uid: int, number: int, decrypt: bool = False) -> str:
        return self.vm_xml(self.vm(uid, number, "one.vm.info"))

    def vm_action(self, uid: int, action: str, number: int) -> int:
        vm = self.vm(uid, number, "one.vm.action")
        wrong = f'[one.vm.action] Error performing action "{action}": This action is not available for state '
        if action == "terminate-hard":
            self.terminate(vm)
        elif action == "release":
            if vm["state"] != HOLD:
                raise RefusalError(wrong + NAMES.get(vm["lcm"], str(vm["state"])), ACTION)
            self.to(vm, PENDING, 0, time.time())
        elif action in ("poweroff-hard", "undeploy-hard", "suspend"):
            if (vm["state"], vm["lcm"]) != (ACTIVE, RUNNING):
                raise RefusalError(wrong + NAMES.get(vm["lcm"], str(vm["state"])), ACTION)
            self.to(vm, {"p": POWEROFF, "u": UNDEPLOYED, "s": SUSPENDED}[action[0]], 0, time.time())
        else:
            raise RefusalError(f'[one.vm.action] Virtual machine action "{action}" is not supported', ACTION)
        self.advance(self.config)
        return number

    def vm_recover(self, uid: int, number: int, operation: int) -> int:
        vm = self.vm(uid, number, "one.vm.recover")
        if uid != 0:
            raise RefusalError(f"[one.vm.recover] User [{uid}] : Not authorized to perform ADMIN VM [{number}].", 0x200)
        assert operation == 3
        self.to(vm, DONE, 0, time.time())
        return number

    def vm_update(self, uid: int, number: int, text: str, append: int) -> int:
        vm = self.vm(uid, number, "one.vm.update")
        assert append == 1
        vm["updates"] += "".join(
            ElementTree.tostring(each, encoding="unicode") for each in ElementTree.fromstring(text)
        )
        return number

    def vmpool_infoextended(self, uid: int, whose: int, start: int, end: int, state: int) -> str:
        return self.pool(uid, whose, start, end, state, short=False)

    def vmpool_info(self, uid: int, whose: int, start: int, end: int, state: int) -> str:
        return self.pool(uid, whose, start, end, state, short=True)

    def pool(self, uid: int, whose: int, start: int, end: int, state: int, *, short: bool) -> str:
        if whose not in (-4, -3, -2, -1) and whose < 0:
            raise RefusalError("[one.vmpool.info] Incorrect filter_flag", API)
        rows = [
            vm
            for vm in sorted(self.state["vms"].values(), key=lambda vm: -int(vm["id"]))
            if (vm["state"] != DONE if state == -1 else state == -2 or vm["state"] == state)
            and (uid == vm["uid"] or (whose == -2 and uid == 0))
        ]
        if end < -1:
            rows = rows[start : start - end]
        elif start >= 0:
            rows = [vm for vm in rows if start <= int(vm["id"]) and (end == -1 or int(vm["id"]) <= end)]
        return f"<VM_POOL>{''.join(self.vm_xml(vm, short=short) for vm in rows)}</VM_POOL>"

    def vm_xml(self, vm: dict[str, Any], *, short: bool = False) -> str:
        owner = next(name for name, row in USERS.items() if row[1] == vm["uid"])
        root = ElementTree.fromstring(vm["extra"])
        known = {"CPU", "VCPU", "MEMORY", "DISK", "NIC", "CONTEXT", "SCHED_ACTION"}
        own = "".join(ElementTree.tostring(each, encoding="unicode") for each in root if each.tag not in known)
        base = "".join(ElementTree.tostring(each, encoding="unicode") for each in root if each.tag in known - {"NIC"})
        own += vm["updates"]
        for name in ("error", "message"):
            if vm[name]:
                own += f"<{'ERROR' if name == 'error' else 'SCHED_MESSAGE'}>{vm[name]}</{'ERROR' if name == 'error' else 'SCHED_MESSAGE'}>"  # noqa: E501
        history = ""
        if vm["pstime"] and self.config["times"]:
            history = (
                f"<HISTORY><OID>{vm['id']}</OID><SEQ>0</SEQ><HOSTNAME>host</HOSTNAME><STIME>{int(vm['pstime'])}</STIME>"
                f"<ETIME>0</ETIME><PSTIME>{int(vm['pstime'])}</PSTIME><RSTIME>{int(vm['rstime'])}</RSTIME></HISTORY>"
            )
        if short:
            own = re.sub(r"<TRADEWIND_\w+>.*?</TRADEWIND_\w+>", "", own)
        nic = "<NIC><IP>127.0.0.1</IP><NETWORK>lan</NETWORK><NETWORK_ID>0</NETWORK_ID></NIC>"
        return (
            f"<VM><ID>{vm['id']}</ID><UID>{vm['uid']}</UID><GID>1</GID><UNAME>{owner}</UNAME><GNAME>users</GNAME>"
            f"<NAME>{vm['name']}</NAME><LAST_POLL>0</LAST_POLL><STATE>{vm['state']}</STATE>"
            f"<LCM_STATE>{vm['lcm']}</LCM_STATE><PREV_STATE>0</PREV_STATE><RESCHED>0</RESCHED>"
            f"<STIME>{int(vm['stime'])}</STIME><ETIME>0</ETIME><DEPLOY_ID/><MONITORING/>"
            f"<TEMPLATE>{base}{nic}</TEMPLATE><USER_TEMPLATE>{own}</USER_TEMPLATE>"
            f"<HISTORY_RECORDS>{history}</HISTORY_RECORDS></VM>"
        )


def _plain(value: Any) -> Any:
    return value


class Handler(BaseHTTPRequestHandler):
    """One call."""

    daemon: Daemon
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        arguments, method = xmlrpc.client.loads(text)
        name = (method or "").removeprefix("one.")
        config = self.daemon.config
        if self.daemon.once("dropped", name, config):
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        time.sleep(config["slow"].get(name, 0))
        try:
            try:
                answer: list[Any] = [True, self.daemon.call(name, *map(_plain, arguments)), SUCCESS]
            except RefusalError as refusal:
                answer = [False, refusal.words, refusal.code]
            body = xmlrpc.client.dumps((answer,), methodresponse=True)
        except xmlrpc.client.Fault as fault:
            body = xmlrpc.client.dumps(fault, methodresponse=True)
        if self.daemon.once("lost", name, config):
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: object) -> None:
        pass


def serve(folder: Path, port: int) -> None:
    """Serve until the end."""
    Handler.daemon = Daemon(folder)
    ThreadingHTTPServer.request_queue_size = 64
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    (folder / "ready").write_text(str(server.server_address[1]))
    server.serve_forever()


class Oned:
    """A running oned.

    Args:
        folder: Where it keeps its state.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._round = 0
        self.config()
        self.start()

    @property
    def endpoint(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}/RPC2"

    def start(self) -> None:
        """Start it, on the port that it had."""
        from tests.waiting import eventually

        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-S", __file__, str(self.folder), str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": ""})
        eventually(lambda: ready.exists() and ready.read_text(), 20, "the server like oned", self.folder / "log")
        self.port = int(ready.read_text())

    def kill(self) -> None:
        """Kill it with signal 9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def config(self, **changes: Any) -> None:
        """Set times, limits and faults; what is not named is as usual again."""
        self._round += 1
        part = self.folder / "config.part"
        part.write_text(json.dumps({**changes, "round": self._round}))
        part.replace(self.folder / "config.json")

    def state(self) -> dict[str, Any]:
        """All that it knows."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        except OSError:
            return {"vms": {}, "calls": {}}
        return found

    def call(self, method: str, *arguments: Any, user: str = "oneadmin") -> Any:
        """What a call of a user answers, whatever it is."""
        proxy: Any = xmlrpc.client.ServerProxy(self.endpoint)
        with proxy:
            return getattr(proxy.one, method)(f"{user}:{USERS[user][0]}", *arguments)

    def alive(self) -> list[dict[str, Any]]:
        """The machines that are not done, after time has done its work."""
        self.call("system.version")
        return [vm for vm in self.state()["vms"].values() if vm["state"] != DONE]

    def calls(self, method: str) -> int:
        """How often a method was carried out."""
        return int(self.state()["calls"].get(method, 0))

    def empty(self) -> None:
        """Forget all machines, and be as usual."""
        self.config()
        self.call("machines.forget")


def running(folder: Path) -> Iterator[Oned]:
    """An oned that is stopped at the end."""
    oned = Oned(folder)
    try:
        yield oned
    finally:
        oned.kill()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
