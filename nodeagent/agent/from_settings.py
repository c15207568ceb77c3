"""The limits of an update, from the settings."""

from __future__ import annotations

from nodeagent.agent.update.run import UpdatePolicy
from nodeagent.core.coordination.windows import Schedule
from nodeagent.settings.schema import Settings

__all__ = ["update_policy"]


def update_policy(settings: Settings, windows: Schedule | None = None) -> UpdatePolicy:
    return UpdatePolicy(
        action_timeout=settings.actions.timeout,
        settle=settings.actions.settle,
        verify_timeout=settings.verify.timeout,
        inhibitor_wait=settings.reboot.inhibitor_wait,
        inhibitor_override=settings.reboot.inhibitor_override,
        warn_users=settings.reboot.warn_users,
        may_reboot=settings.reboot.allow,
        revert=settings.on_failure == "revert",
        windows=windows,
        drain_timeout=settings.drain.timeout,
        drain_or_reboot=settings.drain.on_deadline == "reboot",
    )
