"""Image references by the reference grammar, and versions compared as numbers (case C-09)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import images
from gpu.images import Suitability

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "host", "port", "path", "tag", "digest", "repository"),
    [
        ("ollama/ollama", None, None, "ollama/ollama", None, None, "docker.io/ollama/ollama"),
        ("nginx:1.27", None, None, "nginx", "1.27", None, "docker.io/library/nginx"),
        ("docker.io/nginx", "docker.io", None, "nginx", None, None, "docker.io/library/nginx"),
        ("ollama/ollama:0.24.0", None, None, "ollama/ollama", "0.24.0", None, "docker.io/ollama/ollama"),
        ("r.test:5000/team/chat", "r.test", 5000, "team/chat", None, None, "r.test:5000/team/chat"),
        ("r.test:5000/team/chat:v1", "r.test", 5000, "team/chat", "v1", None, "r.test:5000/team/chat"),
        ("localhost/chat", "localhost", None, "chat", None, None, "localhost/chat"),
        ("localhost:5000/chat", "localhost", 5000, "chat", None, None, "localhost:5000/chat"),
        ("REG/chat", "REG", None, "chat", None, None, "REG/chat"),
        ("[2001:db8::1]:5000/chat:v1", "[2001:db8::1]", 5000, "chat", "v1", None, "[2001:db8::1]:5000/chat"),
        (f"a/b/c:v1@{DIGEST}", None, None, "a/b/c", "v1", DIGEST, "docker.io/a/b/c"),
        (f"a/b@{DIGEST}", None, None, "a/b", None, DIGEST, "docker.io/a/b"),
        ("a__b/c-d.e:_x", None, None, "a__b/c-d.e", "_x", None, "docker.io/a__b/c-d.e"),
    ],
)
def test_a_reference_is_taken_apart(text, host, port, path, tag, digest, repository) -> None:
    image = images.parse(text)
    assert (image.host, image.port, image.path, image.tag, image.digest) == (host, port, path, tag, digest)
    assert image.repository == repository
    assert str(image) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "  ",
            ":v1",
            "@" + DIGEST,
            "a b",
            "Ollama/Ollama",
            "ollama/Ollama",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:v1:v2",
        ),
        *(
            "a:-x",
            "a:" + "x" * 129,
            "https://r.test/a:1",
            "a@sha256:abc",
            "a@sha256:" + "G" * 64,
            "a@",
            "a@b:v1",
        ),
        *(
            "r.test:70000/a",
            "r.test:0/a",
            "r.test:123456/a",
            "r.test:x/a",
            "-r.test/a",
            "r..test/a",
            "a___b",
            "a._b",
        ),
        *("../etc/passwd", "a\n:1", "a:1\n", "ä/b", "a/b/" + "c" * 260, "a" * 600),
    ],
)
def test_what_no_runtime_takes_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(images.ImageRefused) as refusal:
        images.parse(text)
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    ("text", "pinned", "version"),
    [
        ("ollama/ollama", False, None),
        ("ollama/ollama:latest", False, None),
        ("r.test:5000/ollama", False, None),
        ("ollama/ollama:0.24.0", True, (0, 24, 0)),
        ("vllm/vllm-openai:v0.8.5.post1", True, (0, 8, 5)),
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", True, (12, 4, 1)),
        ("a/b:0.30.0-rc1", True, (0, 30, 0)),
        ("a/b:2024", True, (2024,)),
        ("a/b:main", True, None),
        ("a/b:1x.2", True, (1,)),
        (f"a/b@{DIGEST}", True, None),
        (f"a/b:latest@{DIGEST}", True, None),
    ],
)
def test_pinned_and_version(text: str, pinned: bool, version: tuple[int, ...] | None) -> None:
    image = images.parse(text)
    assert image.pinned is pinned
    assert image.version == version


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("0.9.6", "0.24.0", -1),
        ("0.24", "0.24.0", 0),
        ("1", "0.99", 1),
        ("0.30.5", "0.30.0", 1),
        ("v2", "2.0.0.1", -1),
    ],
)
def test_versions_compare_as_numbers(a: str, b: str, result: int) -> None:
    left, right = images.parse_version(a), images.parse_version(b)
    assert left is not None
    assert right is not None
    assert images.compare_versions(left, right) == result
    assert images.compare_versions(right, left) == -result


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("ollama/ollama:0.24.0", Suitability.GOOD),
        ("ollama/ollama:0.9.6", Suitability.GOOD),
        ("ollama/ollama:0.25.0", Suitability.UNTESTED),
        ("ollama/ollama:0.30.0", Suitability.BAD),
        ("ollama/ollama:0.30.5", Suitability.BAD),
        ("ollama/ollama:0.30.0-rc1", Suitability.BAD),
        ("r.test:5000/mirror/ollama/ollama:1.0", Suitability.BAD),
        ("myollama/ollama:1.0", Suitability.NO_STATEMENT),
        (f"ollama/ollama@{DIGEST}", Suitability.UNKNOWN_VERSION),
        (f"ollama/ollama:0.24.0@{DIGEST}", Suitability.GOOD),
        ("ollama/ollama:nightly", Suitability.UNKNOWN_VERSION),
        ("vllm/vllm-openai:v0.8.5", Suitability.GOOD),
        ("vllm/vllm-openai:v0.9.0", Suitability.BAD),
        ("lmsysorg/sglang:v0.4.6.post5-cu124", Suitability.BAD),
        ("nvidia/cuda:13.0.0-base-ubuntu24.04", Suitability.BAD),
        ("nginx:1", Suitability.NO_STATEMENT),
    ],
)
def test_the_image_matrix(text: str, verdict: Suitability) -> None:
    assert images.judge(images.parse(text), images.CEILINGS)[0] is verdict


def test_without_a_first_bad_version_newer_ones_are_untested() -> None:
    ceiling = images.Ceiling("a/b", "V100", "1.0", None, "a/b:1.0")
    assert images.judge(images.parse("a/b:9"), [ceiling]) == (Suitability.UNTESTED, ceiling)


@given(st.text(max_size=80) | st.from_regex(r"\A[a-zA-Z0-9.:/@_\-\[\]]{1,60}\Z"))
def test_any_text_is_read_or_refused_and_what_is_read_reads_the_same_again(text: str) -> None:
    try:
        image = images.parse(text)
    except images.ImageRefused:
        return
    assert str(image) == text
    assert images.parse(str(image)) == image
