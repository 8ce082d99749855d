"""Whether a live process on this machine publishes an attempt of a run. Such a process holds a mark, which goes with
it.

The mark is an abstract socket address, as Linux has them. It needs no folder and leaves nothing behind, however the
process ends. Each container has addresses of its own, as each machine has, so a process in another container is not
seen.
"""

from __future__ import annotations

import errno
import hashlib
import socket
import sys
import weakref
from collections.abc import Iterable, Mapping

from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.export.targets.target import Target
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.run.identity import RunIdentity
from akka_otel_callbacks.common.vocabulary import names

PREFIX = "\0akka-otel-run-"


class Presence:
    """The mark of one attempt.

    Args:
        run_id: the run's ID.
        attempt: the attempt's number.
        targets: where its figures go. Two processes with different targets do not collide.
    """

    def __init__(self, run_id: str, attempt: int, targets: Iterable[Target]) -> None:
        told_apart = repr((run_id, attempt, sorted(target.place for target in targets)))
        self._address = PREFIX + hashlib.sha256(told_apart.encode(errors="replace")).hexdigest()[:32]
        self._mark: socket.socket | None = None

    def take(self) -> bool:
        """Holds the mark from now on. False if another process holds it, or another training of this one. On a system
        without such marks it is True."""
        self._mark, free = self._bound()
        call_in_children(weakref.WeakMethod(self.leave))  # a child may live longer than the training
        return free

    def leave(self) -> None:
        """Lets go of the mark, if it is held."""
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.close()

    def is_taken(self) -> bool:
        """Whether anybody holds the mark now."""
        mark, free = self._bound()
        if mark is not None:
            mark.close()
        return not free

    def _bound(self) -> tuple[socket.socket | None, bool]:
        """A socket that holds the mark now, and whether the mark was free, as far as anybody can tell."""
        if sys.platform != "linux":
            return None, True
        mark = None
        try:
            mark = socket.socket(socket.AF_UNIX)  # nobody can connect to it, because it does not listen
            mark.bind(self._address)
        except OSError as error:
            if mark is not None:
                mark.close()
            return None, error.errno != errno.EADDRINUSE
        return mark, True


def is_published(environ: Mapping[str, str], attempt: Attempt) -> bool:
    """Whether a live process publishes the attempt to where this environment would send it."""
    return Presence(attempt.run_id, attempt.number, select(environ, attempt.run_id).metrics).is_taken()


def appear(identity: RunIdentity, targets: Iterable[Target]) -> tuple[RunIdentity, Presence]:
    """Lets other processes see that this one publishes an attempt.

    Returns:
        who publishes, and its mark. If another live process publishes the attempt to the same targets, the identity has
        an instance ID of its own, which tells their series apart.
    """
    presence = Presence(identity.run_id, identity.attempt, targets)
    if presence.take():
        return identity, presence
    logger.warning(
        "a live process publishes attempt %d of run %s already. A query of that attempt finds the figures of "
        "both. Give each training an ID of its own (%s in OTEL_RESOURCE_ATTRIBUTES, or run_id=), or leave out "
        "the attempt's number, which is then counted",
        identity.attempt,
        identity.run_id,
        names.ATTR_RUN_ID.name,
    )
    return identity.beside_another(), presence
