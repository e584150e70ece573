"""Names of models: C-08, and what a real server took and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import model_names
from gpu.model_names import ModelName, ModelNameRefused, parse
from gpu.wording import render
from worker import pull_agent

HOST = "registry.example.test:5000"


@pytest.mark.parametrize(
    ("typed", "host", "namespace", "model", "tag"),
    [
        ("llama3.2", "registry.ollama.ai", "library", "llama3.2", "latest"),
        ("llama3.2:3b", "registry.ollama.ai", "library", "llama3.2", "3b"),
        ("acme/tiny-chat", "registry.ollama.ai", "acme", "tiny-chat", "latest"),
        (
            "hf.co/acme/Llama-3.2-3B-Instruct-GGUF:Q4_K_M",
            "hf.co",
            "acme",
            "Llama-3.2-3B-Instruct-GGUF",
            "Q4_K_M",
        ),
        (f"{HOST}/team/chat", HOST, "team", "chat", "latest"),
        (f"{HOST}/team/chat:v1", HOST, "team", "chat", "v1"),
        (f"http://{HOST}/team/tiny:v1", HOST, "team", "tiny", "v1"),
        ("  llama3.2:3b\n", "registry.ollama.ai", "library", "llama3.2", "3b"),
    ],
)
def test_parts_of_a_name(typed: str, host: str, namespace: str, model: str, tag: str) -> None:
    found = parse(typed)
    assert (found.host, found.namespace, found.model, found.tag) == (host, namespace, model, tag)


REFUSED = {
    "": "Name the model.",
    "   ": "Name the model.",
    "llama 3": "has no blanks",
    "llama3.2:": "tag behind the colon is missing",
    ":3b": "A part of the name is empty",
    "name:tag:tag": "more than one tag",
    "../etc/passwd": "“..” cannot be a part of the name",
    "a.b/model": "“a.b” cannot be a namespace",
    "a/b/c/d": "form registry/namespace/model:tag",
    "m" * 81: "81 characters; at most 80",
    "model:" + "t" * 81: "81 characters; at most 80",
    "n" * 81 + "/model": "81 characters; at most 80",
    "h" * 351 + "/team/model": "351 characters; at most 350",
    "model@sha256:abc": "not by a digest",
    "mödel": "“mödel” cannot be a part",
    "-model": "“-model” cannot be a part",
    "/team/model": "A part of the name is empty",
    "host//model": "A part of the name is empty",
    "http://model": "A part of the name is empty",
    "http://host/model": "form registry/namespace/model:tag",
    "ftp://host/team/model": "http:// or https://",
    f"{HOST}/team/a b": "has no blanks",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_refusals_tell_what_is_wrong(typed: str) -> None:
    with pytest.raises(ModelNameRefused) as caught:
        parse(typed)
    assert REFUSED[typed] in str(caught.value.text)
    assert REFUSED[typed] in render(caught.value.text)


@pytest.mark.parametrize("typed", ["m" * 80, "model:" + "t" * 80, "h" * 350 + "/team/model"])
def test_longest_parts(typed: str) -> None:
    parse(typed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("LLAMA3.2:3B", "llama3.2:3b"),
        ("llama3.2", "llama3.2:latest"),
        ("llama3.2", "registry.ollama.ai/library/llama3.2:LATEST"),
        ("acme/tiny", "Registry.Ollama.AI/acme/tiny"),
        (f"http://{HOST}/team/tiny:v1", f"{HOST}/team/TINY:V1"),
    ],
)
def test_spellings_of_one_model(one: str, other: str) -> None:
    assert model_names.same_model(one, other)
    assert parse(one).request.lower().endswith(parse(other).shortest.lower())


def test_different_models() -> None:
    assert not model_names.same_model("llama3.2:3b", "llama3.2:1b")
    assert not model_names.same_model("acme/llama3.2", "llama3.2")
    assert not model_names.same_model("hf.co/acme/x", "acme/x")


def test_letter_case_is_kept_for_the_request() -> None:
    typed = "hf.co/Acme/Llama-3.2-GGUF:Q4_K_M"
    assert parse(typed).request == typed
    assert parse(f"http://{HOST}/Team/Tiny").request == f"http://{HOST}/Team/Tiny:latest"
    assert parse("registry.ollama.ai/library/Phi").request == "Phi:latest"


_first = st.sampled_from("aZ0_")
_part = st.builds(lambda first, rest: first + rest, _first, st.text("aZ09_-.", max_size=8))
_namespace = st.builds(lambda first, rest: first + rest, _first, st.text("aZ09_-", max_size=8))
_host = st.sampled_from(["registry.ollama.ai", "hf.co", "localhost:5000", "Registry.Example.test:5000"])
names = st.builds(
    ModelName,
    host=_host,
    namespace=_namespace | st.just("library"),
    model=_part,
    tag=_part | st.just("latest"),
)


@given(names)
def test_a_name_is_read_back_from_what_ollama_lists(name: ModelName) -> None:
    assert parse(name.shortest).key == name.key
    assert parse(name.request).key == name.key


@given(names, names)
def test_the_agent_compares_like_the_portal(one: ModelName, other: ModelName) -> None:
    same = pull_agent.canonical(one.shortest) == pull_agent.canonical(other.shortest)
    assert same == (one.key == other.key)
    full = f"http://{one.host}/{one.namespace}/{one.model}:{one.tag}"
    assert pull_agent.canonical(full) == pull_agent.canonical(one.shortest)


@given(st.text("aB0_-./:@ ü", max_size=20))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        name = parse(text)
    except ModelNameRefused:
        return
    assert parse(name.request).key == name.key
