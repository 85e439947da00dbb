"""moto, which plays Amazon EC2, behind a proxy that can be told to refuse, and Terraform's provider for Amazon."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.engines.ssh import free_port
from tests.waiting import eventually

from tradewind.deployer.provisioner.terraform.aws import Ec2Client, filters

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".venv-terraform"
DEBIAN = "ami-0debian12"
_ALIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]


class Moto:
    """A server that plays Amazon EC2.

    Attributes:
        endpoint: Its address, through a proxy.
        refusals: (region, action) -> code and message that the proxy answers with instead of asking moto. A refusal
            that is a function gets the parameters of the request, and may answer None.
        asked: (region, action) of each request.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refusals: dict[tuple[str, str], tuple[str, str] | Callable[[dict[str, str]], tuple[str, str] | None]] = {}
        self.asked: list[tuple[str, str]] = []
        self.port = free_port()
        self._log = folder / "moto.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._proxy.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._proxy.server_address[1]}"
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        images = self.folder / "images.json"
        name, owner = "debian-12-amd64-20260101-1", "136693071363"
        image: dict[str, Any] = {"ami_id": DEBIAN, "name": name, "owner_id": owner, "architecture": "x86_64"}
        image |= {"public": True, "virtualization_type": "hvm", "root_device_name": "/dev/xvda", "state": "available"}
        image |= {"image_location": name, "root_device_type": "ebs", "hypervisor": "xen", "description": "Debian 12"}
        image |= {"platform": None, "sriov": "simple", "creation_date": "2026-01-01T00:00:00.000Z"}
        image |= {"image_type": "machine"}
        images.write_text(json.dumps([image]))
        command = [str(PLACE / "bin/python"), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "MOTO_AMIS_PATH": str(images)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._answers, 60, "moto", self._log)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/moto-api/", timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """End the server at once; what it knew is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End everything."""
        self.kill()
        self._proxy.shutdown()
        self._proxy.server_close()

    def machines(self, region: str, run_id: str = "") -> list[str]:
        """The ids of all machines in a region that are not terminated, by moto's own word."""
        ec2 = Ec2Client(f"http://127.0.0.1:{self.port}")
        wanted = filters(instance_state_name=_ALIVE)
        if run_id:
            wanted.append({"Name": "tag:tradewind-run", "Values": [run_id]})
        reservations = ec2.all(region, "DescribeInstances", Filters=wanted)
        return [i["InstanceId"] for r in reservations for i in r["Instances"]]

    def leftovers(self, region: str) -> list[str]:
        """All that is in a region and was not there from the beginning."""
        ec2 = Ec2Client(f"http://127.0.0.1:{self.port}")
        groups = [g["GroupName"] for g in ec2.all(region, "DescribeSecurityGroups")]
        volumes = [v["VolumeId"] for v in ec2.all(region, "DescribeVolumes")]
        requests = ec2.all(region, "DescribeSpotInstanceRequests")
        spot = [r["SpotInstanceRequestId"] for r in requests if r["State"] in ("open", "active")]
        return [*self.machines(region), *(g for g in groups if g != "default"), *volumes, *spot]


def _handler(moto: Moto) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            parameters = dict(urllib.parse.parse_qsl(body.decode()))
            scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/", self.headers.get("authorization", ""))
            place = (scope.group(1) if scope else "", parameters.get("Action", ""))
            moto.asked.append(place)
            refusal = moto.refusals.get(place)
            words = refusal(parameters) if callable(refusal) else refusal
            if words is not None:
                code, message = words
                error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
                self._answer(400, f"<Response><Errors>{error}</Errors></Response>".encode())
                return
            kept = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "accept-encoding")}
            request = urllib.request.Request(f"http://127.0.0.1:{moto.port}/", data=body, headers=kept)
            try:
                with urllib.request.urlopen(request, timeout=60) as answered:
                    self._answer(answered.status, answered.read())
            except urllib.error.HTTPError as error:
                self._answer(error.code, error.read())
            except OSError:
                self.close_connection = True

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "text/xml")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _program() -> str | None:
    return shutil.which("terraform") or shutil.which("tofu") or shutil.which("terraform", path=str(PLACE / "bin"))


def program_or_skip() -> str:
    """The path of Terraform; without one the test is skipped, loudly."""
    found = _program()
    if found is None:
        message = "!!! ENGINE MISSING: there is no Terraform: bash tools/terraform_engine.sh"
        pytest.skip(message)
    return found


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """Start moto, unless something is missing: then that is said and the tests are skipped."""
    folder = tmp_path_factory.mktemp("moto")
    if _program() is None or not (PLACE / "mirror").is_dir():
        message = "!!! ENGINE MISSING: there is no Terraform, or no moto: bash tools/terraform_engine.sh"
        pytest.skip(message)
    server = Moto(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()


def environment(folder: Path) -> dict[str, str]:
    """What Terraform needs in its environment to use moto: credentials, and the provider from the mirror."""
    config = folder / "terraform.rc"
    mirror = f'filesystem_mirror {{ path = "{PLACE / "mirror"}" }}'
    config.write_text(f"provider_installation {{\n  {mirror}\n}}\ndisable_checkpoint = true\n")
    program = _program()
    assert program is not None
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        "TF_CLI_CONFIG_FILE": str(config),
        "PATH": f"{Path(program).parent}:{os.environ['PATH']}",
    }
