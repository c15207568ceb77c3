"""How long we wait for rpm-ostree, and why that long. Seconds; tests pass shorter ones."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    call: float = 300.0
    """One method call. A cold start loads the sysroot first, and its own unit has five minutes for that; the daemon's
    own command line waits as long."""

    short: float = 30.0
    """A call to a daemon that runs already and only has to look something up."""

    connect: float = 3.0
    """Connecting to the socket of a transaction. It listens before we are told its address, so this is generous."""

    stall: float = 3600.0
    """Without any signal, before the transaction is cancelled. rpm-ostree reports only the start and the end of each
    layer of a container image, and a layer of 1 GB takes 55 minutes at 300 kB/s, the slowest link that is expected."""

    total: float = 6 * 3600.0
    """One transaction, however busily it reports. A slow SD card was seen to take hours."""

    cancel: float = 180.0
    """From Cancel to Finished. Between two points at which the daemon looks whether it was cancelled lie a sync of a
    whole file system, or a script of a package."""

    leave: float = 5.0
    """The same when we are cancelled ourselves: somebody waits for us to go."""

    restart: float = 120.0
    """Restarting rpm-ostreed.service; systemd kills it after 90 seconds."""

    busy: float = 1800.0
    """For a transaction of another client. An interactive upgrade takes minutes. After that the client is reported,
    and the staging is retried later."""

    busy_pause: float = 1.0
    """Between two tries while it is busy; doubled up to ``busy_pause_max``, with jitter."""

    busy_pause_max: float = 30.0

    retry_pause: float = 0.5
    """After the daemon left with our call in its hands (idle exit, crash), before asking again."""

    unlock: float = 120.0
    """``ostree admin lock-finalization``. It waits for the lock of the sysroot, which a cleanup can hold."""

    redeploy: float = 900.0
    """``ostree admin deploy`` of a tree that is in the repository: hard links, a kernel, and a few syncs of a whole
    file system, each of which waits for everything that others wrote."""
