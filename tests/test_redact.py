"""What a tenant must not learn is taken out; what is theirs stays."""

import pytest

from gpu.redact import HIDDEN, redact

SECRETS = (
    "gpu-node-1",
    "GPU-0a1b2c3d",
    "3b:00.0",
    "3B:00.0",
    "10.1.2.3",
    "hami-gpu-0",
    "2531c696",
    "fd00::5",
)


@pytest.mark.parametrize(
    "text",
    [
        "Successfully assigned acme-ai/chat-9998974bf-n4qb2 to gpu-node-1",
        "| 0  Tesla V100  On | 00000000:3B:00.0 Off |",
        "pci_id=0000:3b:00.0 uuid=GPU-0a1b2c3d-1111-2222-3333-444455556666",
        "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-0a1b2c3d-1111-2222-3333-444455556666)",
        "device hami-gpu-0 of pool gpu-node-1 with share 2531c696-4b7b-48e1-8b54-feb1263faebc",
        'MountVolume failed on node "gpu-node-1"',
        "node=gpu-node-1",
        "nodeName: gpu-node-1",
        "dial tcp 10.1.2.3:443: connect: connection refused",
        "dial tcp [fd00::5]:443: connect: connection refused",
        "ResourceSlice gpu-node-1-hami is full",
    ],
)
def test_names_and_addresses_are_taken_out(text):
    cleaned = redact(text)
    assert not [secret for secret in SECRETS if secret in cleaned]


def test_given_names_are_taken_out_wherever_they_stand():
    assert redact("moved from zeus to zeus-2", ["zeus", "zeus-2"]) == f"moved from {HIDDEN} to {HIDDEN}"
    assert redact("zeusian", ["zeus"]) == "zeusian"


@pytest.mark.parametrize(
    "text",
    [
        "0/1 nodes are available: 1 cannot allocate all claims.",
        "1 node(s) had untolerated taint(s)",
        "Listening on 127.0.0.1:11434 and 0.0.0.0:8080 and [::]:11434",
        "Driver Version: 570.133.20   CUDA Version: 12.8",
        "libcublas.so.12.8.4.1 loaded",
        "2026-11-30T15:50:33Z started",
        "time=15:50:33.1 level=INFO",
        "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1500m, limited: requests.cpu=2",
        "std::vector",
        "registry.example.test/team/app@sha256:" + "a" * 64,
    ],
)
def test_the_rest_stays(text):
    assert redact(text) == text


def test_an_assignment_keeps_what_was_assigned():
    assert (
        redact("Successfully assigned acme-ai/chat-1 to gpu-node-1") == "Successfully assigned acme-ai/chat-1"
    )
