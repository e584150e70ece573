"""Object names from what people type (case C-11)."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import names

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

display_names = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters=names._REORDERING),
    min_size=1,
    max_size=names.MAX_DISPLAY_LENGTH,
).filter(lambda text: any(unicodedata.category(c)[0] in "LNPS" for c in text))


def assert_every_name_is_valid(app: str) -> None:
    made = {
        "Deployment": app,
        "Service": names.service_name(app),
        "claim template": names.claim_template_name(app),
        "volume": names.volume_name(app),
        "secret": names.secret_name(app),
        "pull job": names.pull_job_name(app, "z" * names.MAX_TOKEN_LENGTH),
        "pod": app + names.POD_SUFFIX,
    }
    for what, name in made.items():
        assert len(name) <= 63, what
        assert DNS_1035.fullmatch(name), (what, name)
        assert names.is_object_name(name)
    for label, value in names.labels(app, "nvidia-v100-hami").items():
        assert len(value) <= 63, label
        assert LABEL_VALUE.fullmatch(value)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("chat", "chat"),
        ("Mein Modell (Test)", "mein-modell-test"),
        ("3d-render", "slice-3d-render"),
        ("-abc", "abc"),
        ("abc-", "abc"),
        ("a..b", "a-b"),
        ("Größe Übung", "groesse-uebung"),
        ("Gro\u0308ße", "groesse"),
        ("Café №5", "cafe-no5"),
        ("聊天模型", "slice"),
        ("😀", "slice"),
        ("  chat  ", "chat"),
        ("a" * 50 + "-" * 10 + "b", "a" * 46),
        ("a" * 45 + "-" * 10 + "b", "a" * 45),
    ],
)
def test_a_typed_name_becomes_this_object_name(typed: str, name: str) -> None:
    assert names.object_name(typed) == name
    assert_every_name_is_valid(name)


def test_a_cut_leaves_no_dash_at_any_length() -> None:
    for letters in range(1, 51):
        assert_every_name_is_valid(names.object_name("a" * letters + "-" * 10 + "b"))


def test_too_long_is_refused_with_the_limit() -> None:
    assert names.object_name("a" * 63)
    with pytest.raises(names.NameRefused) as refusal:
        names.object_name("a" * 64)
    assert "64" in str(refusal.value)
    assert "63" in str(refusal.value)


@pytest.mark.parametrize(
    "typed",
    ["", "   ", "\t", "a\nb", "a\x00b", "a\u202eb", "a\ud800b", "a\u2028b", "\x7f", "\u200d", "\u3000 "],
)
def test_what_cannot_be_shown_is_refused(typed: str) -> None:
    with pytest.raises(names.NameRefused):
        names.object_name(typed)


def test_a_taken_name_gets_a_number() -> None:
    assert names.object_name("Chat", {"chat"}) == "chat-2"
    assert names.object_name("Chat", {"chat", "chat-2"}) == "chat-3"
    long = "a" * names.MAX_APP_LENGTH
    assert names.object_name(long, {long}) == long[:-2] + "-2"
    # The cut would leave two dashes and a number after them.
    dashed = "a" * (names.MAX_APP_LENGTH - 3) + "-bb"
    assert names.object_name(dashed, {dashed}) == "a" * (names.MAX_APP_LENGTH - 3) + "-2"


@given(display_names)
def test_every_accepted_name_is_valid_with_every_suffix(typed: str) -> None:
    assert_every_name_is_valid(names.object_name(typed))


@given(st.lists(display_names, max_size=8), st.sampled_from(["a" * 60, "chat", "a-b", "aa--2", "3", "聊天"]))
def test_names_in_one_namespace_never_collide(typed: list[str], often: str) -> None:
    taken: list[str] = []
    for display in [*typed, often, often, *typed, often]:
        name = names.object_name(display, taken)
        assert name not in taken
        assert_every_name_is_valid(name)
        taken.append(name)


apps = st.from_regex(r"\A[a-z]([-a-z0-9]{0,20}[a-z0-9])?\Z")


@given(apps, apps, st.from_regex(r"\A[a-z0-9]{1,10}\Z"), st.from_regex(r"\A[a-z0-9]{1,10}\Z"))
def test_pull_jobs_of_two_workloads_never_share_a_name(a: str, b: str, one: str, two: str) -> None:
    assert (names.pull_job_name(a, one) == names.pull_job_name(b, two)) == ((a, one) == (b, two))


@pytest.mark.parametrize("token", ["", "a-b", "A", "a" * 11, "ä"])
def test_a_pull_token_is_letters_and_digits(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        names.pull_job_name("chat", token)
