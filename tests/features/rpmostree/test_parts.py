# SPDX-License-Identifier: Apache-2.0
"""The pure parts of the adapter: what signals and texts mean, and which request is next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.image import OstreeCommit, parse_image
from nodeagent.core.plan.deployment import Deployment, OsTarget, unmet
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.features.rpmostree.failures import failure
from nodeagent.features.rpmostree.request import CLEANUP, next_request
from nodeagent.features.rpmostree.transaction import Progress
from nodeagent.host.ostree.failures import one_line
from tests.features.rpmostree.fake_rpmostree import plain

# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.finding(
    "rpm-ostreed: proxies that ended",
    "A proxy that ended is `RegistryUnreachable` only with a word of the network beside it.",
)
@pytest.mark.finding(
    "OS: images that cannot boot", "An image that no repetition can make bootable fails once, and is not pulled again."
)
@pytest.mark.finding("OS: space of image stores", "The text for too little space of an image store means NoSpace.")
@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        # containers/image, through skopeo's proxy and ostree-ext
        ("Creating importer: failed to invoke method OpenImage: failed to invoke method OpenImage: reading manifest v2"
         " in quay.io/r/c: unauthorized: access to the requested resource is not authorized", Terminal, "Unauthorized"),
        ("unable to retrieve auth token: invalid username/password: unauthorized", Terminal, "Unauthorized"),
        ("remote error: reading manifest testing in docker.io/u/i: requested access to the resource is denied",
         Terminal, "Unauthorized"),
        ("remote error: Requesting bearer token: invalid status code from registry 403 (Forbidden)",
         Terminal, "Unauthorized"),
        ("reading manifest lol in ghcr.io/ublue-os/aurora-dx: manifest unknown", Terminal, "ImageNotFound"),
        ("reading manifest sha256:1 in r/x: name unknown: repository name not known to registry",
         Terminal, "ImageNotFound"),
        ("fetching blob: invalid status code from registry 404 (Not Found)", Terminal, "ImageNotFound"),
        ("OpenImage: A signature was required, but no signature exists", Terminal, "SignatureInvalid"),
        ("cryptographic signature verification failed: invalid signature when validating ASN.1 encoded signature",
         Terminal, "SignatureInvalid"),
        ("Running image docker://ghcr.io/x:latest is rejected by policy.", Terminal, "SignatureInvalid"),
        ("Fetching manifest: containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage",
         Terminal, "SignatureInvalid"),
        ("pinging container registry quay.io: Get \"https://quay.io/v2/\": dial tcp: lookup quay.io on 10.0.0.1:53:"
         " no such host", Retryable, "RegistryUnreachable"),
        ("Get \"https://q/v2/\": net/http: TLS handshake timeout", Retryable, "RegistryUnreachable"),
        ("Get \"https://q/v2/\": dial tcp 10.0.0.1:443: connect: connection refused", Retryable, "RegistryUnreachable"),
        ("received unexpected HTTP status: 503 (Service Unavailable)", Retryable, "RegistryUnreachable"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority",
         Retryable, "RegistryUnreachable"),
        ("Importing: Unencapsulating base: failed to invoke method FinishPipe: failed to invoke method FinishPipe:"
         " unexpected EOF", Retryable, "RegistryUnreachable"),
        # A proxy that ended says nothing about the registry without a word of the network beside it.
        ("Preparing import: skopeo proxy exited: setpriv: failed to parse reuid", Retryable, "StageFailed"),
        ("skopeo proxy unexpectedly exited during request method GetBlob: exit status: 1", Retryable, "StageFailed"),
        ("skopeo proxy exited: pinging container registry q: dial tcp: i/o timeout", Retryable, "RegistryUnreachable"),
        # libostree and libcurl
        ("While pulling s: While fetching https://o/summary: [6] Couldn't resolve host name",
         Retryable, "RegistryUnreachable"),
        ("[7] Couldn't connect to server", Retryable, "RegistryUnreachable"),
        ("While pulling s: While fetching https://o/x: Server returned HTTP 404", Terminal, "ImageNotFound"),
        ("While pulling s: While fetching https://o/x: Server returned HTTP 503", Retryable, "RegistryUnreachable"),
        ("While pulling s: No such branch 'x' in repository summary", Terminal, "ImageNotFound"),
        ("Commit 8c2d: GPG signatures found, but none are in trusted keyring", Terminal, "SignatureInvalid"),
        ("While pulling s: Commit d7cf: Signature made Tue using RSA key ID F5 Can't check signature: public key not"
         " found", Terminal, "SignatureInvalid"),
        # rpm-ostree's check of what it staged
        ("Sanity-checking final rootfs: bwrap(/usr/bin/true): Child process exited with code 1",
         Terminal, "ImageBroken"),
        ("Sanity-checking final rootfs: bwrap(/usr/bin/true): No space left on device", Terminal, "ImageBroken"),
        ("Committing: Sanity-checking final rootfs", Retryable, "StageFailed"),
        ("GPG verification enabled, but no signatures found (use gpg-verify=false in remote config to disable)",
         Terminal, "SignatureInvalid"),
        ("While pulling 12: Commit 12: Commit has no requested ref ‘os/stable’ in ref binding metadata (‘os/next’)",
         Terminal, "ImageNotFound"),
        ("While pulling s: Metadata not found for commit 'x'", Terminal, "ImageNotFound"),
        ("While pulling 00: file:///r/repo/objects/00/0.commit: linkat: No such file or directory",
         Terminal, "ImageNotFound"),
        ("While pulling s: Delta requires 1.2 GB free space, but only 1 MB available", Terminal, "NoSpace"),
        ("Importing: min-free-space-percent '3%' would be exceeded, at least 1.2 GB requested", Terminal, "NoSpace"),
        ("Staging deployment: fallocate: No space left on device", Terminal, "NoSpace"),
        ("Insufficient free space for quay.io/r/os (available: 0 bytes required: 48.6 MB)", Terminal, "NoSpace"),
        # An image that is no OS for this host
        ("Failed to find kernel in /usr/lib/modules, /usr/lib/ostree-boot or /boot", Terminal, "ImageBroken"),
        ("Importing: Truncated history", Terminal, "ImageBroken"),
        ("Unencapsulating base: No ostree.final-diffid label found, not an ostree encapsulated container",
         Terminal, "ImageBroken"),
        ("Preparing import: Fetching manifest: Target image does not have ostree.bootable label",
         Terminal, "ImageBroken"),
        ("Preparing import: Fetching manifest: Image has architecture arm64; expected amd64", Terminal, "ImageBroken"),
        ("Staging deployment: Mismatched kernel checksum vs initrd", Terminal, "ImageBroken"),
        # rpm-ostree and libdnf
        ("Packages not found: kata-containers", Terminal, "PackageUnavailable"),
        ("Could not depsolve transaction; 1 problem detected", Terminal, "PackageUnavailable"),
        ("Updating rpm-md repo 'updates': cannot update repo 'updates': Cannot prepare internal mirrorlist",
         Retryable, "RegistryUnreachable"),
        ("While pulling x: Operation was cancelled", Retryable, "TransactionCancelled"),
        ("client disconnected before calling Start; cancelling transaction", Retryable, "TransactionCancelled"),
        ("", Retryable, "StageFailed"),
    ],
)  # fmt: skip
def test_what_a_text_means(text: str, kind: type[AgentError], reason: str) -> None:
    error = failure(text, "stage x")
    assert (type(error), error.reason) == (kind, reason)
    assert error.message.startswith("cannot stage x: ")


def test_a_text_is_short_and_without_passwords() -> None:
    assert one_line("Get https://core:hunter2@quay.io/v2/:\n  no") == "Get https://quay.io/v2/: no"
    assert len(one_line("x" * 5000)) < 700


# -- progress ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "body", "expected"),
    [
        ("TaskBegin", ["[1/51] Fetching  layer"], ("Fetching layer", 0, 51)),
        ("Message", ["Receiving packages (7/3)"], ("Receiving packages", 3, 3)),
        ("PercentProgress", ["Importing (2/9)", 0], ("Importing", 2, 9)),
        ("PercentProgress", ["Checking out", 40], ("Checking out", 40, 100)),
        ("PercentProgress", ["Checking out", 4000], ("Checking out", 100, 100)),
        ("TaskEnd", ["done"], None),
        ("Message", [7], None),
        ("DownloadProgress", [1, 2], None),
    ],
)
def test_a_signal_as_progress(member: str, body: list[Any], expected: tuple[str, int, int] | None) -> None:
    progress = Progress().take(member, body)
    assert (progress and (progress.task, progress.done, progress.total)) == expected


def test_equal_progress_is_reported_once() -> None:
    progress = Progress()
    assert progress.take("Message", ["a"])
    assert progress.take("Message", ["a"]) is None
    assert progress.take("Message", ["b"])


def test_the_sizes_of_fetched_layers_add_up() -> None:
    """The texts are those of rpm-ostreed, with the space that GLib puts before a unit."""
    progress, seen = Progress(), []
    for member, body in (
        ("Message", ["ostree chunk layers needed: 2 (13.5\u00a0MB)"]),
        ("TaskBegin", ["[1/3] Fetching ostree chunk 0e5b8e8a (12.3\u00a0MB)"]),
        ("TaskEnd", ["done"]),
        ("TaskBegin", ["[2/3] Fetching ostree chunk 1f5b8e8a (1,2\u00a0MB)"]),
        ("TaskEnd", ["done"]),
        ("TaskBegin", ["[3/3] Fetching custom layer 2f5b8e8a (512\u00a0bytes)"]),
        # Without the end of the task, as for a layer that is not complete when the transaction fails.
    ):
        found = progress.take(member, body)
        seen.append(found.fetched if found else None)
    assert seen == [None, None, 12_300_000, 12_300_000, 13_500_000, 13_500_000]
    staging = progress.take("TaskBegin", ["Staging deployment"])
    assert staging is not None
    assert staging.fetched == 13_500_512


def test_an_image_that_is_present_has_no_bytes() -> None:
    progress = Progress()
    for text in ("Pulling manifest: quay.io/x", "Importing: quay.io/x (digest: 1)", "Staging deployment (1 of 2)"):
        found = progress.take("Message", [text])
        assert found is not None
        assert found.fetched is None


# -- the next request -------------------------------------------------------------------------------------------------

BOOTED = Deployment(
    "os-0.0", "0", "os", base="0", origin="r:b", booted=True, packages=frozenset("ab"), kernel_arguments=("q", "c=1")
)
TOKENS = st.lists(st.sampled_from(["q", "c=1", "c=2", "r"]), max_size=4).map(tuple)
NAMES = st.frozensets(st.sampled_from("abc"))
TARGETS = st.builds(
    OsTarget,
    image=st.sampled_from([None, OstreeCommit("r", "b", "1" * 64), parse_image(f"x/y@sha256:{'2' * 64}")]),
    kernel_arguments=TOKENS,
    without_kernel_arguments=TOKENS,
    packages=NAMES,
    removed=NAMES,
    without_removed=st.just(frozenset[str]()),
)


def obey(first: Deployment, request: Any) -> Deployment:
    """Return the result of the daemon, after its sources."""
    body = plain_body(request)
    if request == CLEANUP:
        return BOOTED
    made = replace(first, id=f"{first.id}+", booted=False, staged=True)
    if request.member == "KernelArgs":
        existing, _, _, _, options = body
        tokens = existing.split()
        tokens += [t for t in options.get("append-if-missing", ()) if t not in tokens]
        for token in options.get("delete-if-present", ()):
            if token in existing.split():
                tokens.remove(token)
        final = options.get("final-kernel-args")
        return replace(made, kernel_arguments=tuple(final.split() if final is not None else tokens))
    modifiers, _ = body
    refspec, revision = modifiers.get("set-refspec", ""), modifiers.get("set-revision", "")
    assert refspec not in (first.origin, first.image) or not refspec
    if refspec.startswith("ostree-"):
        made = replace(made, image=refspec, digest=refspec.rpartition("@")[2], origin="", base="2")
    elif refspec or revision:
        made = replace(made, image="", digest="", origin=refspec or made.origin, base=revision)
    packages = (made.packages | set(modifiers.get("install-packages", ()))) - set(
        modifiers.get("uninstall-packages", ())
    )
    assert not made.removed & set(modifiers.get("override-remove-packages", ()))  # the daemon has an error for that
    assert made.removed >= set(modifiers.get("override-reset-packages", ()))
    removed = (made.removed | set(modifiers.get("override-remove-packages", ()))) - set(
        modifiers.get("override-reset-packages", ())
    )
    return replace(made, packages=packages, removed=removed)


def plain_body(request: Any) -> list[Any]:
    return [plain(item) for item in request.body]


@given(TARGETS, TARGETS)
def test_every_target_is_reached_from_the_booted_and_from_any_former_target(former: OsTarget, target: OsTarget) -> None:
    first = BOOTED
    for wanted in (former, target):
        for count in range(4):
            request = next_request(wanted, BOOTED, first)
            if request is None:
                break
            assert count < 3  # never more than: clean up, image, kernel arguments
            first = obey(first, request)
        assert not unmet(wanted, first)
    # and of the former nothing is left
    assert first.packages == BOOTED.packages | target.packages
    assert first.removed == target.removed
    assert set(first.kernel_arguments) <= set(BOOTED.kernel_arguments) | set(target.kernel_arguments)


def test_rpm_ostree_shows_what_a_request_is_for() -> None:
    """`rpm-ostree status` and its journal have this line."""
    image = parse_image(f"x@sha256:{'1' * 64}")
    for target, title in [
        (OsTarget(image=image), f"sha256:{'1' * 64}"),
        (OsTarget(packages=frozenset("p")), "packages"),
    ]:
        request = next_request(target, BOOTED, BOOTED)
        assert request
        assert plain_body(request)[1]["initiating-command-line"] == f"nodeagent stage {title}"


def test_the_same_request_is_the_same_byte_by_byte() -> None:
    target = OsTarget(image=parse_image(f"x@sha256:{'1' * 64}"), packages=frozenset(["c", "d", "e", "f"]))
    one, two = (next_request(target, BOOTED, BOOTED) for _ in range(2))
    assert one
    assert two
    assert [list(part) for part in one.body] == [list(part) for part in two.body]
    assert plain_body(one)[0]["install-packages"] == ["c", "d", "e", "f"]
