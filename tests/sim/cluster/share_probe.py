"""Two members of a group of their own, when all is well: one has records and is lost, and the other
has them at once, long before their lock runs out.
"""

from __future__ import annotations

import asyncio

from .checks import holds
from .share_history import SharePlace
from .share_members import ShareMember

PROBE_GROUP = "p"
READY_S_MAX = 60.0
FREE_S_MAX = 3.0
"""Until the records of a member that is lost are another's; their lock is in force for longer."""


async def probe(lost: ShareMember, other: ShareMember) -> None:
    now = asyncio.get_running_loop().time
    other.calm = True
    give_up = now() + READY_S_MAX
    while not lost.in_hand():
        holds(now() < give_up, f"{lost.wire.name} is given nothing of what is there")
        await lost.round()
    had = lost.in_hand()
    other.does_as(lost)
    await other.fetch()
    lost.die()
    since = now()
    while left := [at for at in had if not _is_anothers(lost, *at)]:
        holds(
            now() < since + FREE_S_MAX,
            f"{lost.wire.name} was lost, and {FREE_S_MAX} s later nobody has got {left[:3]}, "
            "which it had",
        )
        await other.fetch()
    await other.leave()


def _is_anothers(lost: ShareMember, place: SharePlace, offset: int) -> bool:
    held = lost.history.of(place, offset).held
    return held is not None and held.receipt.member != lost.member_id
