"""What the pull agent passes through and takes while a model is pulled (dev.bench_agent)."""

from __future__ import annotations

from dev import bench_agent
from dev.bench.line import Line
from dev.fleet import Fleet


def measure(fleet: Fleet) -> list[Line]:
    """Pull at the real server's pace, and as fast as the agent reads."""
    lines = []
    for name, taken in (
        ("at Ollama's pace", bench_agent.paced()),
        ("as fast as it reads", bench_agent.flooded()),
    ):
        gigabytes = taken.model / bench_agent.GB
        lines += [
            Line(
                f"pull agent, {name}",
                {
                    "model": round(taken.model / taken.seconds / 1e6),
                    "stream": round(taken.stream / taken.seconds / 1e6, 3),
                },
                unit="MB/s",
            ),
            Line(
                "  CPU seconds per GB reported",
                {"CPU": round(taken.cpu / gigabytes, 3)},
                unit="s/GB",
                goal=f"< {bench_agent.GOAL_CPU_S:.0f} s",
                met=taken.cpu / gigabytes < bench_agent.GOAL_CPU_S,
            ),
            Line(
                "  memory",
                {"most": round(taken.memory, 1)},
                unit="MiB",
                goal=f"< {bench_agent.GOAL_MIB:.0f} MiB",
                met=taken.memory < bench_agent.GOAL_MIB,
            ),
        ]
    return lines
