# SPDX-License-Identifier: Apache-2.0
"""Signatures of programs against the keys of the firmware and of shim."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.features.bootloader.decide.check import (
    BootChain,
    BootloaderCheck,
    BootloaderState,
    BootloaderStep,
    BootloaderUpdate,
    decide,
    judge,
)
from nodeagent.features.bootloader.decide.secure_boot import (
    KernelTrust,
    TrustedKeys,
    accepts,
    parse_sbat,
    revoked,
    sbat_of,
    signature_lists,
    signatures_of,
    vendor_keys,
)
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.kinds import AnyReason
from tests.support.signed_image import SHA256, certificate, image, shim, signature, signature_list

ACCEPTED, REFUSED, UNKNOWN = KernelTrust.ACCEPTED, KernelTrust.REFUSED, KernelTrust.UNKNOWN
OLD_CA, NEW_CA, FIRMWARE_CA = certificate("Old CA"), certificate("New CA"), certificate("Microsoft")
CHAIN = [certificate("Signer", "Intermediate", 7), certificate("Intermediate", "New CA", 3)]

OLD_KERNEL, NEW_KERNEL = image([signature("Old CA")]), image([signature("New CA")])


def keys(*certificates: bytes) -> TrustedKeys:
    return signature_lists(signature_list(*certificates))


@pytest.mark.parametrize(
    ("program", "trusted", "expected"),
    [
        (OLD_KERNEL, keys(OLD_CA), ACCEPTED),
        (NEW_KERNEL, keys(OLD_CA), REFUSED),
        (NEW_KERNEL, keys(OLD_CA, NEW_CA), ACCEPTED),
        (image(), keys(OLD_CA), REFUSED),
        (image([signature("Old CA"), signature("New CA")]), keys(NEW_CA), ACCEPTED),
        # A chain with certificates of its own, and one without them.
        (image([signature("Intermediate", certificates=CHAIN)]), keys(NEW_CA), ACCEPTED),
        (image([signature("Intermediate")]), keys(NEW_CA), REFUSED),
        # The certificate of the signer itself is enrolled.
        (image([signature("Other CA", 9)]), keys(certificate("Own key", "Other CA", 9)), ACCEPTED),
        (image([signature("Other CA", 9)]), keys(certificate("Own key", "Other CA", 8)), REFUSED),
        (NEW_KERNEL, keys(certificate("New CA", version=False)), ACCEPTED),
        # A digest may be that of this program.
        (NEW_KERNEL, keys(OLD_CA) | signature_lists(signature_list(bytes(32), kind=SHA256)), UNKNOWN),
    ],
)
def test_who_accepts_what(program: bytes, trusted: TrustedKeys, expected: KernelTrust) -> None:
    assert accepts(trusted, signatures_of(program)) is expected


def test_a_chain_that_leads_in_a_circle_ends() -> None:
    circle = [certificate("A", "B"), certificate("B", "A")]
    assert accepts(keys(OLD_CA), signatures_of(image([signature("A", certificates=circle)]))) is REFUSED


@pytest.mark.parametrize("as_list", [False, True])
def test_the_keys_within_shim(as_list: bool) -> None:
    assert vendor_keys(shim(NEW_CA, as_list=as_list)) == keys(NEW_CA)
    assert vendor_keys(shim()) == TrustedKeys()


def test_long_names_of_sections() -> None:
    vendor = (16).to_bytes(4, "little") * 4
    with pytest.raises(ValueError, match="cut off"):
        vendor_keys(image(sections={".vendor_cert": vendor}, long=True))
    assert sbat_of(image(sections={".vendor_cert": b"x", ".sbat": b"sbat,1\nshim,4\n\0\0"}, long=True))["shim"] == 4


def test_generations() -> None:
    level = parse_sbat(b"sbat,1,2024010900\nshim,4\ngrub,3\ngrub.debian,4\n")
    assert revoked({"sbat": 1, "shim": 4, "grub": 3, "grub.debian": 4}, level) == ""
    assert revoked({"sbat": 1, "grub": 2}, level) == "grub"
    assert revoked({"sbat": 1, "other": 1}, level) == "", "a component that it does not have is not revoked"
    for bad in (b"", b"grub", b"grub,x\n", b"grub,9999999999999999999\n", b"\0grub,1"):
        with pytest.raises(ValueError, match="generation"):
            parse_sbat(bad)


@given(st.binary(max_size=200), st.integers(0, 3000), st.integers(0, 255))
@example(b"MZ", 0x3C, 0xFF)
def test_any_bytes_are_read_or_a_value_error(data: bytes, at: int, byte: int) -> None:
    good = shim(NEW_CA, as_list=True)
    at %= len(good)
    damaged = good[:at] + bytes([byte]) + good[at + 1 :]
    for sample in (data, damaged, good[:at]):
        for read in (signatures_of, vendor_keys, sbat_of, signature_lists, parse_sbat):
            try:
                read(sample)  # type: ignore[operator]
            except ValueError:
                continue


def chain(**changes: object) -> BootChain:
    known = {
        "secure_boot": True,
        "keys": keys(FIRMWARE_CA, OLD_CA),
        "payload_keys": keys(NEW_CA),
        "booted": signatures_of(OLD_KERNEL),
        "next": signatures_of(NEW_KERNEL),
    }
    return BootChain(**{**known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "state", "expected"),
    [
        (chain(), "older", (REFUSED, ACCEPTED)),
        (chain(next=signatures_of(OLD_KERNEL)), "older", (ACCEPTED, ACCEPTED)),
        (chain(secure_boot=False, keys=None), "unknown", (ACCEPTED, ACCEPTED)),
        (chain(payload_keys=None), "older", (REFUSED, UNKNOWN)),
        (chain(payload_keys=keys(OLD_CA)), "older", (REFUSED, REFUSED)),
        # A revocation counts with any keys, and no bootloader helps.
        (chain(next=signatures_of(OLD_KERNEL), revoked="linux"), "older", (REFUSED, REFUSED)),
        (chain(keys=None, revoked="linux"), "unknown", (REFUSED, REFUSED)),
        (chain(secure_boot=False, revoked="linux"), "older", (ACCEPTED, ACCEPTED)),
        (chain(secure_boot=None, revoked="linux"), "older", (UNKNOWN, UNKNOWN)),
        # It was updated in this boot, so the running shim is not the installed one.
        (chain(), "same", (ACCEPTED, ACCEPTED)),
        (chain(payload_keys=keys(OLD_CA)), "same", (REFUSED, REFUSED)),
        # What does not explain that the running kernel was started is not all that is trusted.
        (chain(booted=signatures_of(image([signature("Third CA")]))), "older", (UNKNOWN, UNKNOWN)),
        (chain(secure_boot=None), "older", (UNKNOWN, UNKNOWN)),
        (chain(keys=None), "older", (UNKNOWN, UNKNOWN)),
        (chain(booted=None), "older", (UNKNOWN, UNKNOWN)),
        (chain(next=None), "older", (UNKNOWN, UNKNOWN)),
    ],
)
def test_which_kernel_starts(found: BootChain, state: str, expected: tuple[KernelTrust, KernelTrust]) -> None:
    assert judge(found, BootloaderState(state)) == expected


NEVER, REPORT, BEFORE, AFTER = BootloaderUpdate
TOO_OLD, OLDER, UNFIT, NOT_KNOWN = (
    BootloaderReason.BOOTLOADER_TOO_OLD,
    BootloaderReason.BOOTLOADER_OLDER,
    BootloaderReason.BOOTLOADER_UNFIT,
    BootloaderReason.BOOTLOADER_UNKNOWN,
)


@pytest.mark.parametrize(
    ("check", "update", "bios", "step"),
    [
        ({"state": "same"}, REPORT, False, "none"),
        ({"state": "newer"}, BEFORE, False, "none"),
        ({"state": "older"}, NEVER, False, "none"),
        ({"state": "older"}, REPORT, False, OLDER),
        ({"state": "older"}, BEFORE, False, "update"),
        ({"state": "older"}, AFTER, False, "none"),
        ({"state": "older", "component": "BIOS"}, BEFORE, False, OLDER),
        ({"state": "older", "component": "BIOS"}, AFTER, False, OLDER),
        ({"state": "older", "component": "BIOS"}, BEFORE, True, "update"),
        ({"state": "older", "unfit": "x"}, BEFORE, False, UNFIT),
        ({"state": "unknown"}, BEFORE, False, NOT_KNOWN),
        ({"state": "older", "kernel": REFUSED}, NEVER, False, "none"),
        ({"state": "older", "kernel": REFUSED, "kernel_after_update": ACCEPTED}, REPORT, False, TOO_OLD),
        ({"state": "older", "kernel": REFUSED, "kernel_after_update": ACCEPTED}, AFTER, False, TOO_OLD),
        ({"state": "older", "kernel": REFUSED, "kernel_after_update": ACCEPTED}, BEFORE, False, "update"),
        ({"state": "older", "kernel": REFUSED, "kernel_after_update": UNKNOWN}, BEFORE, False, "update"),
        ({"state": "older", "kernel": REFUSED, "kernel_after_update": REFUSED}, BEFORE, False, TOO_OLD),
        ({"state": "older", "kernel": REFUSED, "kernel_after_update": ACCEPTED, "unfit": "x"}, BEFORE, False, TOO_OLD),
        ({"state": "unknown", "kernel": REFUSED}, BEFORE, False, TOO_OLD),
        ({"state": "same", "kernel": REFUSED}, BEFORE, False, TOO_OLD),
        ({"state": "same", "kernel": UNKNOWN}, REPORT, False, "none"),
    ],
)
def test_what_follows(check: dict[str, str], update: BootloaderUpdate, bios: bool, step: str) -> None:
    found = BootloaderCheck(**{**check, "state": BootloaderState(check["state"])})  # type: ignore[arg-type]
    decision = decide(found, update, bios=bios)
    if isinstance(step, AnyReason):
        expected = BootloaderStep.REFUSE if step is TOO_OLD else BootloaderStep.WARN
        assert (decision.step, decision.reason) == (expected, step)
    else:
        assert decision.step == step


@given(
    st.builds(
        BootloaderCheck,
        component=st.sampled_from(["EFI", "BIOS"]),
        state=st.sampled_from(BootloaderState),
        kernel=st.sampled_from(KernelTrust),
        kernel_after_update=st.sampled_from(KernelTrust),
        unfit=st.sampled_from(["", "x"]),
    ),
    st.sampled_from([REPORT, BEFORE, AFTER]),
    st.booleans(),
)
def test_rules_of_all_decisions(check: BootloaderCheck, update: BootloaderUpdate, bios: bool) -> None:
    step = decide(check, update, bios=bios).step
    if check.kernel is REFUSED:
        assert step in (BootloaderStep.REFUSE, BootloaderStep.UPDATE)
    else:
        assert step is not BootloaderStep.REFUSE
    if step is BootloaderStep.UPDATE:
        assert update is BEFORE
        assert check.state is BootloaderState.OLDER
        assert not check.unfit
        assert bios or check.component == "EFI"
