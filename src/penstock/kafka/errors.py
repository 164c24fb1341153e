"""What goes wrong between a client and a cluster, in words for whoever runs the program.

Every message says what happened, where (setting, topic, broker) and what to do.
"""

from __future__ import annotations

from penstock.base.errors import PenstockError


class ClientError(PenstockError):
    """The program cannot go on."""


class SettingError(ClientError, ValueError):
    """A setting is missing, unknown, or its value makes no sense."""


class ClusterError(ClientError):
    """The cluster cannot be reached, or refuses."""


class SecurityError(ClusterError):
    """A broker refuses who we are, or is not who it should be. It will be so the next time, too."""
