"""A plan as people and programs see it: the moves, what they cost and what they are good for."""

from __future__ import annotations

from penstock.cli.cluster.health import Skew, skew
from penstock.cli.cluster.moves import Move, after, bytes_to_move
from penstock.cli.cluster.state import ClusterState
from penstock.cli.output import bytes_text, plural, print_json, print_table, remark

ROWS_SHOWN_MAX = 50


def print_moves(state: ClusterState, moves: list[Move], *, as_json: bool) -> None:
    """The plan on stdout."""
    before, then = skew(state), skew(after(state, moves))
    if as_json:
        print_json(
            {
                "moves": [
                    {
                        "topic": move.topic,
                        "partition": move.number,
                        "now": list(move.now),
                        "new": list(move.new),
                        "bytes": bytes_to_move(state, [move]),
                    }
                    for move in moves
                ],
                "bytes": bytes_to_move(state, moves),
                "skew_before": _rounded(before),
                "skew_after": _rounded(then),
            }
        )
        return
    if moves:
        _print_table(state, moves)
    print(
        f"{plural(len(moves), 'move')}, {bytes_text(bytes_to_move(state, moves))} to copy; skew"
        f" (largest/mean) of leaders {before.leaders:.2f} -> {then.leaders:.2f}, replicas"
        f" {before.replicas:.2f} -> {then.replicas:.2f}, disk {before.disk:.2f} -> {then.disk:.2f}"
    )


def _print_table(state: ClusterState, moves: list[Move]) -> None:
    rows = [
        (
            move.topic,
            move.number,
            ",".join(map(str, move.now)),
            ",".join(map(str, move.new)),
            bytes_text(bytes_to_move(state, [move])),
        )
        for move in moves[:ROWS_SHOWN_MAX]
    ]
    print_table(("topic", "partition", "now", "new", "to copy"), rows)
    if len(moves) > len(rows):
        remark(f"and {len(moves) - len(rows)} more; --format json or --save shows all")


def _rounded(of: Skew) -> dict[str, float]:
    return {name: round(value, 3) for name, value in of._asdict().items()}
