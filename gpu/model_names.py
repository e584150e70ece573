"""Names of models by Ollama's rules: `[scheme://][host/][namespace/]model[:tag]`.

Source of the rules: Ollama's own parser (types/model/name.go), and what a real server answered. Letter case is kept
for the request and ignored where names are compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu.messages import Count, Text, gettext_noop

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"
SCHEMES = ("http", "https")
MAX_PART_LENGTH = 80
MAX_HOST_LENGTH = 350

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


class ModelNameRefused(ValueError):
    """A model's name cannot be used; `text` tells the person why."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True)
class ModelName:
    """A model's name with every part filled in, in the letters that were typed. `scheme` is "" where none was."""

    host: str
    namespace: str
    model: str
    tag: str
    scheme: str = ""

    @property
    def key(self) -> str:
        """What two spellings of one model have in common."""
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}".lower()

    @property
    def shortest(self) -> str:
        """The name as Ollama lists it: without what is the default, the tag always written out, without scheme."""
        name = f"{self.model}:{self.tag}"
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{name}"
        return name if self.namespace.lower() == DEFAULT_NAMESPACE else f"{self.namespace}/{name}"

    @property
    def request(self) -> str:
        """The name as it is sent to Ollama: with the scheme, where one was typed."""
        return f"{self.scheme}://{self.shortest}" if self.scheme else self.shortest


def parse(text: str) -> ModelName:
    """Read a name as typed, blanks around it aside. Raises ModelNameRefused."""
    rest = text.strip()
    if not rest:
        raise _refused(gettext_noop("Name the model."))
    if re.search(r"\s", rest):
        raise _refused(gettext_noop("A model's name has no blanks in it."))
    if "@" in rest:
        raise _refused(gettext_noop("A model is named by its tag, not by a digest."))
    tag = DEFAULT_TAG
    if rest.rfind(":") > rest.rfind("/"):
        rest, _, tag = rest.rpartition(":")
        if not tag:
            raise _refused(gettext_noop("The tag behind the colon is missing."))
    rest, nested, model = rest.rpartition("/")
    host, named, namespace = rest.rpartition("/")
    if not model or (nested and not namespace) or (named and not host):
        raise _refused(gettext_noop("A part of the name is empty: before or behind a slash or colon."))
    scheme, colons, address = host.partition("://")
    if colons and scheme not in SCHEMES:
        raise _refused(gettext_noop("A registry is reached by http:// or https:// alone."))
    name = ModelName(
        host=(address if colons else host) if named else DEFAULT_HOST,
        namespace=namespace if nested else DEFAULT_NAMESPACE,
        model=model,
        tag=tag,
        scheme=scheme if colons else "",
    )
    _check(name)
    return name


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model. Raises ModelNameRefused."""
    return parse(one).key == parse(other).key


def _check(name: ModelName) -> None:
    if "/" in name.host:
        raise _refused(gettext_noop("The name does not have the form registry/namespace/model:tag."))
    if ":" in name.model:
        raise _refused(gettext_noop("The name has more than one tag."))
    if "." in name.namespace:
        raise _refused(
            gettext_noop(
                "“%(part)s” cannot be a namespace: a dot is allowed in a registry, a model and a tag."
            ),
            part=name.namespace,
        )
    for part, allowed, limit in (
        (name.host, _HOST, MAX_HOST_LENGTH),
        (name.namespace, _NAMESPACE, MAX_PART_LENGTH),
        (name.model, _PART, MAX_PART_LENGTH),
        (name.tag, _PART, MAX_PART_LENGTH),
    ):
        if len(part.encode("utf-8", "surrogatepass")) > limit:
            raise _refused(
                gettext_noop("A part of the name has %(length)s characters; at most %(limit)s are possible."),
                length=Count(len(part)),
                limit=Count(limit),
            )
        if not allowed.fullmatch(part):
            raise _refused(
                gettext_noop(
                    "“%(part)s” cannot be a part of the name: letters a to z, digits, “_”, “-” and “.” are allowed, "
                    "the first of them a letter, a digit or “_”."
                ),
                part=part,
            )


def _refused(msgid: str, **params: object) -> ModelNameRefused:
    return ModelNameRefused(Text(msgid, params))
