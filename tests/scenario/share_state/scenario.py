"""The scenario language of the share coordinator: one event per line in, effects as lines out.

An event is `t=MILLISECONDS VERB ...`. A share-partition is called by its topic (`a`, `b` or `c`,
each of three partitions) and its number: `a-0`, of the group `g` unless it says `of=GROUP`.
Indented below an event stands what must come of it:

    a-0: answer                     NONE, an error, or what is known
    + a-0 snapshot ...              a record that is written: a snapshot, an update, or `gone`
    < OFFSET                        the log may begin there

    init a-0 [epoch=N] [start=N]    InitializeShareGroupState; 0 and -1 unless it says
    read a-0 [leader=N]             ReadShareGroupState; leader epoch 0 unless it says
    write a-0 [epoch=N] [leader=N] [start=N] [done=N] [BATCH ...]
                                    WriteShareGroupState; a batch is FIRST-LAST:STATE*COUNT, where
                                    the state is `free`, `acked`, `dying` or `dead`; ~N is its
                                    cause, ! says that it replaces what was; epochs 0, start -1
    delete a-0                      DeleteShareGroupState
    summary a-0                     ReadShareGroupStateSummary
    prune, cold                     what happens from time to time
    crash [lost=N]                  another coordinator takes over; the last records, which were
                                    not committed, are lost
    drop TOPIC [unheard]            a topic is deleted; `unheard`: while nobody coordinates
    config updates=N cold=MS        and a new coordinator that has these settings

After every event the shard must equal the one that is built from what is left of its records. Run
with `PENSTOCK_REWRITE=1` to write the present output into the files, then read the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import CoordinatorRecord, Effects
from penstock.coordinator.share_state import ShareStateConfig
from penstock.coordinator.share_state.records import ShareSnapshotValue, decode
from penstock.wire.messages import delete_share_group_state as delete
from penstock.wire.messages import initialize_share_group_state as initialize
from penstock.wire.messages import read_share_group_state as read
from penstock.wire.messages import read_share_group_state_summary as summary
from penstock.wire.messages import write_share_group_state as write
from unit.coordinator.share_state.rig import Rig

STATES = {"free": 0, "acked": 2, "dying": 3, "dead": 4}
NAMES = {number: name for name, number in STATES.items()}


class Scenario:
    def __init__(self) -> None:
        self.rig: Any = Rig()

    def run(self, line: str) -> Iterator[str]:
        when, verb, *words = line.split()
        self.rig.now = int(when.removeprefix("t="))
        options = dict(word.split("=", 1) for word in words if "=" in word)
        rest = [word for word in words if "=" not in word]
        method: Callable[..., Iterator[str]] = getattr(self, f"do_{verb}")
        yield from method(rest, options)

    # -- requests ------------------------------------------------------------------------------

    def do_init(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        named = initialize.PartitionData(
            state_epoch=int(options.get("epoch", 0)), start_offset=int(options.get("start", -1))
        )
        kind = initialize.InitializeShareGroupStateRequest
        yield from self._ask(kind, words[0], named, options, lambda _: "NONE")

    def do_read(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        named = read.PartitionData(leader_epoch=int(options.get("leader", 0)))

        def shown(found: Any) -> str:
            batches = batches_shown(found.state_batches)
            return f"epoch {found.state_epoch} start {found.start_offset} {batches}"

        yield from self._ask(read.ReadShareGroupStateRequest, words[0], named, options, shown)

    def do_write(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        named = write.PartitionData(
            state_epoch=int(options.get("epoch", 0)),
            leader_epoch=int(options.get("leader", 0)),
            start_offset=int(options.get("start", -1)),
            delivery_complete_count=int(options.get("done", 0)),
            state_batches=[batch(word) for word in words[1:]],
        )
        kind = write.WriteShareGroupStateRequest
        yield from self._ask(kind, words[0], named, options, lambda _: "NONE")

    def do_delete(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        kind = delete.DeleteShareGroupStateRequest
        yield from self._ask(kind, words[0], delete.PartitionData(), options, lambda _: "NONE")

    def do_summary(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        def shown(found: Any) -> str:
            return (
                f"epoch {found.state_epoch} leader {found.leader_epoch}"
                f" start {found.start_offset} done {found.delivery_complete_count}"
            )

        kind = summary.ReadShareGroupStateSummaryRequest
        named = summary.PartitionData(leader_epoch=-1)
        yield from self._ask(kind, words[0], named, options, shown)

    def _ask(
        self,
        kind: type[Any],
        name: str,
        named: Any,
        options: dict[str, str],
        shown: Callable[[Any], str],
    ) -> Iterator[str]:
        topic, _, index = name.partition("-")
        named.partition = int(index)
        found, effects = self.rig.ask(kind, topic, named, options.get("of", "g"))
        code = ErrorCode(found.error_code)
        yield f"{name}: {shown(found) if code is ErrorCode.NONE else code.name}"
        yield from effects_shown(effects)

    # -- the world -----------------------------------------------------------------------------

    def do_prune(self, _: list[str], __: dict[str, str]) -> Iterator[str]:
        yield from effects_shown(self.rig.prune())

    def do_cold(self, _: list[str], __: dict[str, str]) -> Iterator[str]:
        yield from effects_shown(self.rig.snapshot_cold())

    def do_crash(self, _: list[str], options: dict[str, str]) -> Iterator[str]:
        yield from effects_shown(self.rig.crash(int(options.get("lost", 0))))

    def do_drop(self, words: list[str], _: dict[str, str]) -> Iterator[str]:
        topic, *how = words
        yield from effects_shown(self.rig.delete_topic(topic, told=how != ["unheard"]))

    def do_config(self, _: list[str], options: dict[str, str]) -> Iterator[str]:
        self.rig.config = ShareStateConfig(
            int(options.get("updates", 500)), int(options.get("cold", 300_000))
        )
        yield from effects_shown(self.rig.crash())


# -- what is written, and how it is shown ------------------------------------------------------


def batch(word: str) -> write.StateBatch:
    offsets, _, rest = word.partition(":")
    first, _, last = offsets.partition("-")
    said, _, cause = rest.rstrip("!").partition("~")
    state, _, count = said.partition("*")
    return write.StateBatch(
        first_offset=int(first),
        last_offset=int(last),
        delivery_state=STATES[state],
        delivery_count=int(count),
        cause=int(cause or 0),
        replaces=rest.endswith("!"),
    )


def effects_shown(effects: Effects) -> Iterator[str]:
    for record in effects.records:
        yield f"+ {record_shown(record)}"
    for action in effects.actions:
        yield f"< {action.offset}"


def record_shown(record: CoordinatorRecord) -> str:
    decoded = decode(*record)
    assert decoded is not None
    key, value = decoded
    group = "" if key.group_id == "g" else f" of {key.group_id}"
    name = f"{key.topic_id.strip(bytes(1)).decode()}-{key.partition}{group}"
    if value is None:
        return f"{name} gone"
    parts = [name]
    if isinstance(value, ShareSnapshotValue):
        parts.append(f"snapshot {value.snapshot_epoch}: epoch {value.state_epoch}")
    else:
        parts.append(f"update {value.snapshot_epoch}:")
    parts.append(f"leader {value.leader_epoch} start {value.start_offset}")
    parts.append(f"done {value.delivery_complete_count} {batches_shown(value.state_batches)}")
    if isinstance(value, ShareSnapshotValue):
        parts.append(f"made {value.create_timestamp} written {value.write_timestamp}")
    return " ".join(parts)


def batches_shown(batches: Iterable[Any]) -> str:
    shown = [
        f"{b.first_offset}-{b.last_offset}:{NAMES[b.delivery_state]}*{b.delivery_count}"
        + (f"~{b.cause}" if b.cause else "")
        for b in batches
    ]
    return f"[{', '.join(shown)}]"
