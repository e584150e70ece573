"""One run: start everything, let customers work while faults are injected, let it settle, judge."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dev import stack
from dev.faults.customers import Customer, Told
from dev.faults.injure import WATCHERS, WORKERS, Injurer
from dev.faults.plan import plan
from dev.fleet import Fleet

if TYPE_CHECKING:  # needs Django's settings, which name the fleet's database
    from dev.faults.verdict import Verdict

NAMESPACES = ("faults-one", "faults-two")
ENTITLED = 9
CUSTOMERS = 6
SETTLE_S = 180.0
SETTINGS = {"SWEEP_EVERY_S": "2"}
"""Quick sweeps let a small run end soon."""


@dataclass(frozen=True)
class Outcome:
    """What a run ended with."""

    verdict: Verdict
    injected: Counter[str]
    missed: Counter[str]
    told: Told
    sent_again: int
    settled_s: float
    took_s: float


def run(
    folder: Path, seed: int, count: int, say: Callable[[str], None], *, most_s: float = 3600.0
) -> Outcome:
    """Run `count` injections that follow from `seed`, at most for `most_s` seconds, in a fleet of its own."""
    began = time.monotonic()
    with Fleet(folder, durable=True, extra=SETTINGS) as fleet:
        start(fleet)
        say(f"started in {time.monotonic() - began:.0f} s: {', '.join(fleet.running)}")
        return attack(fleet, furnish(fleet), seed, count, say, most_s=most_s)


def attack(
    fleet: Fleet,
    tokens: list[tuple[str, str]],
    seed: int,
    count: int,
    say: Callable[[str], None],
    *,
    most_s: float,
) -> Outcome:
    """Let customers work and inject faults into a fleet that runs; then let it settle and judge."""
    began = time.monotonic()
    told, stop = Told(), threading.Event()
    customers = [
        Customer(number, seed, fleet.url, *tokens[number % len(tokens)], told, stop)
        for number in range(CUSTOMERS)
    ]
    for customer in customers:
        customer.start()
    injurer = Injurer(fleet)
    injected: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for number, injection in enumerate(plan(seed, 3 * count)):
        if injected.total() >= count:
            break
        if time.monotonic() - began > most_s:
            say(f"time is up after {injected.total()} injections")
            break
        (injected if injurer.inject(injection) else missed)[injection.kind] += 1
        if number % 50 == 49:
            so_far = f"{injected.total()} injections, {len(told.wishes)} orders"
            say(f"{so_far}, {time.monotonic() - began:.0f} s")
    injurer.heal()
    stop.set()
    for customer in customers:
        customer.join(150.0)
    from dev.faults import verdict

    settled, again = verdict.settle(SETTLE_S)
    found = verdict.judge(fleet.admin(), told.wishes)
    found.lost += [f"never answered: {line}" for line in told.gave_up]
    return Outcome(found, injected, missed, told, again, settled, time.monotonic() - began)


def start(fleet: Fleet, *, webs: int = 3) -> None:
    """Start cluster, three web processes, two workers of two processes each, two watchers, beat."""
    fleet.sandbox()
    fleet.manage("migrate", "--no-input")
    fleet.manage("seed_demo", "--no-slices")
    worker = stack.worker(concurrency=2)
    for name in WORKERS:
        fleet.start(name, [*worker, "--hostname", f"{name}@portal"])
    for name in WATCHERS:
        fleet.start(name, stack.watcher())
    fleet.start("beat", stack.beat(fleet.folder))
    fleet.web(workers=webs, threads=4)


def furnish(fleet: Fleet) -> list[tuple[str, str]]:
    """Make two tenants with a project each; return (token, project id) of them."""
    os.environ.update(fleet.env)
    import django

    django.setup()
    from gpu import entitlements
    from gpu.models import ComputePool, Entitlement, Package
    from tenants.models import ApiToken, Membership, Project, Tenant, User

    found = []
    admin = fleet.admin()
    for namespace in NAMESPACES:
        labels = {"kube-dc.com/project": "", "pod-security.kubernetes.io/enforce": "restricted"}
        document = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": labels},
        }
        answer = admin.create(document)
        if not answer.ok:
            raise RuntimeError(answer.message)
        tenant = Tenant.objects.create(slug=namespace, name=namespace)
        project = Project.objects.create(tenant=tenant, name=namespace, namespace=namespace)
        user = User.objects.create_user(f"{namespace}@faults.example")
        Membership.objects.create(user=user, tenant=tenant, role=Membership.Role.OWNER)
        Entitlement.objects.create(
            project=project, package=Package.objects.get(slug="v100-25"), count=ENTITLED
        )
        ComputePool.objects.create(
            project=project,
            cpu_requests="20",
            cpu_limits="40",
            memory_requests="20Gi",
            memory_limits="40Gi",
            storage="100Gi",
            pods=40,
        )
        entitlements.ask_to_write(project)
        _row, token = ApiToken.issue(user, tenant, "faults")
        found.append((token, project.public_id))
    return found


def report(seed: int, outcome: Outcome, say: Callable[[str], None]) -> bool:
    """Print what was done and what it cost; whether all is well."""
    verdict = outcome.verdict
    say("")
    for kind in sorted(outcome.injected | outcome.missed):
        missed = outcome.missed[kind]
        say(
            f"  {kind:<28}{outcome.injected[kind]:>6}"
            + (f"   ({missed} found nothing to strike)" if missed else "")
        )
    told = outcome.told
    say(f"  operations answered {told.operations}, requests repeated {told.retries}")
    say(f"  settled in {outcome.settled_s:.0f} s; {outcome.sent_again} slices sent again by the operator")
    say(f"  took {outcome.took_s:.0f} s")
    say("")
    lines = {
        "orders placed": [""] * verdict.placed,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "slices left over": verdict.left_over,
        "quota counts off": verdict.quota_off,
        "facts that differ": verdict.facts_off,
    }
    for title, found in lines.items():
        say(f"{title:<20}{len(found):>6}")
        for line in found[:20]:
            if line:
                say(f"    {line}")
    if not verdict.good:
        say(
            f"\nRepeat it with: {Path(sys.executable).name} -m dev.faults --seed {seed} --count "
            f"{outcome.injected.total()}"
        )
    return verdict.good
