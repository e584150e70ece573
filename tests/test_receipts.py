"""What a container's log tells about the card, the model and its context."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpu.messages import Memory
from gpu.receipts import Card, Cut, ServerLog, read_server_log, receipt, size_in_bytes
from gpu.redact import redact
from sandbox.images import nvidia_smi
from tests.ollama_replay import recorded

GIB = 1024**3


def log(name: str) -> ServerLog:
    return read_server_log(recorded(f"log/{name}.txt").decode())


COMPUTE = (
    'time=2026-11-30T16:47:42.840Z level=INFO source=types.go:42 msg="inference compute" '
    'id=GPU-8a56a4bc-4bd1-4d7e-a01b-3d1d6a8b4c11 filter_id="" library=CUDA compute=7.0 name=CUDA0 '
    'description="Tesla V100-PCIE-32GB" libdirs=ollama,cuda_v12 driver=12.8 pci_id=0000:3b:00.0 type=discrete '
    'total="8.0 GiB" available="7.7 GiB"'
)
OLDER = (
    'time=2025-11-30T16:47:42.840Z level=INFO source=types.go:130 msg="inference compute" '
    "id=GPU-8a56a4bc-4bd1-4d7e-a01b-3d1d6a8b4c11 library=cuda variant=v12 compute=7.0 driver=12.4 "
    'name="Tesla V100-PCIE-32GB" total="31.7 GiB" available="31.4 GiB"'
)


def test_the_card() -> None:
    seen = read_server_log(COMPUTE)
    assert seen.card == Card("Tesla V100-PCIE-32GB", 8 * GIB, "12.8", "7.0", "CUDA")
    assert not seen.cpu_only
    assert read_server_log(redact(COMPUTE)) == seen  # so it is stored


def test_the_card_as_an_older_version_tells_it() -> None:
    card = read_server_log(OLDER).card
    assert card is not None
    assert (card.name, card.driver, card.compute) == ("Tesla V100-PCIE-32GB", "12.4", "7.0")
    assert card.memory == round(31.7 * GIB)


def test_the_card_by_nvidia_smi() -> None:
    seen = read_server_log(nvidia_smi(16384))
    assert seen.card == Card("Tesla V100-PCIE-32GB", 16 * GIB, "570.86.15", "", "")
    assert receipt(seen, 16384).finding == "as_ordered"
    assert receipt(read_server_log(nvidia_smi(None)), 16384).finding == "nothing_seen"


def test_no_ids_and_addresses_are_kept() -> None:
    assert "GPU-8a56" not in repr(read_server_log(COMPUTE))
    assert "3b:00" not in repr(read_server_log(COMPUTE))


@pytest.mark.parametrize(
    ("total", "ordered", "finding", "alarm"),
    [
        ("8.0 GiB", 8192, "as_ordered", False),
        ("7.8 GiB", 8192, "as_ordered", False),
        ("31.7 GiB", 32768, "as_ordered", False),
        ("31.7 GiB", 8192, "whole_card", True),
        ("31.7 GiB", 16384, "whole_card", True),
        ("4.0 GiB", 8192, "less_memory", False),
    ],
)
def test_what_was_ordered_against_what_is_seen(total: str, ordered: int, finding: str, alarm: bool) -> None:
    found = receipt(read_server_log(COMPUTE.replace("8.0 GiB", total)), ordered)
    assert (found.finding, found.alarm) == (finding, alarm)
    assert found.sentence.params["seen"] == Memory(size_in_bytes(total) or 0)


def test_a_server_without_gpu() -> None:
    seen = log("startup-cpu")
    assert seen.cpu_only
    assert seen.card is None
    found = receipt(seen, 8192)
    assert (found.finding, found.alarm) == ("no_gpu", False)
    assert "no GPU" in str(found.sentence)
    assert receipt(ServerLog(), 8192).finding == "nothing_seen"


def test_a_model_on_the_cpu() -> None:
    seen = log("load-cpu")
    assert seen.weights == {"CPU": round(3.1 * 1024**2)}
    assert seen.on_gpu is False
    assert seen.context == 4096
    assert ServerLog().on_gpu is None


def test_a_model_on_the_gpu_and_partly() -> None:
    start = 'time=2026-11-30T16:48:25Z level=INFO source=server.go:431 msg="starting runner" cmd="x"\n'
    weights = 'level=INFO source=device.go:240 msg="model weights" device={} size="{}"\n'
    whole = start + weights.format("CUDA0", "1.9 GiB") + weights.format("CPU", "308.2 MiB")
    assert read_server_log(whole).on_gpu is True
    assert read_server_log(whole + start + weights.format("CPU", "1.9 GiB")).on_gpu is False
    assert read_server_log("load_tensors: offloaded 20/29 layers to GPU").layers == (20, 29)
    assert read_server_log("load_tensors: offloaded 0/29 layers to GPU").on_gpu is False


def test_the_context_in_effect() -> None:
    assert log("context-16384").context == 2048  # the last request named its own
    first = recorded("log/context-16384.txt").decode().partition("[GIN]")[0]
    assert read_server_log(first).context == 16384  # though the start-up line says 4096
    assert read_server_log('level=INFO msg=load request="{Parallel:4 KvSize:32768}"').context == 8192
    above = log("context-above-model")
    assert (above.asked_context, above.context) == (100000, 32768)


def test_a_cut_prompt() -> None:
    seen = log("prompt-truncated")
    assert seen.cuts == 3
    assert seen.last_cut == Cut(datetime(2026, 11, 30, 16, 48, 58, 94000, tzinfo=UTC), 4096, 14001)
    assert log("load-cpu").last_cut is None


def test_host_memory_is_told_apart_from_gpu_memory() -> None:
    host = log("out-of-memory")
    assert host.shortage == "host"
    assert (host.needed, host.available) == (round(95.4 * GIB), round(22.0 * GIB))
    killed = log("runner-killed")
    assert (killed.shortage, killed.runner_killed) == ("host", True)
    for line in (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7000.00 MiB on device 0: cudaMalloc failed: "
        "out of memory",
        "CUDA error: out of memory",
        'time=2026-11-30T16:49:07Z level=INFO source=sched.go:518 msg="Load failed" model=/models/x '
        'error="llama runner process has terminated: cudaMalloc failed: out of memory"',
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 838447104",
    ):
        assert read_server_log(line).shortage == "gpu"
    assert log("startup-cpu").shortage == ""


def test_why_a_card_is_not_used() -> None:
    assert read_server_log("ggml was not compiled with any CUDA arch <= 700").kernels_missing
    assert read_server_log(
        "CUDA error: no kernel image is available for execution on the device"
    ).kernels_missing
    assert read_server_log("ggml_cuda_init: failed: CUDA driver version is insufficient").driver_too_old
    calm = log("load-cpu")
    assert not calm.kernels_missing
    assert not calm.driver_too_old


def test_quoted_values_may_hold_quotes_and_signs() -> None:
    line = r'time=x level=WARN msg="truncating input prompt" extra="a=\"b\" limit=1" limit=4096 prompt=5000'
    assert read_server_log(line).last_cut == Cut(None, 4096, 5000)


@pytest.mark.parametrize("name", ["bad-gguf", "dropped", "stalled"])
def test_logs_that_tell_nothing_of_the_gpu(name: str) -> None:
    assert log(name) == ServerLog()
