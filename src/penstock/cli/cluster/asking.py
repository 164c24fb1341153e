"""Requests to any broker of a cluster, or to a certain one, in the newest version both know.

The commands about the cluster speak the protocol themselves: most of what they ask has no call in
confluent-kafka, and they have to work while parts of the cluster are gone. Every request opens a
connection of its own, so that threads can ask side by side. What a broker refuses becomes one
sentence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from penstock import __version__
from penstock.base.errors import ErrorCode
from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.kafka import GREETING_S_MAX, Cluster
from penstock.kafka.client import Address
from penstock.kafka.connection import Connection
from penstock.wire.errors import WireError
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.schema import Message

ASKED_AT_ONCE_MAX = 16
API_VERSIONS_VERSION = 3
"""The first with features; every broker of Kafka 2.4 and later serves it."""

ALL_FEATURES_VERSION = 4
"""The first that tells features whose lowest level is 0, of Kafka 3.9 and later."""

_GREETING = ApiVersionsRequest(
    client_software_name="penstock-cli", client_software_version=__version__
)
_R = TypeVar("_R", bound=Message)


class Brokers:
    """The brokers of one cluster, as far as they are known."""

    def __init__(self, access: Access) -> None:
        self.cluster = Cluster(access)
        reached = self.cluster.reached.address
        self.addresses: list[Address] = sorted(access.addresses, key=lambda a: a != reached)
        greeting_s = min(GREETING_S_MAX, access.timeout_s)
        self._client = replace(access.client, connect_s=greeting_s, answer_s=greeting_s)
        """A broker that does not answer at once is given up for another."""

    @property
    def timeout_s(self) -> float:
        return self.cluster.timeout_s

    @property
    def timeout_ms(self) -> int:
        """What requests that carry a timeout are given; the answer still has time to arrive."""
        return max(100, int(self.timeout_s * 900))

    def learn(self, addresses: list[Address]) -> None:
        """Ask these, too, should the known ones be gone."""
        self.addresses += [address for address in addresses if address not in self.addresses]

    def ask(
        self, request: Message, answer: type[_R], doing: str, within_s: float | None = None
    ) -> _R:
        """The answer of the first broker that is alive; it has `within_s` if that is less."""
        timeout_s = min(self.timeout_s, within_s or self.timeout_s)
        for address in list(self.addresses):
            try:
                connection, served = self._greet(address)
            except OSError:
                self._ask_last(address)
                continue
            with connection:
                connection.wait_at_most(timeout_s)
                try:
                    return _call(connection, served, request, answer, doing)
                except TimeoutError:
                    # It waits for the controller, and so would the others.
                    raise CliError(
                        f"cannot {doing}: no answer within {timeout_s:g} s; if the quorum has a"
                        " leader (see `penstock cluster status`), wait longer with --timeout"
                    ) from None
                except OSError:
                    continue
        raise self.cluster.no_answer(doing)

    def _ask_last(self, silent: Address) -> None:
        """Who did not answer once is not waited for again while others do."""
        self.addresses = [a for a in self.addresses if a != silent] + [silent]

    def ask_at(self, address: Address, request: Message, answer: type[_R], doing: str) -> _R:
        """The answer of this very broker; an `OSError` when there is none."""
        connection, served = self._greet(address)
        with connection:
            return _call(connection, served, request, answer, doing)

    def greet_at(self, address: Address) -> ApiVersionsResponse:
        """What this very broker supports; an `OSError` when there is no answer."""
        connection, served = self._greet(address)
        with connection:
            if _newest(served, ApiVersionsResponse) < ALL_FEATURES_VERSION:
                return served
            return connection.call(_GREETING, ApiVersionsResponse, ALL_FEATURES_VERSION)

    def certificate_at(self, address: Address) -> bytes | None:
        """The certificate (DER) that this very broker shows; None without TLS, an `OSError` when
        there is no answer.
        """
        with Connection(address, self._client) as connection:
            return connection.certificate

    def _greet(self, address: Address) -> tuple[Connection, ApiVersionsResponse]:
        """A connection to a broker that has shown that it is alive."""
        connection = Connection(address, self._client)
        try:
            served = connection.call(_GREETING, ApiVersionsResponse, API_VERSIONS_VERSION)
        except BaseException:
            connection.close()
            raise
        connection.wait_at_most(self.timeout_s)
        return connection, served


def _call(
    connection: Connection,
    served: ApiVersionsResponse,
    request: Message,
    answer: type[_R],
    doing: str,
) -> _R:
    version = _common_version(served, answer, doing)
    try:
        return connection.call(request, answer, version)
    except WireError as e:
        raise CliError(
            f"cannot {doing}: the broker's release is too old or too new for it ({e.reason});"
            " use a penstock of the broker's release"
        ) from None


def _newest(served: ApiVersionsResponse, answer: type[Message]) -> int:
    """The newest version of the API that the broker serves; -1 if it serves none."""
    return max((a.max_version for a in served.api_keys if a.api_key == answer.API_KEY), default=-1)


def _common_version(served: ApiVersionsResponse, answer: type[Message], doing: str) -> int:
    """The newest version of the API that the broker and we both know."""
    ours = answer.VERSIONS
    for api in served.api_keys:
        if api.api_key == answer.API_KEY:
            version = min(api.max_version, ours[-1])
            if version >= max(api.min_version, ours[0]):
                return version
    raise CliError(
        f"cannot {doing}: the broker does not serve {answer.__name__.removesuffix('Response')}"
        " in a version that this command knows; use a penstock of the broker's release"
    )


def check(code: int, message: str | None, doing: str) -> None:
    """Raises the refusal of a broker as a sentence; nothing for NONE."""
    if code:
        raise CliError(f"cannot {doing}: {reason(code, message)}")


_ADVICE = {
    "NOT_CONTROLLER": "the quorum has no leader now; see `penstock cluster status`",
    "NOT_LEADER_OR_FOLLOWER": "the quorum has no leader now; see `penstock cluster status`",
    "REQUEST_TIMED_OUT": "the controller did not answer in time; see `penstock cluster status`",
    "NO_REASSIGNMENT_IN_PROGRESS": "nothing is being moved there",
    "PREFERRED_LEADER_NOT_AVAILABLE": "the preferred replica is not in sync",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "no replica that could lead is alive",
}


def reason(code: int, message: str | None) -> str:
    """What a broker's refusal means, with what to do about it where that is known."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    text = (message or "").strip().rstrip(".")
    advice = _ADVICE.get(name)
    if not text:
        return f"{name}; {advice}" if advice else name
    return f"{text} ({name})" + (f"; {advice}" if advice and "penstock" in advice else "")
