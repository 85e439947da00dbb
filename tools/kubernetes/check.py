"""Starts a real Kubernetes 1.20 on this machine, and runs the runner's tests and the guide's example on it.

    tools/kubernetes/build.sh FOLDER
    python tools/kubernetes/check.py FOLDER [words for pytest]

FOLDER/bin has the programs. It needs root, Docker and etcd (build.sh installs them), and takes some minutes. All that
it starts it stops, and its files are in a temporary folder. A bridge, twkube0, is the node's network.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.engines.docker import IMAGE, DockerEngine, image_archive  # noqa: E402
from tools.kubernetes.example import run_example  # noqa: E402

TOKEN, USER_TOKEN = "a-token-of-the-tests", "a-token-of-a-user"
ADDRESS, BRIDGE = "10.201.77.1", "twkube0"
PORTS = {"api": 16553, "etcd": 12379, "peer": 12380, "kubelet": 20250, "health": 20248}

# A process that may not lower its own out-of-memory score cannot give a container a lower one.
RUNTIME = r"""#!/bin/sh
next=
for word in "$@"; do
  if [ "$next" = yes ]; then sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$word/config.json"; fi
  if [ "$word" = --bundle ]; then next=yes; else next=; fi
done
exec runc "$@"
"""
PAUSE = "#include <unistd.h>\n#include <signal.h>\nvoid end(int n) { _exit(0); }\n"
PAUSE += "int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }\n"
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failSwapOn": False,
    "cgroupDriver": "cgroupfs",
    "maxOpenFiles": 20000,
    "makeIPTablesUtilChains": False,
    "healthzPort": PORTS["health"],
    "port": PORTS["kubelet"],
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
    "clusterDNS": [ADDRESS],
}


class Cluster:
    """The programs of a Kubernetes of one node.

    Args:
        programs: Where they are.
        folder: An empty folder.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.kubeconfig = folder / "kubeconfig"
        (folder / "docker").mkdir()
        runtime = folder / "runtime"
        runtime.write_text(RUNTIME)
        runtime.chmod(0o755)
        options = {"bridge": BRIDGE, "runtimes": {"safe": {"path": str(runtime)}}, "default-runtime": "safe"}
        self.docker = DockerEngine(folder / "docker", **options)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start everything, and wait for the node."""
        if Path(f"/sys/class/net/{BRIDGE}").exists():  # of a check that was killed
            subprocess.run(["ip", "link", "del", BRIDGE], check=True)
        subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
        subprocess.run(["ip", "addr", "add", f"{ADDRESS}/24", "dev", BRIDGE], check=True)
        subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
        self.docker.start()
        self._images()
        etcd, peer = (f"http://127.0.0.1:{PORTS[name]}" for name in ("etcd", "peer"))
        urls = [f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}"]
        urls += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
        self._launch("etcd", "--unsafe-no-fsync", f"--data-dir={self.folder}/etcd", *urls)
        self._api(etcd)
        until(lambda: self.get("/readyz") == "ok", "the API server")
        plain = ["--leader-elect=false", "--port=0", "--secure-port=0", f"--kubeconfig={self.kubeconfig}"]
        self._launch("kube-scheduler", *plain)
        key = f"--service-account-private-key-file={self.folder}/sa.key"
        self._launch("kube-controller-manager", *plain, key, "--node-monitor-grace-period=20s")
        (self.folder / "kubelet.json").write_text(json.dumps(KUBELET))
        self._launch(
            "kubelet",
            f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={self.kubeconfig}",
            f"--docker-endpoint={self.docker.host}",
            f"--docker={self.docker.host}",
            "--pod-infra-container-image=local/pause:1",
            f"--root-dir={self.folder}/kubelet",
            f"--cert-dir={self.folder}/kubelet-certificates",
            f"--node-ip={ADDRESS}",
            "--hostname-override=node-1",
            "--image-pull-progress-deadline=10s",
        )
        until(self._node_is_ready, "the node")
        until(lambda: "default" in self.get("/api/v1/namespaces/default"), "the namespace")

    def _node_is_ready(self) -> bool:
        nodes = json.loads(self.get("/api/v1/nodes") or "{}").get("items") or []
        conditions = [each for node in nodes for each in node["status"].get("conditions", ())]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _api(self, etcd: str) -> None:
        (self.folder / "tokens").write_text(f"{TOKEN},admin,1,system:masters\n{USER_TOKEN},tradewind,2\n")
        subprocess.run(["openssl", "genrsa", "-out", f"{self.folder}/sa.key", "2048"], check=True, capture_output=True)
        self._launch(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--insecure-port=0",
            f"--secure-port={PORTS['api']}",
            "--bind-address=127.0.0.1",
            f"--advertise-address={ADDRESS}",
            f"--cert-dir={self.folder}/certificates",
            f"--token-auth-file={self.folder}/tokens",
            f"--service-account-key-file={self.folder}/sa.key",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            "--service-account-issuer=https://local",
            "--service-cluster-ip-range=10.201.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--kubelet-preferred-address-types=InternalIP",
        )
        self.credentials(self.kubeconfig, TOKEN, "default")

    def credentials(self, path: Path, token: str, namespace: str) -> None:
        """Write a kubeconfig."""
        server = {"server": f"https://127.0.0.1:{PORTS['api']}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        }
        path.write_text(json.dumps(config))

    def _images(self) -> None:
        (self.folder / "pause.c").write_text(PAUSE)
        context = self.folder / "pause"
        context.mkdir()
        subprocess.run(["gcc", "-static", "-o", context / "pause", self.folder / "pause.c"], check=True)
        (context / "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
        self.docker.docker("build", "-q", "-t", "local/pause:1", str(context))
        self.docker.load_image(image_archive(self.folder / "image.tar"))
        for name in ("local/py:1", "local/busybox:1"):  # it has a static busybox and a Python
            self.docker.docker("tag", IMAGE, name)

    def _launch(self, name: str, *words: str) -> None:
        program = self.programs / name
        command = [str(program if program.exists() else shutil.which(name) or name), *words]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))

    def get(self, path: str) -> str:
        """What the API answers, or nothing."""
        return self._call("GET", path).stdout

    def send(self, method: str, path: str, body: dict[str, Any], kind: str) -> None:
        """Make or change an object."""
        done = self._call(method, path, "-f", "-H", f"Content-Type: {kind}", "-d", json.dumps(body))
        if done.returncode != 0:
            raise SystemExit(f"{method} {path}: {done.stderr}")

    def _call(self, method: str, path: str, *more: str) -> subprocess.CompletedProcess[str]:
        address = f"https://127.0.0.1:{PORTS['api']}{path}"
        words = ["curl", "-sSk", "--noproxy", "*", "--max-time", "5", "-X", method, *more]
        words += ["-H", f"Authorization: Bearer {TOKEN}", address]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def example(self) -> int:
        """Run the example of the guide as a user with the rights of the guide; its exit code."""
        place = self.folder / "example"
        place.mkdir()
        config = self.folder / "user-kubeconfig"
        self.credentials(config, USER_TOKEN, "experiments")
        return run_example(self.send, config, place)

    def stop(self) -> None:
        """Stop everything."""
        for each in reversed(self._started):
            each.terminate()
            try:
                each.wait(20)
            except subprocess.TimeoutExpired:
                each.kill()
        self.docker.remove()
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", BRIDGE], check=False)


def until(ready: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"{what} is not there after {seconds:g} s")
        time.sleep(0.2)


def main() -> int:
    """Start it, run the tests on it, stop it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    given, words = arguments.parse_known_args()
    place = Path(tempfile.mkdtemp(prefix="tw-k8s-"))
    cluster = Cluster(given.folder / "bin", place)
    try:
        cluster.start()
        command = [sys.executable, "-m", "pytest", "-n", "0", "-W", "ignore:Unverified HTTPS"]
        command += [
            f"tests/deployer/runner/kubernetes/test_{name}.py"
            for name in ("runner", "load", "channel", "checkpoints", "real")
        ] + words
        environment = {**os.environ, "TRADEWIND_ENGINES": "all", "TRADEWIND_KUBERNETES": str(cluster.kubeconfig)}
        environment["PYTHONWARNINGS"] = "ignore:Unverified HTTPS"
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode or cluster.example()
    except BaseException:
        for log in place.glob("*.log"):
            sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}\n")
        raise
    finally:
        cluster.stop()
    shutil.rmtree(place, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
