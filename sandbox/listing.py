"""Lists and watches: selectors, pages, bookmarks, and what to say when history is gone."""

import base64
import bisect
import itertools
import json
import queue
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sandbox import refusals, selectors, tables
from sandbox.api import ApiError, Obj
from sandbox.kinds import Kind
from sandbox.store import Change, Key, Store, Stored


@dataclass(frozen=True)
class Selection:
    """Which objects of a kind are asked for."""

    kind: Kind
    namespace: str | None
    chosen: Callable[[Obj], bool]
    restricted: bool
    table: str | None

    def render(self, stored: Stored) -> str:
        """One object as a watch sends it."""
        if self.table is None:
            return stored.text
        version = {"resourceVersion": stored.obj["metadata"]["resourceVersion"]}
        return json.dumps(tables.table(self.kind, [stored.obj], version, self.table))


def selection(
    kind: Kind, namespace: str | None, name: str | None, query: dict[str, str], table: str | None
) -> Selection:
    """Read the selectors of a request; 400 where they cannot be read."""
    labels = selectors.parse_labels(query.get("labelSelector", ""))
    wanted = selectors.parse_fields(kind, query.get("fieldSelector", ""))

    def chosen(obj: Obj) -> bool:
        metadata = obj["metadata"]
        return (
            (name is None or metadata["name"] == name) and labels(metadata.get("labels", {})) and wanted(obj)
        )

    restricted = bool(name or query.get("labelSelector") or query.get("fieldSelector"))
    return Selection(kind, namespace, chosen, restricted, table)


def _number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        message = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise refusals.bad_request(message) from None


def _token(version: int, after: Key) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": after})
    return base64.urlsafe_b64encode(text.encode()).decode()


def _read_token(token: str) -> tuple[int, Key]:
    try:
        value = json.loads(base64.urlsafe_b64decode(token))
        return int(value["rv"]), (value["start"][0], value["start"][1])
    except (ValueError, KeyError, IndexError, TypeError):
        raise refusals.bad_request(f"continue key is not valid: {token}") from None


def collection(store: Store, asked: Selection, query: dict[str, str]) -> str:
    """The list as JSON text; 410 where the version or the page asked for is forgotten."""
    version, after = _number(query, "resourceVersion"), None
    exact = query.get("resourceVersionMatch") == "Exact"
    if token := query.get("continue"):
        version, after = _read_token(token)
        try:
            items, version = store.select_at(asked.kind.kind, asked.namespace, version)
        except ApiError as error:
            raise refusals.status(
                410,
                "The provided continue parameter is too old to display a consistent list result. You must start a "
                "new list without the continue parameter.",
                "Expired",
            ) from error
    else:
        if version is not None and version > store.version:
            raise refusals.status(
                504,
                f"Timeout: Too large resource version: {version}, current: {store.version}",
                "Timeout",
                {
                    "causes": [
                        {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                    ],
                    "retryAfterSeconds": 1,
                },
            )
        try:
            items, version = store.select_at(asked.kind.kind, asked.namespace, version if exact else None)
        except ApiError as error:
            message = "The resourceVersion for the provided list is too old."
            raise refusals.status(410, message, "Expired") from error
    metadata: Obj = {"resourceVersion": str(version)}
    limit = max(0, _number(query, "limit") or 0)
    start = bisect.bisect_right(items, after, key=lambda item: item[0]) if after is not None else 0
    rest = itertools.islice(items, start, None)
    chosen = (item for item in rest if not asked.restricted or asked.chosen(item[1].obj))
    found = list(itertools.islice(chosen, limit + 1 if limit else None))
    if limit and len(found) > limit:
        metadata["continue"] = _token(version, found[limit - 1][0])
        if not asked.restricted:
            metadata["remainingItemCount"] = len(items) - start - limit
        found = found[:limit]
    if asked.table is not None:
        return json.dumps(
            tables.table(asked.kind, (stored.obj for _, stored in found), metadata, asked.table)
        )
    head = {"kind": f"{asked.kind.kind}List", "apiVersion": asked.kind.api_version, "metadata": metadata}
    # Items of a list carry neither kind nor apiVersion; both stand first in the text of an object.
    prefix = len(
        json.dumps({"kind": asked.kind.kind, "apiVersion": asked.kind.api_version}, separators=(",", ":"))
    )
    texts = ",".join("{" + stored.text[prefix:] for _, stored in found)
    return f'{json.dumps(head)[:-1]},"items":[{texts}]}}'


def watch(store: Store, asked: Selection, query: dict[str, str], bookmark_seconds: float) -> Iterator[str]:
    """The lines of a watch; "" now and then where there is nothing to say. Ends after ``timeoutSeconds``."""
    initial = query.get("sendInitialEvents") in ("true", "1")
    since = None if initial else _number(query, "resourceVersion") or None
    bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
    end = time.monotonic() + (_number(query, "timeoutSeconds") or random.uniform(1800, 3600))
    try:
        present, version, subscription = store.subscribe([asked.kind.kind], asked.namespace, since)
    except ApiError as error:
        yield _line("ERROR", json.dumps(error.body))
        return
    try:
        for stored in present:
            if asked.chosen(stored.obj):
                yield _line("ADDED", asked.render(stored))
        if initial:
            yield _bookmark(asked.kind, version, ends_initial=True)
        next_mark = time.monotonic() + bookmark_seconds
        while time.monotonic() < end:
            try:
                change = subscription.queue.get(timeout=min(1.0, bookmark_seconds))
            except queue.Empty:
                yield ""
            else:
                if change is None:
                    return
                yield from _told(asked, change)
            if bookmarks and time.monotonic() >= next_mark:
                seen = store.caught_up(subscription)
                if seen is not None:
                    next_mark = time.monotonic() + bookmark_seconds
                    yield _bookmark(asked.kind, seen)
        if bookmarks and (seen := store.caught_up(subscription)) is not None:
            yield _bookmark(asked.kind, seen)
    finally:
        store.unsubscribe(subscription)


def _told(asked: Selection, change: Change) -> Iterator[str]:
    before = change.old is not None and asked.chosen(change.old.obj)
    after = change.type != "DELETED" and asked.chosen(change.new.obj)
    if before and after:
        yield _line("MODIFIED", asked.render(change.new))
    elif after:
        yield _line("ADDED", asked.render(change.new))
    elif before and change.old is not None:
        if change.type == "DELETED":
            yield _line("DELETED", asked.render(change.new))
        else:
            metadata = change.old.obj["metadata"] | {"resourceVersion": str(change.version)}
            yield _line("DELETED", asked.render(Stored.of(change.old.obj | {"metadata": metadata})))


def _line(type_: str, text: str) -> str:
    return f'{{"type":"{type_}","object":{text}}}\n'


def _bookmark(kind: Kind, version: int, ends_initial: bool = False) -> str:
    metadata: Obj = {"resourceVersion": str(version), "creationTimestamp": None}
    if ends_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return _line(
        "BOOKMARK", json.dumps({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
    )
