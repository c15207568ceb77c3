# SPDX-License-Identifier: Apache-2.0
"""The kernel of another signer that the tests of virtual machines make."""

from __future__ import annotations

from integration.hosts.vm.firmware import FOREIGN, SIGNER, foreign
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust, accepts, signature_lists, signatures_of
from tests.support.signed_image import certificate, image, signature, signature_list


def test_a_foreign_kernel_differs_in_its_signature_only() -> None:
    ca, debian = certificate(SIGNER.decode()), image([signature(SIGNER.decode())], {".text": SIGNER})
    keys = signature_lists(signature_list(ca))
    changed = foreign(debian)
    assert len(changed) == len(debian)
    assert (changed.count(SIGNER), changed.count(FOREIGN)) == (1, 1)
    assert accepts(keys, signatures_of(debian)) is KernelTrust.ACCEPTED
    assert accepts(keys, signatures_of(changed)) is KernelTrust.REFUSED
