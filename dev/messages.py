"""Message catalogues without GNU gettext, which a fresh machine does not have.

    python -m dev.messages update     locale/de/LC_MESSAGES/django.po gets what the code says, translations are kept
    python -m dev.messages compile    django.po -> django.mo
    python -m dev.messages check      complete? exit code 1 and one line for each fault if not

Python files are read with `ast`, templates with Django's own `templatize`. Text("...") of gpu.messages counts as
marked, so that a sentence cannot be forgotten.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polib
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "locale" / "de" / "LC_MESSAGES" / "django.po"
CODE = ("portal", "tenants", "gpu", "worker")
TEMPLATES = ("templates", *CODE)

_SHAPES = {
    "gettext": ("id",),
    "ngettext": ("id", "plural"),
    "pgettext": ("context", "id"),
    "npgettext": ("context", "id", "plural"),
}
_SAME = {"ugettext": "gettext", "_": "gettext", "Text": "gettext", "gettext_noop": "gettext"}
_PLACEHOLDER = re.compile(r"%\((\w+)\)[sd]|%[sd]|\{(\w*)\}")
_TEMPLATE_CALL = re.compile(r"\b(_|n?p?gettext)\(")


@dataclass(frozen=True, order=True)
class Message:
    """One entry of a catalogue; `context` and `plural` are empty where there are none."""

    id: str
    plural: str = ""
    context: str = ""

    @classmethod
    def of(cls, entry: polib.POEntry) -> Message:
        """The message of a catalogue's entry."""
        return cls(entry.msgid, entry.msgid_plural or "", entry.msgctxt or "")


def collect(root: Path = ROOT) -> dict[Message, list[str]]:
    """Every message of the product with the files that say it, both in a fixed order."""
    found: dict[Message, set[str]] = defaultdict(set)
    for folder in CODE:
        for path in (root / folder).rglob("*.py"):
            if "migrations" not in path.parts:
                for message in python_messages(path.read_text()):
                    found[message].add(str(path.relative_to(root)))
    for folder in TEMPLATES:
        for path in (root / folder).rglob("*"):
            if path.suffix in (".html", ".txt") and "templates" in path.parts:
                for message in template_messages(path.read_text(), str(path)):
                    found[message].add(str(path.relative_to(root)))
    return {message: sorted(found[message]) for message in sorted(found)}


def python_messages(source: str) -> Iterator[Message]:
    """Messages of Python source: calls of the gettext family, under any imported name, with literal texts."""
    tree = ast.parse(source)
    names = {name: name for name in (*_SHAPES, "_", "Text")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("django.utils.translation", "gpu.messages"):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from _message(names.get(called, called), node.args)


def template_messages(source: str, origin: str) -> Iterator[Message]:
    """Messages of a Django template."""
    code = templatize(source, origin=origin)
    for call in _TEMPLATE_CALL.finditer(code):
        for end in (match.end() for match in re.finditer(r"\)", code[call.start() :])):
            try:
                parsed = ast.parse(code[call.start() : call.start() + end], mode="eval").body
            except SyntaxError:  # this bracket belongs to the text
                continue
            if isinstance(parsed, ast.Call):
                yield from _message(call[1], parsed.args)
            break


def _message(called: str, arguments: list[ast.expr]) -> Iterator[Message]:
    name = called.removesuffix("_lazy")
    shape = _SHAPES.get(_SAME.get(name, name))
    if shape is None or len(arguments) < len(shape):
        return
    texts = [part.value for part in arguments[: len(shape)] if isinstance(part, ast.Constant)]
    if len(texts) == len(shape) and all(isinstance(text, str) and text for text in texts):
        yield Message(**dict(zip(shape, map(str, texts), strict=True)))


def faults(messages: dict[Message, list[str]], catalogue: polib.POFile) -> list[str]:
    """One line for each message that is missing, left over, untranslated, fuzzy, or has other placeholders."""
    entries = {Message.of(entry): entry for entry in catalogue if not entry.obsolete}
    lines = [f"missing: {m.id!r} ({', '.join(where)})" for m, where in messages.items() if m not in entries]
    lines += [f"left over: {m.id!r}" for m in entries if m not in messages]
    for message, entry in entries.items():
        texts = list(entry.msgstr_plural.values()) if message.plural else [entry.msgstr]
        if not texts or not all(texts):
            lines.append(f"untranslated: {message.id!r}")
        elif entry.fuzzy:
            lines.append(f"fuzzy: {message.id!r}")
        else:
            known = _placeholders(message.id) | _placeholders(message.plural)
            wrong = [text for text in texts if not _same_placeholders(text, message, known)]
            lines += [f"placeholders: {message.id!r} -> {text!r}" for text in wrong]
    return lines


def _placeholders(text: str) -> set[str]:
    return {match[0] for match in _PLACEHOLDER.finditer(text.replace("%%", ""))}


def _same_placeholders(text: str, message: Message, known: set[str]) -> bool:
    # A singular may leave the number out, so plurals need only know what they name.
    have = _placeholders(text)
    return have <= known if message.plural else have == known


def update(path: Path = CATALOGUE) -> polib.POFile:
    """Write the catalogue anew: every message of the code, with the translation it had."""
    old = polib.pofile(str(path)) if path.exists() else polib.POFile()
    translations = {Message.of(entry): entry for entry in old}
    fresh = polib.POFile(wrapwidth=110)
    fresh.metadata = {
        "Project-Id-Version": "gpu-slice-portal",
        "Language": "de",
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": "nplurals=2; plural=(n != 1);",
    }
    for message, files in collect().items():
        before = translations.get(message)
        context = {"msgctxt": message.context} if message.context else {}
        entry = polib.POEntry(msgid=message.id, occurrences=[(name, "") for name in files], **context)
        if message.plural:
            entry.msgid_plural = message.plural
            entry.msgstr_plural = before.msgstr_plural if before else {0: "", 1: ""}
        elif before:
            entry.msgstr = before.msgstr
        if before:
            entry.flags, entry.tcomment = before.flags, before.tcomment
        fresh.append(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.save(str(path))
    return fresh


def compile_catalogues(root: Path = ROOT) -> int:
    """Compile every django.po below locale/ that is newer than its django.mo; returns how many there are."""
    catalogues = sorted(root.glob("locale/*/LC_MESSAGES/django.po"))
    for path in catalogues:
        compiled = path.with_suffix(".mo")
        if not compiled.exists() or compiled.stat().st_mtime <= path.stat().st_mtime:
            fresh = compiled.with_suffix(".mo.new")
            polib.pofile(str(path)).save_as_mofile(str(fresh))
            fresh.replace(compiled)
    return len(catalogues)


def main(action: str) -> int:
    """See the module."""
    if action == "compile":
        compile_catalogues()
        return 0
    if action == "update":
        catalogue = update()
        compile_catalogues()
        print(f"{len(catalogue)} messages, {len(catalogue.untranslated_entries())} untranslated: {CATALOGUE}")
        return 0
    if action == "check":
        found = collect()
        lines = faults(found, polib.pofile(str(CATALOGUE)))
        print("\n".join([*lines, f"{len(found)} messages, {len(lines)} faults"]))
        return 1 if lines else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
