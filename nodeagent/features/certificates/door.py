# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Door
from nodeagent.features.certificates.reasons import CertificateReason

DOOR: Final = Door(title="Certificates", page="usage/credentials.md", reasons=CertificateReason)
