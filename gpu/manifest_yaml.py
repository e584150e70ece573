"""YAML of documents, for people to read, copy and give to kubectl."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

# Text that no YAML 1.1 or 1.2 reader takes for a number, date, boolean or null may stand without quotes.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*(:[A-Za-z0-9._-]+)?")
_WORDS_WITH_MEANING = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS_WITH_MEANING
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _text)


def to_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return `documents` as one YAML text, keys in their order, the same bytes for the same documents.

    PyYAML leaves text such as `1e3` and `y` without quotes, which kubectl would read as a number and a
    boolean; here only text that cannot be anything else goes without.
    """
    dumped = (
        yaml.dump(dict(d), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
        for d in documents
    )
    return "---\n".join(dumped)
