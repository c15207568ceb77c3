# SPDX-License-Identifier: Apache-2.0
"""The hosts of the other members, which must accept the certificate of this one."""

from __future__ import annotations

from nodeagent.features.etcd_members.certificates import _hosts


def test_an_address_that_is_none_is_left_out() -> None:
    assert _hosts("https://[,https://c:2380") == ("c",)
