# SPDX-License-Identifier: Apache-2.0
"""Requests for certificates and reviews of an API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from integration.fuzz.api import read_objects
from integration.fuzz.target import Target, choices
from nodeagent.core.coordination.kube_objects import CertificateRequest, Review
from nodeagent.errors import AgentError
from nodeagent.features.certificates.decide.approval import applicant_of, is_pending
from nodeagent.features.certificates.decide.client_certificate import check_identity, issued


def _request(request: CertificateRequest) -> None:
    is_pending(request)
    with suppress(AgentError):
        issued("r", request)
    with suppress(AgentError):
        applicant_of(request)


def _review(review: Review) -> None:
    with suppress(AgentError):
        check_identity("n", review)


READERS: Final[Mapping[type[Any], Callable[[Any], object]]] = {CertificateRequest: _request, Review: _review}


def certificates(data: bytes) -> None:
    read_objects(data, READERS)


TARGETS: Final = (
    Target(
        "api-certificates", certificates, [b"{}", b'{"\\ud800": 1}', b'{"status": {"conditions": [{}]}}', *choices(40)]
    ),
)
