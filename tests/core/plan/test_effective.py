# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UserEntry
from nodeagent.core.plan.effective import Candidate, effective

PATHS = ["/etc/a", "/etc/b", "/etc/c"]
configs = st.dictionaries(st.sampled_from(PATHS), st.sampled_from([b"1", b"2", b"3"])).map(
    lambda files: MachineConfig("x", files={p: FileEntry(p, c) for p, c in files.items()})
)


def candidate(config: MachineConfig, disk: dict[str, bytes]) -> Candidate:
    return Candidate(config, {f"file:{p}" for p, f in config.files.items() if disk.get(p) != f.content})


@given(configs, configs, configs, st.dictionaries(st.sampled_from(PATHS), st.sampled_from([b"1", b"2", b"3"])))
def test_the_steps_from_there_always_lead_to_the_desired_disk(
    old: MachineConfig, failed: MachineConfig, new: MachineConfig, disk: dict[str, bytes]
) -> None:
    """Whatever mixture is on the disk: writing what differs and removing what is left over gives ``new``."""
    disk = {p: c for p, c in disk.items() if p in {*old.files, *failed.files, *new.files}}
    force = effective(old, [candidate(c, disk) for c in (old, failed, new)], new)
    for path in {*force.files, *new.files}:
        if path not in new.files:
            disk.pop(path, None)
        elif force.files.get(path) != new.files[path]:
            disk[path] = new.files[path].content
    assert disk == {p: f.content for p, f in new.files.items()}


@given(configs)
def test_what_already_matches_is_no_change(new: MachineConfig) -> None:
    disk = {p: f.content for p, f in new.files.items()}
    assert effective(MachineConfig(""), [candidate(new, disk)], new).files == dict(new.files)


def test_a_password_that_must_go_is_kept_in_sight_even_if_it_drifted() -> None:
    old = MachineConfig("a", users={"core": UserEntry("core", ("k",), "$6$x")})
    drifted = Candidate(old, {"password:core", "sshkey:core"})
    assert effective(old, [drifted], MachineConfig("b")).users == old.users


def test_a_user_with_nothing_is_there_from_the_start() -> None:
    """Or the first start of a host whose config has one would look like keys being taken away."""
    bare = {"core": UserEntry("core")}
    desired = MachineConfig("b", users=bare)
    assert effective(MachineConfig(""), [Candidate(desired, set())], desired).users == bare
