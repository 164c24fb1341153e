"""A broker's heartbeats go on, whatever becomes of one."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.config.layers import BrokerSettings
from penstock.controlling.lifecycle import BrokerLifecycle, BrokerState
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from penstock.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from unit.net.served import run
from unit.serving.rig import until

FORGOTTEN = ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "who is it?")
FINE = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


class Controller:
    """Answers as it is told to, one after the other, and then as the last time."""

    committed_offset = 10

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls = 0

    async def ask(self, request: Any, **_: float) -> Any:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def lifecycle(controller: Controller) -> BrokerLifecycle:
    async def quorum_is_lost() -> bool:
        return False

    settings = BrokerSettings({"broker.heartbeat.interval.ms": "10"})
    request = BrokerRegistrationRequest(broker_id=1)
    return BrokerLifecycle(controller, settings, request, list, quorum_is_lost)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answers",
    [
        [RuntimeError("boom")],
        [FORGOTTEN, RuntimeError("boom")],
        [FORGOTTEN, RuntimeError("boom"), FORGOTTEN, BrokerRegistrationResponse(broker_epoch=7)],
    ],
    ids=["heartbeat", "registration", "registration-again"],
)
def test_heartbeats_go_on_after_an_error_that_nobody_foresaw(
    answers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        controller = Controller(*answers, FINE)
        broker = lifecycle(controller)
        await broker.run()
        assert broker.state is BrokerState.RUNNING
        calls = controller.calls
        await until(lambda: controller.calls > calls + 2)
        broker.stop()

    with caplog.at_level(logging.ERROR, "penstock.controlling"):
        run(test)
    [record] = caplog.records
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "boom"


def test_an_error_that_repeats_is_not_said_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        controller = Controller(RuntimeError("boom"))
        broker = lifecycle(controller)
        broker.state = BrokerState.RECOVERY
        broker._task = broker._loop.create_task(broker._beat())
        await until(lambda: controller.calls > 5)
        broker.stop()

    with caplog.at_level(logging.ERROR, "penstock.controlling"):
        run(test)
    assert len(caplog.records) == 1
