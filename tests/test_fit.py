"""C-10: weights and cache against a slice, exact, and a warning instead of a block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.fit import COMMON_MODELS, CONTEXT_STEP, OVERHEAD, Model, assess, common_model
from gpu.messages import Count, Memory

C10 = Model("llama3.2:3b", 2019377376, 28, 8, 128, 128)


def test_c10_the_cache_of_one_token():
    assert C10.cache_per_token() == 114688
    assert C10.cache_per_token("q8_0") == 60928


@pytest.mark.parametrize(
    ("context", "parallel", "needed", "on_8", "on_16"),
    [
        (16384, 1, 3898425568, "fits", "fits"),
        (65536, 1, 9535570144, "too_large", "fits"),
        (16384, 4, 9535570144, "too_large", "fits"),
    ],
)
def test_c10_the_table(context, parallel, needed, on_8, on_16):
    for memory_mib, verdict in ((8192, on_8), (16384, on_16)):
        found = assess(C10, memory_mib, context=context, parallel=parallel)
        assert (found.needed, found.verdict, found.warns) == (needed, verdict, verdict != "fits")
        assert found.sentence.params["needed"] == Memory(needed)


def test_without_room_for_the_server_itself_it_is_tight():
    memory = 8192 * 1024 * 1024
    context = (memory - C10.weights) // C10.cache_per_token()
    found = assess(C10, 8192, context=context)
    assert found.verdict == "tight"
    assert found.sentence.params["overhead"] == Memory(OVERHEAD)
    assert assess(C10, 8192, context=context + 1).verdict == "too_large"


def test_a_model_whose_weights_alone_are_too_large():
    found = assess(common_model("llama3.1:70b"), 32768)
    assert (found.verdict, found.largest_context) == ("too_large", 0)
    assert "%(" not in str(found.sentence)


def test_the_largest_context_is_not_above_the_models_own():
    assert assess(common_model("qwen2.5:7b"), 32768).largest_context == 32768
    assert assess(C10, 8192).sentence.params["context"] == Count(4096)


@pytest.mark.parametrize(("context", "parallel"), [(0, 1), (-1, 1), (1, 0)])
def test_what_is_no_context_is_refused(context, parallel):
    with pytest.raises(ValueError, match="at least 1"):
        assess(C10, 8192, context=context, parallel=parallel)


def test_common_models_have_sources_and_are_found_whatever_the_case():
    assert [model.weights for model in COMMON_MODELS] == sorted(model.weights for model in COMMON_MODELS)
    assert all(model.source and model.max_context for model in COMMON_MODELS)
    assert common_model(" LLAMA3.2:3B ").cache_per_token() == 114688
    assert common_model("unknown:1b") is None


sizes = st.sampled_from([8192, 16384, 32768])


@given(st.sampled_from(COMMON_MODELS), sizes, st.integers(1, 200_000), st.integers(1, 16))
def test_the_largest_context_fits_and_one_step_more_does_not(model, memory_mib, context, parallel):
    found = assess(model, memory_mib, context=context, parallel=parallel)
    largest = found.largest_context
    if largest:
        assert assess(model, memory_mib, context=largest, parallel=parallel).verdict == "fits"
    if largest + CONTEXT_STEP <= model.max_context:
        beyond = assess(model, memory_mib, context=largest + CONTEXT_STEP, parallel=parallel)
        assert beyond.verdict != "fits"
    assert "%(" not in str(found.sentence)
