"""The roster: its counters, its vote, its leader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.classic.roster import Roster
from penstock.coordinator.effects import Caller

CALLER = Caller(1, 9, "c", "h")
NAMES = ("range", "roundrobin", "sticky")


def member(
    number: int, *names: str, static: bool = False, join: Caller | None = None
) -> ClassicMember:
    protocols = dict.fromkeys(names or ("range",), b"")
    instance = f"i{number}" if static else None
    return ClassicMember(f"m{number}", instance, "c", "h", 1000 * number, 100, protocols, join=join)


def roster(*members: ClassicMember) -> Roster:
    made = Roster()
    for one in members:
        made.add(one)
    return made


def test_the_vote_goes_to_what_most_want_of_what_all_can() -> None:
    group = roster(
        member(1, "range", "sticky", "roundrobin"),
        member(2, "sticky", "roundrobin"),
        member(3, "roundrobin", "sticky", "range"),
    )
    assert group.vote() == "sticky"


def test_a_tie_goes_to_the_oldest_member() -> None:
    group = roster(member(1, "sticky", "range"), member(2, "range", "sticky"))
    assert group.vote() == "sticky"
    group.remove("m1")
    group.add(member(3, "sticky", "range"))
    assert group.vote() == "range"


def test_a_vote_is_taken_anew_when_offers_change() -> None:
    one, two = member(1, "range", "sticky"), member(2, "range", "sticky")
    group = roster(one, two)
    assert group.vote() == "range"
    group.offer(one, {"sticky": b""})
    assert group.vote() == "sticky"


def test_the_oldest_member_follows_a_leader() -> None:
    group = roster(member(1), member(2), member(3))
    group.remove("m1")
    assert group.leader_id == "m2"
    group.remove("m3")
    assert group.leader_id == "m2"
    group.remove("m2")
    assert group.leader_id is None


def test_a_leader_must_have_joined() -> None:
    group = roster(member(1, static=True), member(2, join=CALLER))
    assert group.elect_joined_leader()
    assert group.leader_id == "m2"


def test_nobody_leads_where_nobody_joined() -> None:
    assert not roster(member(1, static=True)).elect_joined_leader()
    assert not roster().elect_joined_leader()


def test_a_static_member_hands_everything_over() -> None:
    old = member(1, static=True)
    old.assignment = b"x"
    group = roster(old, member(2))
    group.pending_sync.add("m1")
    new = group.replace_static(old, "m1b")
    assert (group.leader_id, group.static_ids, group.pending_sync) == (
        "m1b",
        {"i1": "m1b"},
        {"m1b"},
    )
    assert new.assignment == b"x"
    group.invariants()


def test_the_group_waits_as_long_as_its_most_patient_member() -> None:
    assert roster().rebalance_timeout_ms == 0
    assert roster(member(-1)).rebalance_timeout_ms == 0
    assert roster(member(3), member(5), member(4)).rebalance_timeout_ms == 5_000


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "offer", "park", "take", "replace", "expect"]),
            st.integers(0, 5),
            st.lists(st.sampled_from(NAMES[1:]), unique=True, max_size=2),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_the_counters_agree_with_the_members(
    steps: list[tuple[str, int, list[str], bool]],
) -> None:
    group = Roster()
    for step, number, names, flag in steps:
        offer = (*names, "range")
        known = group.members.get(f"m{number}")
        if step == "add" and known is None:
            group.add(member(number, *offer, static=flag, join=CALLER if flag else None))
        elif step == "remove":
            group.remove(f"m{number}")
        elif step == "expect" and known is None:
            group.pending.add(f"m{number}")
        elif known is None:
            continue
        elif step == "offer":
            group.offer(known, dict.fromkeys(offer, b""))
        elif step == "park":
            group.park_join(known, CALLER)
        elif step == "take":
            group.take_join(known)
        elif step == "replace" and known.instance_id is not None:
            group.take_join(known)
            group.replace_static(known, known.member_id)
        if len(group) and flag:
            assert all(group.vote() in m.protocols for m in group)
        group.invariants()
