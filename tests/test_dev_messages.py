"""Extraction and judgement of message catalogues."""

from __future__ import annotations

from pathlib import Path

import polib
import pytest

from dev.messages import Message, compile_catalogues, faults, python_messages, template_messages

MESSAGE = Message("%(n)s slice", "%(n)s slices")


def test_python_under_any_name() -> None:
    source = """
from django.utils.translation import gettext_lazy as _, ngettext as several, pgettext
from gpu.messages import Text, gettext_noop as mark
A = _("joined " "text")
B = several("one", "many", 3)
C = pgettext("month", "May")
D = Text("%(name)s waits", {})
E = mark("marked")
F = _(variable)
G = other("not this")
"""
    assert set(python_messages(source)) == {
        Message("joined text"),
        Message("one", "many"),
        Message("May", context="month"),
        Message("%(name)s waits"),
        Message("marked"),
    }


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ('{% translate "Save (all)" %}', Message("Save (all)")),
        ('{% translate "May" context "month" %}', Message("May", context="month")),
        ('{{ value|default:_("it\'s unknown") }}', Message("it's unknown")),
        (
            "{% blocktranslate count n=x %}{{ n }} slice{% plural %}{{ n }} slices{% endblocktranslate %}",
            MESSAGE,
        ),
        ('{% blocktranslate trimmed %}\n  "a"\n  50 %\n{% endblocktranslate %}', Message('"a" 50 %%')),
    ],
)
def test_templates(template: str, message: Message) -> None:
    source = "{% load i18n %}" + f'<p title="gettext(no)">f(_ {template} )</p>'
    assert list(template_messages(source, "page.html")) == [message]


def entry(message: Message, **values: object) -> polib.POEntry:
    plural = {"msgid_plural": message.plural} if message.plural else {}
    return polib.POEntry(msgid=message.id, **plural, **values)


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([], "missing: 'Hello %(name)s' (a.py)"),
        ([entry(Message("Hello %(name)s"))], "untranslated: 'Hello %(name)s'"),
        (
            [entry(Message("Hello %(name)s"), msgstr="Hallo %(name)s", flags=["fuzzy"])],
            "fuzzy: 'Hello %(name)s'",
        ),
        (
            [entry(Message("Hello %(name)s"), msgstr="Hallo %(nam)s")],
            "placeholders: 'Hello %(name)s' -> 'Hallo %(nam)s'",
        ),
    ],
)
def test_faults(entries: list[polib.POEntry], fault: str) -> None:
    catalogue = polib.POFile()
    catalogue.extend(entries)
    assert faults({Message("Hello %(name)s"): ["a.py"]}, catalogue) == [fault]


def test_left_over_entries_are_faults_and_a_complete_catalogue_has_none() -> None:
    catalogue = polib.POFile()
    catalogue.append(entry(MESSAGE, msgstr_plural={0: "ein Slice", 1: "%(n)s Slices"}))
    assert faults({MESSAGE: ["a.py"]}, catalogue) == []
    assert faults({}, catalogue) == ["left over: '%(n)s slice'"]


def test_a_plural_form_that_is_empty_is_a_fault() -> None:
    catalogue = polib.POFile()
    catalogue.append(entry(MESSAGE, msgstr_plural={0: "ein Slice", 1: ""}))
    assert faults({MESSAGE: ["a.py"]}, catalogue) == ["untranslated: '%(n)s slice'"]


def test_compiling_follows_the_source(tmp_path: Path) -> None:
    path = tmp_path / "locale" / "de" / "LC_MESSAGES" / "django.po"
    path.parent.mkdir(parents=True)
    for text in ("Hallo", "Guten Tag"):
        catalogue = polib.POFile()
        catalogue.append(entry(Message("Hello"), msgstr=text))
        catalogue.save(str(path))
        assert compile_catalogues(tmp_path) == 1
        assert polib.mofile(str(path.with_suffix(".mo")))[0].msgstr == text
