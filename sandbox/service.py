"""What a request does, between the HTTP connection and the registry."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from sandbox import listing, logs, refusals, routes, scale, tables
from sandbox.api import Obj
from sandbox.auth import ADMIN_GROUP, Attempt, Auth, User
from sandbox.discovery import Discovery
from sandbox.faults import Faults
from sandbox.registry import Registry
from sandbox.routes import Target
from sandbox.store import Stored
from sandbox.writes import Call, Deletion

_OPEN = ("/version", "/version/")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BLOCKED = ("exec", "attach", "portforward", "proxy")


@dataclass(frozen=True)
class Request:
    """A request with its body read. ``silent``: a watch that is to say nothing."""

    method: str
    path: str
    query: dict[str, str]
    headers: Message
    body: Any
    silent: bool = False

    @property
    def table(self) -> str | None:
        """The includeObject parameter where the client asked for a table."""
        wanted = "as=Table" in self.headers.get("Accept", "")
        return self.query.get("includeObject", "Metadata") if wanted else None

    @property
    def manager(self) -> str:
        """The field manager: the parameter, else the client's name."""
        agent = self.headers.get("User-Agent", "unknown").split("/")[0]
        return (self.query.get("fieldManager") or agent or "unknown")[:128]


@dataclass
class Answer:
    """A text, or a stream of them."""

    code: int
    text: str = ""
    stream: Iterator[str] | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Service:
    """Answers requests for one sandbox."""

    def __init__(self, registry: Registry, auth: Auth, bookmark_seconds: float = 5.0) -> None:
        self.registry = registry
        self.store = registry.store
        self.faults = Faults()
        self._auth = auth
        self._discovery = Discovery(registry.schema)
        self._bookmark_seconds = bookmark_seconds
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End silent watches."""
        self._stopping.set()

    def handle(self, request: Request) -> Answer:
        """Carry a request out; ApiError where it is refused."""
        if routes.is_health(request.path):
            return Answer(200, "ok", content_type="text/plain")
        user = None if request.path in _OPEN else self._auth.user(request.headers)
        if user is not None and request.path.startswith("/sandbox/"):
            return self._control(request, user)
        found = self._discovery.answer(request.path) if request.method == "GET" else None
        if found is not None:
            return Answer(200, json.dumps(found))
        target = routes.parse(request.path)
        if target is None or user is None:
            raise refusals.no_such_path()
        self._authorize(request, target, user)
        if target.kind.kind == "SelfSubjectAccessReview":
            return self._review(request, user)
        if request.method == "GET":
            return self._read(request, target)
        return self._write(request, target, user)

    def _control(self, request: Request, user: User) -> Answer:
        if ADMIN_GROUP not in user.groups:
            raise refusals.status(403, f'User "{user.name}" cannot use the controls of the sandbox')
        match request.method, request.path:
            case "POST", "/sandbox/faults":
                body = request.body if isinstance(request.body, dict) else {}
                self.faults.set(body.get("faults", []))
                if body.get("compact"):
                    self.store.compact()
            case "DELETE", "/sandbox/faults":
                self.faults.set([])
            case "POST", "/sandbox/compact":
                self.store.compact()
            case "GET", "/sandbox/faults":
                pass
            case _:
                raise refusals.no_such_path()
        return Answer(200, json.dumps({"faults": self.faults.report(), "compacted": self.store.compacted}))

    def _authorize(self, request: Request, target: Target, user: User) -> None:
        if request.method == "GET":
            single = target.name is not None
            watching = request.query.get("watch") in ("true", "1")
            verb = "watch" if watching else "get" if single else "list"
        else:
            verb = _VERBS.get(request.method, "get")
            if verb == "delete" and target.name is None:
                verb = "deletecollection"
        kind, name = target.kind, target.name or ""
        attempt = Attempt(verb, kind.group, kind.plural, target.sub, target.namespace or "", name)
        # A namespace is authorized inside itself.
        if kind.kind == "Namespace":
            attempt = Attempt(verb, kind.group, kind.plural, target.sub, name, name)
        self._auth.check(user, kind, attempt)
        if verb not in (*kind.verbs, "get"):
            raise refusals.not_here()

    def _review(self, request: Request, user: User) -> Answer:
        body = request.body if isinstance(request.body, dict) else {}
        spec = body.get("spec", {})
        answer = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        review = answer | {"metadata": {}, "spec": spec, "status": self._auth.review(user, spec)}
        return Answer(201, json.dumps(review))

    def _read(self, request: Request, target: Target) -> Answer:
        kind, query = target.kind, request.query
        if target.sub in _BLOCKED:
            raise refusals.bad_request("the sandbox runs no processes: there is nothing to connect to")
        if query.get("watch") in ("true", "1"):
            chosen = listing.selection(kind, target.namespace, target.name, query, request.table)
            if request.silent:
                return Answer(200, stream=self._silence(query))
            return Answer(200, stream=listing.watch(self.store, chosen, query, self._bookmark_seconds))
        if target.name is None:
            chosen = listing.selection(kind, target.namespace, None, query, request.table)
            return Answer(200, listing.collection(self.store, chosen, query))
        stored = self.registry.get(kind, target.namespace or "", target.name)
        if target.sub == "log" and kind.kind == "Pod":
            return self._log(stored.obj, query)
        if target.sub == "scale" and "scale" in kind.subresources:
            return Answer(200, json.dumps(scale.of(stored.obj)))
        if target.sub not in ("", "status"):
            raise refusals.no_such_path()
        return self._shown(request, target, stored, 200)

    def _log(self, pod: Obj, query: dict[str, str]) -> Answer:
        container = logs.container_of(pod, query.get("container") or None)
        if query.get("follow") in ("true", "1"):
            logs.text(self.store, pod, container, query)
            stream = logs.follow(self.store, pod, container, query)
            return Answer(200, stream=stream, content_type="text/plain")
        return Answer(200, logs.text(self.store, pod, container, query), content_type="text/plain")

    def _silence(self, query: dict[str, str]) -> Iterator[str]:
        end = time.monotonic() + float(query.get("timeoutSeconds") or 3600)
        while time.monotonic() < end and not self._stopping.wait(0.5):
            yield ""

    def _write(self, request: Request, target: Target, user: User) -> Answer:
        query = request.query
        call = Call(
            user.info(),
            request.manager,
            dry_run="dryRun" in query,
            force=query.get("force") in ("true", "1"),
            validation=query.get("fieldValidation") or "Warn",
        )
        kind, space, name, sub = target.kind, target.namespace or "", target.name, target.sub
        if query.get("dryRun", "All") != "All":
            raise refusals.no_such_dry_run(request.method, query["dryRun"])
        if sub == "scale" and name is not None and "scale" in kind.subresources:
            return self._scale(request, target, call)
        if sub not in ("", "status") or (sub == "status" and not kind.status):
            raise refusals.no_such_path()
        if kind.namespaced and not space:
            raise refusals.not_here()
        match request.method:
            case "POST" if name is None:
                stored = self.registry.create(kind, space, request.body, call)
                answer = self._shown(request, target, stored, 201)
            case "PUT" if name is not None:
                stored = self.registry.update(kind, space, name, request.body, call, sub)
                answer = self._shown(request, target, stored, 200)
            case "PATCH" if name is not None:
                answer = self._patch(request, target, call)
            case "DELETE":
                answer = self._delete(request, target, call)
            case _:
                raise refusals.not_here()
        answer.warnings = call.warnings
        return answer

    def _patch(self, request: Request, target: Target, call: Call) -> Answer:
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if content_type == "application/apply-patch+yaml" and not request.query.get("fieldManager"):
            raise refusals.no_field_manager()
        allowed = ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
        if content_type.removeprefix("application/") not in allowed:
            raise refusals.status(415, "415: Unsupported Media Type", details={})
        stored, created = self.registry.patch(
            target.kind,
            target.namespace or "",
            target.name or "",
            content_type,
            request.body,
            call,
            target.sub,
        )
        return self._shown(request, target, stored, 201 if created else 200)

    def _scale(self, request: Request, target: Target, call: Call) -> Answer:
        kind, space, name = target.kind, target.namespace or "", target.name or ""
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        stored = self.registry.get(kind, space, name)
        replicas = scale.wanted(stored.obj, request.method, content_type, request.body)
        change = {"spec": {"replicas": replicas}}
        stored, _ = self.registry.patch(kind, space, name, "application/merge-patch+json", change, call)
        return Answer(200, json.dumps(scale.of(stored.obj)), warnings=call.warnings)

    def _delete(self, request: Request, target: Target, call: Call) -> Answer:
        body = request.body if isinstance(request.body, dict) else {}
        conditions = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
        propagation = body.get("propagationPolicy") or request.query.get("propagationPolicy")
        orphan = body.get("orphanDependents")
        if orphan is not None and propagation is None:
            propagation = "Orphan" if orphan else "Background"
        options = Deletion(
            conditions.get("uid"),
            conditions.get("resourceVersion"),
            propagation,
            None if grace is None else int(grace),
        )
        if body.get("dryRun"):
            call = Call(call.user, call.manager, dry_run=True)
        kind, space = target.kind, target.namespace or ""
        if target.name is None:
            chosen = listing.selection(kind, target.namespace, None, request.query, None)
            for stored in self.store.select(kind.kind, target.namespace):
                if chosen.chosen(stored.obj):
                    self.registry.delete(kind, space, stored.obj["metadata"]["name"], call, options)
            metadata = {"resourceVersion": str(self.store.version)}
            empty = {
                "kind": f"{kind.kind}List",
                "apiVersion": kind.api_version,
                "metadata": metadata,
                "items": [],
            }
            return Answer(200, json.dumps(empty))
        stored, gone = self.registry.delete(kind, space, target.name, call, options)
        if gone and kind.kind != "Pod":
            return Answer(200, json.dumps(refusals.success(kind, target.name, stored.obj["metadata"]["uid"])))
        return Answer(202 if orphan is False and not gone else 200, stored.text)

    def _shown(self, request: Request, target: Target, stored: Stored, code: int) -> Answer:
        if "as=PartialObjectMetadata" in request.headers.get("Accept", ""):
            return Answer(code, json.dumps(tables.partial(stored.obj)))
        if request.table is None:
            return Answer(code, stored.text)
        version = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
        return Answer(code, json.dumps(tables.table(target.kind, [stored.obj], version, request.table)))
