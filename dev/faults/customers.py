"""Customers of the REST API, as good ones behave: a key for every operation, repeated until it is answered."""

from __future__ import annotations

import http.client
import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from dev.http import Answer, Browser

PATIENCE_S = 120.0
TRANSIENT = (429, 500, 502, 503, 504)
IMAGE = "registry.portal.example/team/{name}:1.4.2@sha256:" + "5c1b" * 16


@dataclass
class Wish:
    """What a customer was promised: the answered order, and the intent last acknowledged."""

    name: str
    project: str
    id: str = ""
    intent: str = "run"
    image: str = ""
    delete_volume: bool = False


@dataclass
class Told:
    """What the customers saw, shared by all of them."""

    wishes: list[Wish] = field(default_factory=list)
    operations: int = 0
    retries: int = 0
    gave_up: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class GaveUp(Exception):
    """An operation was not answered within PATIENCE_S."""


class Customer(threading.Thread):
    """Orders slices one after the other and does things with them, until `stop` is set; then releases most."""

    def __init__(
        self, number: int, seed: int, url: str, token: str, project: str, told: Told, stop: threading.Event
    ) -> None:
        super().__init__(daemon=True, name=f"customer-{number}")
        self._number = number
        self._random = random.Random(f"{seed}/{number}")  # noqa: S311
        self._browser = Browser(url, token, timeout=15.0)
        self._project = project
        self._told = told
        self._stopping = stop

    def run(self) -> None:
        """Work until told to stop; an operation once begun is brought to its end."""
        mine: list[Wish] = []
        count = 0
        while not self._stopping.is_set():
            try:
                if len(mine) < 3:
                    count += 1
                    wish = self._order(f"Slice {self._number} {count}")
                    if wish is not None:
                        mine.append(wish)
                for wish in list(mine):
                    self._stopping.wait(self._random.uniform(0.0, 0.3))
                    self._act(wish, self._random.choice(("change", "stop", "start", "restart", "release")))
                    if wish.intent == "release":
                        mine.remove(wish)
            except GaveUp as error:
                with self._told.lock:
                    self._told.gave_up.append(str(error))
                return

    def _order(self, name: str) -> Wish | None:
        volume = {"size": "1Gi", "mount_path": "/data"} if self._random.random() < 0.3 else None
        image = IMAGE.format(name="app")
        body = {
            "project": self._project,
            "package": "v100-25",
            "display_name": name,
            "allow_queue": True,
            "workload": {
                "image": image,
                "command": [],
                "args": [],
                "env": [],
                "port": 8080 if self._random.random() < 0.5 else None,
                "cpu_request": "100m",
                "cpu_limit": "500m",
                "memory_request": "64Mi",
                "memory_limit": "256Mi",
                "volume": volume,
            },
        }
        wish = Wish(name, self._project, image=image)
        answer = self._until_answered("POST", "/api/v1/slices/", body, give_up_on=(409,))
        if answer is None or answer.status == 409:  # the entitlement is used up: nothing was promised
            return None
        wish.id = answer.json()["id"]
        with self._told.lock:
            self._told.wishes.append(wish)
        return wish

    def _act(self, wish: Wish, action: str) -> None:
        if action == "change":
            self._change(wish)
            return
        body: dict[str, Any] = {}
        if action == "start":
            body = {"allow_queue": True}
        if action == "release":
            body = {"delete_volume": True}
        answer = self._until_answered("POST", f"/api/v1/slices/{wish.id}/{action}/", body, give_up_on=(409,))
        if answer is not None and answer.status == 202:
            wish.intent = {"stop": "stop", "release": "release"}.get(action, "run")
            wish.delete_volume = action == "release"

    def _change(self, wish: Wish) -> None:
        image = IMAGE.format(name=f"app-{self._random.randrange(1000)}")
        while True:
            row = self._until_answered("GET", f"/api/v1/slices/{wish.id}/")
            if row is None:
                return
            answer = self._until_answered(
                "PATCH",
                f"/api/v1/slices/{wish.id}/",
                {"workload": {"image": image}, "allow_queue": True},
                {"If-Match": row.headers["ETag"], "Content-Type": "application/merge-patch+json"},
                give_up_on=(409, 412),
            )
            if answer is None or answer.status != 412:
                break
        if answer is not None and answer.status == 202:
            wish.image = image

    def _until_answered(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        give_up_on: tuple[int, ...] = (),
    ) -> Answer | None:
        """Send the same request until it is answered for good. Raises GaveUp."""
        sent = dict(headers or {})
        if method == "POST":
            sent["Idempotency-Key"] = str(uuid.UUID(int=self._random.getrandbits(128)))
        deadline = time.monotonic() + PATIENCE_S
        last = ""
        while time.monotonic() < deadline:
            try:
                answer = self._browser.call(method, path, body, sent)
            except (OSError, http.client.HTTPException) as error:
                last = repr(error)
            else:
                code = answer.json().get("code", "") if answer.status >= 400 else ""
                if answer.status < 300 or (answer.status in give_up_on and code != "idempotency_in_progress"):
                    with self._told.lock:
                        self._told.operations += 1
                    return answer
                last = f"{answer.status} {code}"
                if answer.status not in TRANSIENT and code != "idempotency_in_progress":
                    raise GaveUp(f"{method} {path}: {last} {answer.text[:300]}")
            with self._told.lock:
                self._told.retries += 1
            time.sleep(self._random.uniform(0.1, 0.5))
        raise GaveUp(f"{method} {path}: {last} for {PATIENCE_S:.0f} s")
