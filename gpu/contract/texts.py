"""Checks of single texts: what a container may be given, and what the API server stores."""

from __future__ import annotations

import re
import unicodedata

ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

# Names that hold the slice to its size or are put in by the platform. A container that sets them would see another
# card, or none, or escape its limits (NVIDIA container toolkit, HAMi-core).
_RESERVED = frozenset(
    {
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DISABLE_CONTROL",
        "CUDA_OVERSUBSCRIBE",
        "GPU_CORE_UTILIZATION_POLICY",
        "LD_PRELOAD",
        "LD_AUDIT",
    }
)
_RESERVED_BEGINNINGS = ("CUDA_DEVICE_MEMORY_", "CUDA_DEVICE_SM_", "KUBERNETES_")

_SYSTEM_FOLDERS = frozenset(
    {
        *(
            "/",
            "/bin",
            "/boot",
            "/dev",
            "/etc",
            "/home",
            "/lib",
            "/lib32",
            "/lib64",
            "/opt",
            "/proc",
            "/root",
            "/run",
        ),
        *(
            "/sbin",
            "/srv",
            "/sys",
            "/tmp",  # noqa: S108
            "/usr",
            "/usr/bin",
            "/usr/lib",
            "/usr/lib64",
            "/usr/local",
            "/usr/sbin",
        ),
        *("/usr/local/bin", "/usr/local/cuda", "/usr/local/lib", "/usr/local/nvidia", "/usr/share", "/var"),
        *("/var/lib", "/var/run"),
    }
)
_SYSTEM_TREES = ("/proc/", "/sys/", "/dev/", "/var/run/secrets/", "/run/secrets/", "/usr/local/vgpu/")


def is_reserved_env(name: str) -> bool:
    """Tell whether the platform keeps this variable for itself."""
    return name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS)


def has_control_characters(text: str) -> bool:
    """Tell whether `text` holds what no container can be given: NUL, control characters, half surrogates.

    Line feed and tab are allowed: a script on a command line has them.
    """
    return any(c not in "\n\t" and unicodedata.category(c) in {"Cc", "Cs"} for c in text)


def is_absolute_path(path: str) -> bool:
    """Tell whether `path` is an absolute path that a volume can be mounted at (no `:`, no `.` or `..` parts)."""
    parts = path.rstrip("/").split("/")[1:]
    return (
        path.startswith("/")
        and ":" not in path
        and "\n" not in path
        and "\t" not in path
        and not has_control_characters(path)
        and all(part not in {"", ".", ".."} for part in parts)
    )


def hides_system(path: str) -> bool:
    """Tell whether a volume mounted at the absolute `path` would hide what the image or the platform needs there."""
    bare = path.rstrip("/") or "/"
    return bare in _SYSTEM_FOLDERS or f"{bare}/".startswith(_SYSTEM_TREES)
