"""What a control plane lacks to run pods: the sandbox's kubelet with pretended cards, and a giver of volumes."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from dev import processes
from dev.controlplane.client import Client, Obj, Refused
from dev.controlplane.cluster import ControlPlane, StartError

ROOT = Path(__file__).resolve().parent.parent.parent
STORAGE_CLASS = "standard"
_PROVISIONER = "pretended.gpu-portal"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""What the scheduler writes on a claim once it knows where its pod will run."""

_PAUSE = 1.0
_START_SECONDS = 30.0


class Nodes:
    """Two nodes with a card each, of a control plane that runs. `stop()` ends what was started here."""

    def __init__(self, plane: ControlPlane) -> None:
        """Start them and wait until both are ready. Raises StartError, Refused."""
        self._log = plane.folder / "logs" / "kubelet.log"
        token = plane.folder / "kubelet.token"
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(plane.token("kubelet"))
        self._kubelet: subprocess.Popen[bytes] = processes.spawn(
            [sys.executable, "-m", "sandbox.kubelet", "--server", plane.server,
             "--token-file", str(token), "--ca", str(plane.folder / "pki" / "ca.crt")],
            log=self._log, cwd=ROOT,
        )  # fmt: skip
        self._stop = threading.Event()
        self._volumes = threading.Thread(target=_give_volumes, args=(plane.client(), self._stop), daemon=True)
        try:
            _make_storage_class(plane.client())
            self._volumes.start()
            self._wait(plane.client())
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raise StartError where the kubelet has ended."""
        if processes.exit_code(self._kubelet) is not None:
            raise StartError(f"The kubelet has ended. Log: {self._log}")

    def stop(self) -> None:
        """End the kubelet and the giver of volumes."""
        self._stop.set()
        processes.stop(self._kubelet)
        if self._volumes.ident is not None:
            self._volumes.join()

    def _wait(self, client: Client) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while len([node for node in client.items("v1", "Node") if _is_ready(node)]) < 2:
            self.check()
            if time.monotonic() > deadline:
                raise StartError(f"The nodes are not ready. Log: {self._log}")
            time.sleep(0.1)


def _is_ready(node: Obj) -> bool:
    ready = any(
        one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", [])
    )
    return ready and not node["spec"].get("taints")


def _make_storage_class(client: Client) -> None:
    answer = client.apply(
        {
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": _PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        }
    )  # fmt: skip
    if not answer.ok:
        raise Refused(answer.message)


def _give_volumes(client: Client, stop: threading.Event) -> None:
    """Make a volume for each claim of the class that has none, and remove those whose claim is gone."""
    while not stop.wait(_PAUSE):
        # The API server may be away, or be killed by a test: the next round looks again.
        with contextlib.suppress(OSError, http.client.HTTPException, Refused):
            for claim in client.items("v1", "PersistentVolumeClaim"):
                spec, annotations = claim["spec"], claim["metadata"].get("annotations", {})
                wanted = spec.get("storageClassName") == STORAGE_CLASS and not spec.get("volumeName")
                if wanted and _SELECTED_NODE in annotations:
                    client.create(_volume(claim))
            for volume in client.items("v1", "PersistentVolume"):
                if volume.get("status", {}).get("phase") == "Released":
                    client.delete("v1", "PersistentVolume", None, volume["metadata"]["name"])


def _volume(claim: Obj) -> Obj:
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    reference = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"],
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": _PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"], "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS, "claimRef": reference,
            "csi": {"driver": _PROVISIONER, "volumeHandle": name},
        },
    }  # fmt: skip
