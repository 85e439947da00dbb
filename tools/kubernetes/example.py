"""Runs the example of the guide to Kubernetes on a real one, with no more rights than the guide asks for.

What the guide leaves open is filled in: the image, the program, and the type of the only node.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/backends/kubernetes.md"
IMAGE, TYPE, TRIALS = "local/py:1", "local.c1", 3
_PROGRAM = """import os, sys
batch = int(sys.argv[1].partition("=")[2])
total = sum(i * i for i in range(batch * 20_000))
os.makedirs("model")
open(f"model/{batch}.bin", "wb").write(total.to_bytes(16, "big"))
print("trained with batches of", batch)
"""


def blocks(language: str) -> list[Any]:
    """The YAML documents that the guide shows, in order."""
    return [yaml.safe_load(text) for text in re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)]


def run_example(call: Callable[[str, str, dict[str, Any], str], None], kubeconfig: Path, folder: Path) -> int:
    """Give the user ``tradewind`` the rights of the guide, and search with its example.

    Args:
        call: Makes a call as the cluster's master: method, path, body, content type.
        kubeconfig: The credentials of the user ``tradewind``.
        folder: An empty folder.

    Returns:
        The exit code; what went wrong is printed.
    """
    role, job = blocks("yaml")[:2]
    namespace, plain = role["metadata"]["namespace"], "application/json"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, plain)
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    call("POST", f"{rights}/roles", role, plain)
    subject = {"kind": "User", "name": "tradewind", "apiGroup": "rbac.authorization.k8s.io"}
    of = {"kind": "Role", "name": role["metadata"]["name"], "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "tradewind"}, "subjects": [subject], "roleRef": of}
    call("POST", f"{rights}/rolebindings", binding, plain)
    labels = {"metadata": {"labels": {"node.kubernetes.io/instance-type": TYPE}}}
    call("PATCH", "/api/v1/nodes/node-1", labels, "application/merge-patch+json")
    job["job"]["image"] = IMAGE
    job["space"]["instance"] = {"provider": "local", "types": [TYPE]}
    job["deploy"]["runner"] |= {"kubeconfig": str(kubeconfig), "helper_image": "local/busybox:1"}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    (folder / "train.py").write_text(_PROGRAM)
    environment = {**os.environ, "TRADEWIND_HOME": str(folder / "home"), "PYTHONWARNINGS": "ignore:Unverified HTTPS"}
    command = [sys.executable, "-m", "tradewind", "tune", "job.yaml", "--json", "--trials", str(TRIALS)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    models = sorted(path.name for path in folder.rglob("outputs/model/*.bin"))
    wanted = sorted(f"{batch}.bin" for batch in job["space"]["batch"])
    counts = json.loads(done.stdout)["trials"] if done.returncode == 0 else {}
    if counts == {"succeeded": TRIALS} and models == wanted:
        sys.stdout.write(f"the guide's example: {TRIALS} trials succeeded and brought back {', '.join(models)}\n")
        return 0
    sys.stderr.write(f"the guide's example: {counts} {models}\n{done.stdout}\n{done.stderr}\n")
    return 1
