# SPDX-License-Identifier: Apache-2.0
"""The meaning of the error texts of the programs that pull an image and deploy it.

The texts come from the programs underneath, whose messages the others pass on unchanged
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

The first match counts; the order is from specific to general.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason

# Class and reason of the error, and a pattern that the text has anywhere, without regard of case.
Row = tuple[type[AgentError], AnyReason, str]

# Characters; a failed package script prints pages.
_MAX_TEXT = 600
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")

OF_AN_IMAGE: tuple[Row, ...] = (
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
)

OF_THE_NETWORK: tuple[Row, ...] = (
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
)


class Failures:
    """A table of texts. ``program`` is what reports them."""

    def __init__(self, program: str, rows: Iterable[Row]) -> None:
        self._program = program
        self._rows = [(kind, reason, re.compile(pattern, re.IGNORECASE)) for kind, reason, pattern in rows]

    def failure(self, text: str, doing: str) -> AgentError:
        """Return the error for a text. The message is "cannot <doing>: ...".

        An unknown text is ``Retryable`` (``StageFailed``): most often a program underneath was killed or lacked a
        resource, and a retry costs less than a revert.
        """
        message = f"cannot {doing}: {one_line(text) or f'{self._program} gave no reason'}"
        for kind, reason, pattern in self._rows:
            if pattern.search(text):
                return kind(message, reason=reason)
        return Retryable(message, reason=Reason.STAGE_FAILED)


def one_line(text: str) -> str:
    """Return the text on one line, bounded, and without credentials in URLs."""
    text = _USERINFO.sub("", " ".join(text.split()))
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
