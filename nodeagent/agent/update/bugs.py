"""Unexpected exceptions: bugs of nodeagent, or exhausted memory.

Each start of the agent would meet them again, perhaps with the lease held. So they end an update, or refuse one, like
any other fault.
"""

from __future__ import annotations

from nodeagent import log
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason

__all__ = ["bug"]


def bug(error: Exception, where: str) -> Terminal:
    """Logs the traceback. The message has no word of the exception, which may quote a config."""
    words = f"a bug in nodeagent: {type(error).__name__} in {where}"
    log.get(__name__).error(words, reason=Reason.INTERNAL_ERROR, exc_info=error)
    return Terminal(words, reason=Reason.INTERNAL_ERROR)
