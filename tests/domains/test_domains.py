# SPDX-License-Identifier: Apache-2.0
"""The built-in policy as a whole, and what each domain declares."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pkgutil import iter_modules

import pytest

from nodeagent import domains, installed
from nodeagent.core.config.machineconfig import FileEntry, UnitEntry
from nodeagent.core.plan.change import Action, PolicySource
from nodeagent.core.plan.domain import Checker, Domain, HttpHealth, SocketHealth, owns
from nodeagent.core.plan.sides import HostView
from nodeagent.domains import (
    DOMAINS,
    changed_contents,
    check_update,
    checker_of,
    default_policy,
    domain_of,
    health_of,
    validate,
)
from nodeagent.errors import InvalidInput
from tests.support.configs import config

# The table of the field (machine-config-operator, apihelpers), written out once more on purpose.
FILES = {
    "/var/lib/kubelet/config.json": ["None"],
    "/etc/machine-config-daemon/no-reboot/containers-gpg.pub": ["Reload crio.service"],
    "/etc/containers/policy.json": ["Reload crio.service"],
    "/etc/containers/registries.conf": "special",
    "/etc/containers/registries.d": ["Reload crio.service"],
    "/etc/crio/policies": ["Reload crio.service"],
    # Not in that table, where these are unlisted.
    "/etc/containers/registries.conf.d": "special",
    "/etc/kubernetes/kubelet-ca.crt": ["None"],
    "/etc/kubernetes/kubelet.conf": "special",
    "/etc/kubernetes/kubelet.conf.d": "special",
    "/etc/openshift/kubelet.conf.d": "special",
    "/var/lib/kubelet/config.yaml": "special",
    "/etc/default/kubelet": "special",
    "/etc/sysconfig/kubelet": "special",
    "/etc/nmstate/openshift": ["None"],
    "/etc/containerd": "special",
    "/etc/containerd/config.toml": "special",
    "/etc/crio/crio.conf": "special",
    "/etc/crio/crio.conf.d": "special",
    "/etc/nodeagent/config.d": ["Reload nodeagent.service"],
    "/etc/nodeagent/policy.d": ["None"],
    "/etc/nodeagent/policy.yaml": ["None"],
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt": [
        "Restart coreos-update-ca-trust.service",
        "Restart crio.service",
    ],
    "/etc/kubernetes/manifests": "special",
    "/etc/default/etcd": "special",
    "/etc/etcd/etcd.conf": "special",
    "/etc/etcd/etcd.conf.yaml": "special",
    "/etc/etcd/etcd.conf.yml": "special",
    "/etc/kubernetes/credential-providers": ["Restart kubelet.service"],
    "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf": [
        "DaemonReload",
        "Restart kubelet.service",
    ],
    "/etc/iri-registry": ["Restart iri-registry.service"],
    "/usr/local/bin/load-registry-image.sh": ["Restart iri-registry.service"],
    "/etc/pki/ca-trust/source/anchors/iri-root-ca.crt": ["Restart coreos-update-ca-trust.service"],
}


def words(actions: tuple[Action, ...]) -> list[str]:
    return [f"{action.type} {action.unit}".strip() for action in actions]


def test_the_whole_default_policy() -> None:
    policy = default_policy()
    of_features = {tree.path for tree in installed.trees()} | {
        key for domain in installed.domains() for key in domain.files
    }
    entries_of_files = {key: e for key, e in policy.files.items() if key not in of_features}
    files = {key: "special" if e.rule else words(e.actions) for key, e in entries_of_files.items()}
    assert files == FILES, (
        "an entry of the built-in policy decides about every host, so it is written down here as well, in FILES"
    )
    units_of_features = {key for domain in installed.domains() for key in domain.units}
    entries_of_units = {key: e for key, e in policy.units.items() if key not in units_of_features}
    assert {key: "special" if e.rule else words(e.actions) for key, e in entries_of_units.items()} == {
        "kubelet.service": "special",
        "etcd.service": ["DaemonReload", "Restart etcd.service"],
        "iri-registry.service": ["DaemonReload", "Restart iri-registry.service"],
        "nodeagent.service": ["DaemonReload", "Restart nodeagent.service"],
    }
    assert policy.sshkey is not None
    assert words(policy.sshkey.actions) == ["None"]
    entries = [*policy.files.values(), *policy.units.values(), *policy.fields.values(), policy.sshkey]
    assert {entry.source for entry in entries} == {PolicySource.DEFAULT}
    assert all(bool(entry.rule) == bool(entry.summary) for entry in entries)


def test_no_two_domains_claim_one_key() -> None:
    for table in ("files", "units", "fields"):
        keys = [key for domain in DOMAINS for key in getattr(domain, table)]
        assert len(keys) == len(set(keys))
    assert sum(bool(domain.sshkey) for domain in DOMAINS) == 1
    assert len({domain.name for domain in DOMAINS}) == len(DOMAINS)


def test_every_domain_is_listed() -> None:
    modules = [importlib.import_module(f"{domains.__name__}.{info.name}") for info in iter_modules(domains.__path__)]
    found = [value.name for module in modules for value in vars(module).values() if isinstance(value, Domain)]
    found += [domain.name for domain in installed.domains()]
    assert sorted(found) == sorted(domain.name for domain in DOMAINS)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/etc/a", "/etc/a", True),
        ("/etc/a", "/etc/a/b", False),
        ("/etc/a/", "/etc/a/b/c", True),
        ("/etc/a/", "/etc/ab", False),
        ("/etc/a/*.conf", "/etc/a/x.conf", True),
        ("/etc/a/*.conf", "/etc/a/x.conf.bak", False),
        ("/etc/a/*.conf", "/etc/a/b/x.conf", False),
        ("/etc/*.d/*.conf", "/etc/a.d/x.conf", True),
        ("/etc/*.d/*.conf", "/etc/a/x.conf", False),
    ],
)
def test_owns(pattern: str, path: str, expected: bool) -> None:
    assert owns(pattern, path) is expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/etc/containers/registries.conf", "container registries and mirrors"),
        ("/etc/containers/registries.conf.d/10-x.conf", "container registries and mirrors"),
        ("/etc/containers/registries.d/x.yaml", "image signature policies"),
        ("/etc/pki/ca-trust/source/anchors/corp.pem", "trusted certificate authorities"),
        ("/etc/ssh/sshd_config.d/10-x.conf", "ssh keys, passwords and the ssh server"),
        ("/etc/sudoers.d/x", "sudo rules"),
        ("/etc/systemd/system/x.service.d/10.conf", "systemd units"),
        ("/etc/hosts", None),
    ],
)
def test_domain_of(path: str, name: str | None) -> None:
    domain = domain_of(path)
    assert (domain.name if domain else None) == name


@pytest.mark.parametrize(
    ("path", "checker"),
    [
        ("/etc/ssh/sshd_config", Checker.SSHD),
        ("/etc/ssh/ssh_config", None),
        ("/etc/sudoers.d/x", Checker.VISUDO),
        ("/etc/systemd/system/x.service", Checker.SYSTEMD_ANALYZE),
        ("/etc/systemd/system/x@.service.d/10.conf", Checker.SYSTEMD_ANALYZE),
        ("/etc/systemd/system/README", None),
        ("/etc/systemd/system.conf", None),
    ],
)
def test_checker_of(path: str, checker: Checker | None) -> None:
    assert checker_of(path) is checker


def test_health() -> None:
    assert health_of("kubelet.service", HostView()) == (
        HttpHealth("kubelet.service", "http://127.0.0.1:10248/healthz"),
    )
    assert health_of("crio.service", HostView()) == (SocketHealth("crio.service", "/run/crio/crio.sock"),)
    assert health_of("chronyd.service", HostView()) == ()


def test_a_hidden_drop_in_of_registries_is_named() -> None:
    directory = "/etc/containers/registries.conf.d"
    names = (".a.conf", "a.conf", "b.conf.bak", "more/.c.conf")
    view = HostView({f"{directory}/{name}": b"" for name in names})
    found = domains.warnings(config(), config(), view)
    assert [problem.path for problem in found] == [f"{directory}/.a.conf"]


# --- validation of what changes


def test_changed_contents() -> None:
    old = config(files={"/etc/a": b"1", "/etc/b": b"1", "/etc/gone": b"1"}, units={"u.service": "1", "v.service": "1"})
    new = replace(
        old,
        files={
            "/etc/a": FileEntry("/etc/a", b"1", mode=0o600),  # only the mode
            "/etc/b": FileEntry("/etc/b", b"2"),
            "/etc/new": FileEntry("/etc/new", b"1"),
        },
        units={
            "u.service": UnitEntry("u.service", "1", dropins={"10.conf": "x"}),
            "v.service": UnitEntry("v.service", mask=True),
        },
    )
    assert changed_contents(old, new) == {
        "/etc/b": b"2",
        "/etc/new": b"1",
        "/etc/systemd/system/u.service.d/10.conf": b"x",
    }
    assert changed_contents(new, new) == {}


BAD = {
    "/var/lib/kubelet/config.json": b"x",
    "/etc/ostree/auth.json": b"x",
    "/etc/containers/registries.conf": b"[[",
    "/etc/containers/registries.conf.d/10-x.conf": b"[registries.search]\nregistries = ['a']\n",
    "/etc/containers/policy.json": b"x",
    "/etc/crio/policies/ns.json": b"x",
    "/etc/pki/ca-trust/source/anchors/x.pem": b"x",
    "/etc/systemd/system/x.service": b"x",
    "/etc/systemd/system/x.service.d/10.conf": b"x",
}


@pytest.mark.parametrize("path", BAD)
def test_a_bad_file_is_refused_with_its_path(path: str) -> None:
    problems = validate(config(), config(files={path: BAD[path]}))
    assert [problem.path for problem in problems] == [path]


def test_all_findings_at_once() -> None:
    problems = validate(config(), config(files=BAD, units={"u.service": "garbage"}))
    assert {problem.path for problem in problems} == {*BAD, "/etc/systemd/system/u.service"}


def test_what_stays_as_it_is_is_not_judged() -> None:
    bad = config(files=BAD)
    assert validate(bad, bad) == ()
    assert validate(bad, config()) == ()


def test_unknown_files_may_hold_anything() -> None:
    assert validate(config(), config(files={"/etc/x": b"\xff\0"})) == ()


def test_plan_and_daemon_report_invalid_content_and_an_impossible_change_at_once() -> None:
    secret = "/var/lib/kubelet/config.json"
    old = config("old", files={secret: b"{}"})
    new = config("new", files={secret: b"no JSON"}, fips=True)
    with pytest.raises(InvalidInput) as caught:
        check_update(old, new, "new")
    assert caught.value.reason == "InvalidContent"
    assert [problem.path for problem in caught.value.problems] == [secret, "spec.fips"]
