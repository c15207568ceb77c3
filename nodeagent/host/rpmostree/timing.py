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

    stall: float = 1800.0
    """Without any signal. Of a container image only the begin and end of a layer are told; a layer of a gigabyte
    through a megabyte a second takes seventeen minutes in silence."""

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
    """For somebody else's transaction. An interactive upgrade takes minutes; who needs longer is told by name."""

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
