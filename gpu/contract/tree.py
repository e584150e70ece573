"""Reading a document that may hold anything, and knowing the JSON pointer of what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu.contract.finding import Finding
from gpu.messages import Text, gettext_noop


@dataclass(frozen=True)
class Node:
    """A value in a document and its JSON pointer; a key that is not there reads as None."""

    value: object
    pointer: str

    def __getitem__(self, key: str) -> Node:
        """Return what is under `key`; "a/b" goes down two steps, and keys with a slash are read by `map`."""
        node = self
        for step in key.split("/"):
            inner = node.value.get(step) if isinstance(node.value, Mapping) else None
            node = Node(inner, f"{node.pointer}/{step}")
        return node

    @property
    def map(self) -> dict[str, Node]:
        """The entries of a mapping, {} of anything else."""
        if not isinstance(self.value, Mapping):
            return {}
        return {str(k): Node(v, f"{self.pointer}/{_escape(str(k))}") for k, v in self.value.items()}

    @property
    def list(self) -> list[Node]:
        """The items of a list, [] of anything else."""
        if not isinstance(self.value, list | tuple):
            return []
        return [Node(item, f"{self.pointer}/{number}") for number, item in enumerate(self.value)]

    @property
    def text(self) -> str:
        """A text, "" of anything else."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def present(self) -> bool:
        """Whether something stands there, be it empty: how the API server sees a field that knows "not set"."""
        return self.value is not None

    @property
    def given(self) -> bool:
        """Whether something stands there that is not empty, zero or false: how it sees every other field."""
        return bool(self.value)

    @property
    def texts(self) -> dict[str, str]:
        """The entries of a map of texts."""
        return {key: node.text for key, node in self.map.items()}


def pointer_of(node: Node, key: str) -> str:
    """Return the JSON pointer of the entry `key` of a map, also when it is not there."""
    return f"{node.pointer}/{_escape(key)}"


def malformed(document: Node, shapes: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each place of `document` that is not of the kind that `shapes` gives for its path.

    A path is steps with "/"; "*" stands for each item of a list. Kinds: text, number, bool, map, list, texts (a map of
    texts), quantities (a map of quantities); with "!" behind it, it has to be there and not be empty.
    """
    reached: dict[str, list[Node]] = {}
    for path, kind in shapes.items():
        for node in _reach(document, path, reached):
            required, bare = kind.endswith("!"), kind.rstrip("!")
            if node.value is None or (required and not node.value):
                if required:
                    yield _finding("missing", node, Text(gettext_noop("Something is missing here.")))
            elif not _is(node.value, bare):
                sentence = Text(
                    gettext_noop("Kubernetes expects another kind of value here (%(kind)s)."), {"kind": bare}
                )
                yield _finding("malformed", node, sentence)


def _reach(document: Node, path: str, reached: dict[str, list[Node]]) -> list[Node]:
    """Return the nodes at `path`; none below a node that is not there, so that one fault is told once.

    `reached` holds those of the paths that were asked for: most paths are one step longer than another.
    """
    found = reached.get(path)
    if found is None:
        before, _, step = path.rpartition("/")
        nodes = _reach(document, before, reached) if before else [document]
        if step == "*":
            found = [item for node in nodes for item in node.list]
        else:
            found = [node[step] for node in nodes if isinstance(node.value, Mapping)]
        reached[path] = found
    return found


def _is(value: object, kind: str) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "map":
            return isinstance(value, Mapping)
        case "list":
            return isinstance(value, list | tuple)
        case "texts":
            # The API server reads a null in a map as an empty text, or as zero.
            return isinstance(value, Mapping) and all(isinstance(item, str | None) for item in value.values())
        case "quantities":
            return isinstance(value, Mapping) and all(
                isinstance(item, str | int | float | None) and not isinstance(item, bool)
                for item in value.values()
            )
    raise ValueError(f"no kind {kind}")


def _finding(rule: str, node: Node, sentence: Text) -> Finding:
    return Finding(
        rule,
        node.pointer,
        sentence,
        Text(gettext_noop("Compare it with a manifest of the portal.")),
        by="platform",
    )


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
