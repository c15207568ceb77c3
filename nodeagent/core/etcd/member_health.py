"""Judge whether the member of etcd on this host works after a change: by etcd's own answers.

The mirror pod in the API reports a member as ready for seconds after it ended, and ``/health`` of a learner is true. So
the list of members, the status of the member and ``/readyz`` decide.
"""

from __future__ import annotations

from nodeagent.core.etcd.quorum import EtcdSurvey, troubles


def member_trouble(survey: EtcdSurvey, expected: str = "") -> str:
    """Return what is wrong with the member on this host, "" if nothing is.

    ``expected`` is its id from before the change, "" if it is not known. A member with another id has lost its data.
    """
    ours = [member for member in survey.members if member.id == survey.us]
    if not ours:
        return "the member on this host is not one of its cluster"
    (member,) = ours
    if expected and member.id != expected:
        return f"it is another member than before: {int(member.id):x}, not {int(expected):x}"
    # A learner has no vote, and ``/health`` of it is true.
    if member.learner:
        return f"{member.title} is a learner"
    trouble = troubles(survey)[member.id]
    return f"{member.title} {trouble}" if trouble else ""
