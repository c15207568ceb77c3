# SPDX-License-Identifier: Apache-2.0
"""The meaning of the error text of a failed transaction. rpm-ostreed has one error name for all failures.

The texts come from the programs underneath, whose messages rpm-ostreed passes on unchanged
- containers/image (in skopeo, "failed to invoke method OpenImage: ..."): manifest unknown, unauthorized, requested
  access to the resource is denied, StatusCode and "invalid status code from registry", A signature was required, is
  rejected by policy; Go's net and tls packages below it: dial tcp, no such host, i/o timeout, x509
- ostree-ext: refusing usage (of a policy that accepts anything), and its own "Creating importer" around all of those
- libostree: min-free-space, Insufficient free space, GPG verification enabled but no signatures found, none are in
  trusted keyring, Can't check signature, No such branch, has no requested ref (a commit of another branch), Server
  returned HTTP, and for a remote on a disk a commit that does not open; libcurl below it: Couldn't resolve host,
  Timeout was reached
- ostree-ext of an image that is no bootable OS of this architecture: Truncated history, not an ostree encapsulated
  container, does not have ostree.bootable label, Image has architecture; and libostree: Failed to find kernel in
- rpm-ostree and libdnf: Packages not found, Could not depsolve. rpm-ostree runs a program of the new tree before it
  reports success; if that fails, the text begins with "Sanity-checking final rootfs"

The first match counts; the order is from specific to general.
"""

from __future__ import annotations

import re

from nodeagent.core.plan.deployment import Deployment, OsTarget, unmet
from nodeagent.errors import AgentError, Refused, Retryable, Terminal
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason

# A rebase to the refspec of the first deployment. Another client staged it between reading the state and the call.
SAME_REFS = "Old and new refs are equal"

_ABSENT = re.compile(r'Package "([^"]+)" not found')
_UNKNOWN = re.compile(r"Packages not found: ([^\n]+)")
# Characters; a failed package script prints pages.
_MAX_TEXT = 600
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")

_TABLE: tuple[tuple[type[AgentError], AnyReason, str], ...] = (
    # First, because the output of the program of the new tree may contain each text below.
    (Terminal, Reason.IMAGE_BROKEN, r"\A\s*sanity-checking final rootfs"),
    # An image that is no bootable OS has the same result each time.
    (
        Terminal,
        Reason.IMAGE_BROKEN,
        r"failed to find kernel in|multiple (kernels|subdirectories) found|mismatched kernel checksum vs"
        r"|truncated history|not an ostree encapsulated container|target image does not have \S+ label"
        r"|\bimage has architecture \S+; expected|\bimage has \d+ non-ostree layers",
    ),
    (
        Terminal,
        Reason.NO_SPACE,
        r"min-free-space-(percent|size)|free space, but only|no space left on device|disk quota exceeded|\bENOSPC\b"
        r"|insufficient free space",
    ),
    (
        Terminal,
        Reason.SIGNATURE_INVALID,
        r"signature was required, but no signature exists|signature verification failed|invalid signature|bad signature"
        r"|is rejected by policy|source image rejected|refusing usage|no signatures found|none are in trusted keyring"
        r"|can't check signature|public key not found|signature.*(expired|revoked)|no valid signatures",
    ),
    (
        Terminal,
        Reason.UNAUTHORIZED,
        r"\bunauthorized\b|access to the resource is denied|authentication required|invalid username/password"
        r"|\b(401|403) \((unauthorized|forbidden)\)|server returned (http|status) (401|403)|\bdenied: ",
    ),
    (
        Terminal,
        Reason.IMAGE_NOT_FOUND,
        r"manifest unknown|name unknown|name_unknown|manifest_unknown|not known to registry|\b404 \(not found\)"
        r"|server returned (http|status) 404|no such branch|no such metadata object|metadata not found for commit"
        r"|has no requested ref|refspec '.*' not found|\.commit: .*no such file or directory|remote \"?.*\"? not found"
        r"|no such ref",
    ),
    (
        Terminal,
        Reason.PACKAGE_UNAVAILABLE,
        r"packages? not found|no package matches|could not depsolve|package \".*\" not found|multiple packages match"
        r"|nothing provides|is already provided by|skopeo is not installed",
    ),
    # x509 is here because a certificate is renewed on the server, without a change of the config. The numbers are
    # errors of libcurl: name, connection, HTTP/2, partial file, timeout, TLS, empty answer, send, receive, stream.
    (
        Retryable,
        Reason.REGISTRY_UNREACHABLE,
        r"no such host|connection refused|connection reset|i/o timeout|tls handshake timeout|network is unreachable"
        r"|no route to host|(couldn't|could not) resolve|couldn't connect to server|could not connect"
        r"|timeout was reached|timed out|unexpected eof|unexpected end of file|temporary failure in name resolution"
        r"|server misbehaving|context deadline exceeded|toomanyrequests|too many requests|\bx509: |broken pipe"
        r"|\b(429|500|502|503|504) \(|server returned (http|status) (429|5\d\d)|cannot update repo"
        r"|unexpected http status: (429|5\d\d)|failed to download|\[(6|7|16|18|28|35|52|55|56|92)\] |finishpipe",
    ),
    (Retryable, Reason.TRANSACTION_CANCELLED, r"operation was cancelled|client disconnected before calling start"),
    (Retryable, Reason.SHUTTING_DOWN, r"reboot initiated, cannot start new transaction"),
    (Refused, Reason.STAGED_BY_OTHER, r"staged deployment \(remove with cleanup -p\)"),
    (Terminal, Reason.NO_ROLLBACK, r"no rollback deployment found"),
)
_COMPILED = tuple((kind, reason, re.compile(pattern, re.IGNORECASE)) for kind, reason, pattern in _TABLE)


def failure(text: str, doing: str) -> AgentError:
    """Return the error for a text. The message is "cannot <doing>: ...".

    An unknown text is ``Retryable`` (``StageFailed``): most often a program underneath was killed or lacked a resource,
    and a retry costs less than a revert.
    """
    message = f"cannot {doing}: {one_line(text) or 'rpm-ostree gave no reason'}"
    for kind, reason, pattern in _COMPILED:
        if pattern.search(text):
            return kind(message, reason=reason)
    return Retryable(message, reason=Reason.STAGE_FAILED)


def incomplete(target: OsTarget, first: Deployment) -> Terminal:
    """Return the error for a success that left ``first`` as the next deployment instead of the target."""
    wrong = ", ".join(f"{domain} {what}" for domain, what in unmet(target, first).items())
    message = f"rpm-ostree reported success, but the next deployment differs: {wrong or 'none is staged'}"
    return Terminal(message, reason=Reason.STAGE_INCOMPLETE)


def absent_package(text: str) -> str:
    """Return the package that could not be removed because the base lacks it, "" for another failure."""
    absent = _ABSENT.search(text)
    return absent[1] if absent else ""


def unknown_packages(text: str) -> frozenset[str]:
    """Return the packages that could not be added because no repository has them."""
    unknown = _UNKNOWN.search(text)
    return frozenset(unknown[1].replace(",", " ").split()) if unknown else frozenset()


def one_line(text: str) -> str:
    """Return the text on one line, bounded, and without credentials in URLs."""
    text = _USERINFO.sub("", " ".join(text.split()))
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
