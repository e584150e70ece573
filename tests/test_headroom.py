"""C-02, and the rules by which the API server counts and refuses."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.headroom import (
    Asked,
    Demand,
    Quota,
    Refused,
    Room,
    amount,
    devices,
    effective_request,
    fits,
    headroom,
    left_after,
    parse_limit_range,
    parse_limit_ranges,
    parse_quota,
    undecided,
    unspecified,
)
from gpu.messages import Count, Cpu, Memory
from gpu.quantities import parse

RECORDED = Path(__file__).parent / "data" / "recorded"
GIB = 2**30
DEVICES = "v100-shared-8g.deviceclass.resource.k8s.io/devices"


def quota(name="plan-quota", hard=None, used=None, **spec):
    obj = {"metadata": {"name": name}, "spec": {"hard": hard or {}, **spec}}
    if used is not None:
        obj["status"] = {"hard": hard or {}, "used": used}
    return obj


def limit_range(*items):
    return {"metadata": {"name": "defaults"}, "spec": {"limits": list(items)}}


PLAN = quota(
    hard={"requests.cpu": "8", "requests.memory": "24Gi", "limits.memory": "24Gi"},
    used={"requests.cpu": "7300m", "requests.memory": "20Gi", "limits.memory": "20Gi"},
)
PROJECT = quota("project-quota", hard={"requests.cpu": "10"}, used={"requests.cpu": "7300m"})
LIMITS = parse_limit_range(
    limit_range(
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "512Mi"},
            "defaultRequest": {"cpu": "250m", "memory": "256Mi"},
        }
    )
)
ROOMS = headroom([parse_quota(PLAN), parse_quota(PROJECT)])


def test_c02_the_tightest_quota_decides():
    assert ROOMS["requests.cpu"] == Room(Decimal(8), Decimal("7.3"), Decimal("0.7"), "plan-quota")
    assert ROOMS["requests.memory"].left == 4 * GIB
    assert ROOMS["limits.memory"].left == 4 * GIB
    assert headroom([parse_quota(PROJECT), parse_quota(PLAN)]) == ROOMS


def test_c02_nothing_asked():
    demand = effective_request(Asked(), LIMITS)
    assert demand == Demand(parse("250m"), parse("500m"), parse("256Mi"), parse("512Mi"))
    assert fits(demand.as_quota(), ROOMS) == ()
    assert left_after(demand.as_quota(), ROOMS)["requests.cpu"] == Decimal("0.45")


def test_c02_a_bare_limit_becomes_the_request():
    demand = effective_request(Asked(cpu_limit=Decimal(1)), LIMITS)
    assert demand.cpu_request == 1
    (shortage,) = fits(demand.as_quota(), ROOMS)
    assert (shortage.key, shortage.short_by, shortage.left, shortage.binding) == (
        "requests.cpu",
        parse("300m"),
        parse("700m"),
        "plan-quota",
    )


def test_c02_a_default_limit_caps_a_bare_request():
    refused = effective_request(Asked(cpu_request=parse("700m")), LIMITS)
    assert isinstance(refused, Refused)
    (objection,) = refused.objections
    assert (objection.field, objection.rule) == ("cpu_limit", "limit-below-request")
    assert objection.mend.params["request"] == Cpu(Decimal(700))
    assert str(objection.mend) == "Set the limit to at least 700m."


def test_c02_exactly_full_is_allowed():
    demand = effective_request(Asked(memory_request=parse("2Gi"), memory_limit=parse("4Gi")), LIMITS)
    assert (demand.memory_request, demand.memory_limit) == (2 * GIB, 4 * GIB)
    assert fits(demand.as_quota(), ROOMS) == ()
    assert left_after(demand.as_quota(), ROOMS)["limits.memory"] == 0


def test_a_quota_that_is_not_counted_yet_is_unknown():
    rooms = headroom([parse_quota(quota(hard={"pods": "2"}))])
    assert rooms == {"pods": Room(Decimal(2), None, None, None)}
    demand = {"pods": Decimal(1)}
    assert fits(demand, rooms) == ()
    assert undecided(demand, rooms) == ("pods",)
    assert left_after(demand, rooms) == {"pods": None}


def test_a_line_added_since_the_last_count_is_unknown():
    obj = quota(hard={"pods": "2"}, used={"pods": "1"})
    obj["spec"]["hard"] = {"pods": "2", DEVICES: "4"}
    rooms = headroom([parse_quota(obj)])
    assert rooms["pods"].left == 1
    assert rooms[DEVICES].left is None


def test_the_status_is_what_is_enforced():
    obj = quota(hard={"pods": "2", "services": "1"}, used={"pods": "1", "services": "0"})
    obj["spec"]["hard"] = {"pods": "9"}
    assert parse_quota(obj).hard == {"pods": 2}


def test_one_quota_unknown_leaves_the_rest_unknown_unless_nothing_is_left():
    known = Quota("a", {"pods": Decimal(3)}, {"pods": Decimal(1)})
    full = Quota("a", {"pods": Decimal(3)}, {"pods": Decimal(3)})
    unknown = Quota("b", {"pods": Decimal(9)}, None)
    assert headroom([known, unknown])["pods"].left is None
    assert headroom([full, unknown])["pods"] == Room(Decimal(3), Decimal(3), Decimal(0), "a")


def test_an_overdrawn_quota_has_nothing_left_and_says_by_how_much():
    rooms = headroom([parse_quota(quota(hard={"pods": "2"}, used={"pods": "5"}))])
    assert (rooms["pods"].left, rooms["pods"].over_by, rooms["pods"].over) == (0, 3, True)
    (shortage,) = fits({"pods": Decimal(1)}, rooms)
    assert (shortage.left, shortage.short_by) == (0, 4)
    assert fits({"pods": Decimal(0)}, rooms) == ()
    assert left_after({}, rooms)["pods"] == -3


def test_both_forms_of_a_device_key_are_one_fact():
    both = {DEVICES: "2", "requests.deviceclass.resource.k8s.io/v100-shared-8g": "2"}
    used = dict.fromkeys(both, "1")
    assert headroom([parse_quota(quota(hard=both, used=used))]) == {
        DEVICES: Room(Decimal(2), Decimal(1), Decimal(1), "plan-quota")
    }
    assert list(devices(ROOMS | headroom([parse_quota(quota(hard=both, used=used))]))) == ["v100-shared-8g"]


def test_short_keys_are_requests():
    rooms = headroom(
        [parse_quota(quota(hard={"cpu": "2", "memory": "1Gi"}, used={"cpu": "1", "memory": "0"}))]
    )
    assert set(rooms) == {"requests.cpu", "requests.memory"}


def selector(scope, operator="Exists", *values):
    return {
        "scopeSelector": {
            "matchExpressions": [{"scopeName": scope, "operator": operator, "values": list(values)}]
        }
    }


@pytest.mark.parametrize(
    ("spec", "applies"),
    [
        ({}, True),
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        (selector("NotBestEffort"), True),
        (selector("Terminating"), False),
        (selector("PriorityClass", "In", "high"), False),
        (selector("PriorityClass", "NotIn", "high"), True),
        (selector("PriorityClass", "Exists"), False),
        (selector("PriorityClass", "DoesNotExist"), True),
        (selector("VolumeAttributesClass", "In", "gold"), False),
    ],
)
def test_scopes(spec, applies):
    read = parse_quota(quota(hard={"pods": "0"}, used={"pods": "0"}, **spec))
    assert read.applies is applies
    assert bool(headroom([read])) is applies


def test_scopes_follow_the_pod_in_question():
    terminating = quota(hard={"pods": "0"}, scopes=["Terminating"])
    assert parse_quota(terminating, terminating=True).applies
    assert parse_quota(quota(**selector("PriorityClass", "In", "high")), priority_class="high").applies
    assert parse_quota(quota(scopes=["BestEffort"]), best_effort=True).applies


def test_a_compute_quota_wants_every_value_it_limits():
    demand = effective_request(Asked(cpu_request=Decimal(1)), parse_limit_ranges([]))
    assert unspecified(demand.as_quota(), ROOMS) == ("requests.memory", "limits.memory")


def test_the_whole_order_as_quota_keys():
    demand = Demand(Decimal(1), Decimal(2), Decimal(GIB), Decimal(2 * GIB))
    assert demand.as_quota(
        device_classes={"v100-shared-8g": 1}, storage=Decimal(20 * GIB), storage_class="fast"
    ) == {
        "requests.cpu": 1,
        "limits.cpu": 2,
        "requests.memory": GIB,
        "limits.memory": 2 * GIB,
        "pods": 1,
        "count/pods": 1,
        DEVICES: 1,
        "count/resourceclaims.resource.k8s.io": 1,
        "requests.storage": 20 * GIB,
        "persistentvolumeclaims": 1,
        "fast.storageclass.storage.k8s.io/requests.storage": 20 * GIB,
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": 1,
        "count/persistentvolumeclaims": 1,
    }


@pytest.mark.parametrize(
    ("asked", "items", "field", "rule"),
    [
        (
            Asked(cpu_limit=Decimal(5)),
            [{"type": "Container", "max": {"cpu": "4"}}],
            "cpu_request",
            "above-maximum",
        ),
        (
            Asked(cpu_request=Decimal(1), cpu_limit=Decimal(5)),
            [{"type": "Container", "max": {"cpu": "4"}}],
            "cpu_limit",
            "above-maximum",
        ),
        (
            Asked(memory_request=Decimal(GIB), memory_limit=Decimal(GIB)),
            [{"type": "Container", "min": {"memory": "2Gi"}}],
            "memory_request",
            "below-minimum",
        ),
        (
            Asked(cpu_request=Decimal(1), cpu_limit=Decimal(5)),
            [{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}],
            "cpu_limit",
            "above-ratio",
        ),
        (Asked(), [{"type": "Pod", "max": {"cpu": "4"}}], "cpu_limit", "value-missing"),
        (Asked(), [{"type": "Pod", "min": {"memory": "1Gi"}}], "memory_request", "value-missing"),
        (Asked(cpu_request=Decimal(2), cpu_limit=Decimal(1)), [], "cpu_limit", "limit-below-request"),
    ],
)
def test_what_a_limit_range_refuses(asked, items, field, rule):
    refused = effective_request(asked, parse_limit_range(limit_range(*items)))
    assert isinstance(refused, Refused)
    assert (field, rule) in [(each.field, each.rule) for each in refused.objections]
    assert all("%(" not in f"{each.sentence}{each.mend}" for each in refused.objections)


def test_a_limit_range_is_completed_as_the_api_server_does():
    limits = parse_limit_range(limit_range({"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "1"}}))
    assert effective_request(Asked(), limits) == Demand(cpu_request=Decimal(4), cpu_limit=Decimal(4))
    limits = parse_limit_range(limit_range({"type": "Container", "min": {"cpu": "1"}}))
    assert effective_request(Asked(), limits) == Demand(cpu_request=Decimal(1))


def test_several_limit_ranges_bind_together():
    limits = parse_limit_ranges(
        [
            limit_range({"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "4"}}),
            limit_range({"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "3"}}),
            limit_range({"type": "Pod", "min": {"cpu": "500m"}}),
            limit_range(
                {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "50Gi"}}
            ),
        ]
    )
    assert (limits.default["cpu"], limits.maximum["cpu"], limits.minimum["cpu"]) == (1, 3, Decimal("0.5"))
    assert (limits.storage_minimum, limits.storage_maximum) == (GIB, 50 * GIB)


def test_the_recorded_limit_range_gives_what_the_quota_charged():
    recorded = json.loads((RECORDED / "limitrange-defaults.json").read_text())
    demand = effective_request(Asked(), parse_limit_ranges(recorded["LimitRangeList"]))
    used = parse_quota(recorded["ResourceQuotaList"][0]).used
    counted = demand.as_quota(device_classes={"kube-dc-nvidia-v100-shared-8g": 1}, storage=Decimal(0))
    assert {key: counted[key] for key in used} == used
    resources = recorded["PodList"][0]["spec"]["containers"][0]["resources"]
    assert demand == Demand(
        parse(resources["requests"]["cpu"]),
        parse(resources["limits"]["cpu"]),
        parse(resources["requests"]["memory"]),
        parse(resources["limits"]["memory"]),
    )


def test_amounts_have_their_unit():
    assert amount("requests.cpu", Decimal("0.3")) == Cpu(Decimal(300))
    assert amount("requests.storage", Decimal("1.5")) == Memory(2)
    assert amount("fast.storageclass.storage.k8s.io/requests.storage", Decimal(1)) == Memory(1)
    assert amount("pods", Decimal(3)) == Count(3)
    assert amount(DEVICES, Decimal(1)) == Count(1)


amounts = st.decimals(0, 100, places=3)


@given(st.lists(st.tuples(amounts, amounts), min_size=1, max_size=5), amounts)
def test_what_fits_overdraws_no_quota_and_what_does_not_overdraws_one(lines, needed):
    quotas = [
        Quota(str(index), {"requests.cpu": hard}, {"requests.cpu": used})
        for index, (hard, used) in enumerate(lines)
    ]
    overdrawn = needed > 0 and any(used + needed > hard for hard, used in lines)
    shortages = fits({"requests.cpu": needed}, headroom(quotas))
    assert bool(shortages) is overdrawn
    if shortages:
        assert shortages[0].short_by == max(used + needed - hard for hard, used in lines)
