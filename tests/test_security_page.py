# SPDX-License-Identifier: Apache-2.0
"""The page on security is a list of sentences, each of which has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import removed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/explanation/security.md"

INSTALLED = "integration/hosts/container/test_installed.py"
HELPERS = "integration/hosts/container/test_helper_units.py"
EXTENSIONS = "tests/features/rpmostree/test_extensions.py"
RIGHTS = "integration/cluster/test_rights.py"
# The beginning of each sentence, and its tests.
TESTS = {
    "Six capabilities are left": [f"{INSTALLED}::test_the_sandbox_of_the_daemon"],
    "It has no new privileges": [f"{INSTALLED}::test_it_may_little"],
    "No memory is both writable and executable": [f"{INSTALLED}::test_the_sandbox_of_the_daemon"],
    "/usr and /boot are read-only": [f"{INSTALLED}::test_the_sandbox_of_the_daemon"],
    "It may use 1 GiB": [f"{INSTALLED}::test_the_sandbox_of_the_daemon"],
    "It has no socket of its own": [f"{INSTALLED}::test_the_daemon_opens_no_port"],
    "With the SELinux module": [
        "tests/packaging/test_selinux_module.py::test_the_program_cannot_be_replaced_by_the_daemon",
        "integration/hosts/vm/test_selinux.py::test_files_and_units",
    ],
    "nodeagent-extensions.service, which pulls": [
        f"{HELPERS}::test_the_unit_that_pulls_extensions_sees_nothing_of_the_host",
        f"{HELPERS}::test_the_directory_for_packages_is_that_of_the_unit_only",
    ],
    "It reaches neither the bus nor systemd, and reads no store, no desired config": [
        f"{HELPERS}::test_the_unit_that_pulls_extensions_sees_nothing_of_the_host",
        f"{HELPERS}::test_a_helper_unit_cannot_start_another",
    ],
    "The pull secret and its task": [f"{EXTENSIONS}::test_the_packages_are_visible_during_a_staging_only"],
    "What it leaves is used only": [f"{EXTENSIONS}::test_nothing_but_files_and_directories_is_taken_over"],
    "nodeagent-bootstrap.service, which requests": [
        f"{HELPERS}::test_the_unit_that_requests_a_certificate_sees_nothing_of_the_host",
        f"{HELPERS}::test_the_unit_that_requests_a_certificate_gets_to_the_api_server",
    ],
    "It reaches neither the bus nor systemd, and reads no store, no settings": [
        f"{HELPERS}::test_the_unit_that_requests_a_certificate_sees_nothing_of_the_host",
        f"{HELPERS}::test_a_helper_unit_cannot_start_another",
    ],
    "The kubeconfigs with the keys that they name": [
        f"{HELPERS}::test_the_units_that_hand_over_and_install_reach_no_service",
        "tests/features/certificates/test_units.py::test_the_request_sees_neither_settings_nor_kubeconfigs",
    ],
    "nodeagent-bootstrap-install.service, which follows": [
        f"{HELPERS}::test_the_units_that_hand_over_and_install_reach_no_service",
        f"{HELPERS}::test_the_unit_that_requests_a_certificate_gets_to_the_api_server",
    ],
    "What the unit with the network left": [
        "tests/features/certificates/test_directory.py::test_what_is_no_certificate_of_this_node_is_not_installed",
        f"{HELPERS}::test_the_unit_that_requests_a_certificate_gets_to_the_api_server",
    ],
    "No helper unit has a capability": ["tests/systemd/test_tree.py::test_no_helper_unit_is_root_with_a_network"],
    "Every user may read the status": [f"{INSTALLED}::test_everyone_may_ask_and_only_root_may_change"],
    "Calls that change something": [
        f"{INSTALLED}::test_everyone_may_ask_and_only_root_may_change",
        "tests/systemd/test_tree.py::test_no_change_of_the_host_without_a_password",
    ],
    "The desired config must be": ["tests/agent/test_own_config.py", "tests/host/test_config_file.py"],
    "The reads of other users": [
        "tests/agent/report/test_turns.py::test_a_verification_of_root_does_not_wait_for_plans",
        "tests/host/store/test_store.py::TestReadsOfTheHistory",
    ],
    "The store that keeps them": [f"{INSTALLED}::test_what_it_keeps_is_for_root"],
    "What is deleted from it": ["tests/host/store/test_store.py::test_secrets_that_were_dropped_are_overwritten"],
    "No log entry and no answer": ["integration/hosts/container/test_journal.py::test_no_secret_is_logged_or_shown"],
    "Text that looks like a secret": ["tests/core/test_redact.py::test_hides"],
    "ValidatingAdmissionPolicies restrict each agent": [f"{RIGHTS}::test_an_agent_writes_its_own_node_and_lease_only"],
    "They restrict it to": [
        f"{RIGHTS}::test_a_slot_is_not_taken_from_another_node_nor_for_it",
        f"{RIGHTS}::test_an_agent_changes_the_machine_of_its_own_node_only",
    ],
    "It evicts pods with the credentials of the kubelet": [
        f"{RIGHTS}::test_a_kubelet_evicts_pods_of_its_own_node_only",
        "tests/features/cluster/test_kubelet_client.py::test_evictions_only_have_the_credentials_of_the_kubelet",
    ],
    "An agent without these credentials": [f"{RIGHTS}::test_an_agent_evicts_pods_of_its_own_node_only"],
    "Each node has a key of its own": [
        "tests/features/certificates/test_directory.py::test_each_request_has_a_key_of_its_own"
    ],
    "Or its kubeconfig is encrypted": ["integration/hosts/node/test_encrypted_kubeconfig.py"],
}


def sentences() -> list[str]:
    """Return the items of the lists, without links and markup."""
    text = re.sub(r"\n  (?=\S)", " ", PAGE.read_text())
    items = [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]
    return [re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", item).replace("`", "") for item in items]


def test_each_sentence_has_a_test() -> None:
    found = {item: [begin for begin in TESTS if item.startswith(begin)] for item in sentences()}
    assert [item for item, begins in found.items() if len(begins) != 1] == []
    assert {begin for begins in found.values() for begin in begins} == TESTS.keys()


@pytest.mark.parametrize("test", sorted({test for tests in TESTS.values() for test in tests}))
def test_each_of_these_tests_exists(test: str) -> None:
    path, _, name = test.partition("::")
    if removed.is_path(path):
        return
    text = (ROOT / path).read_text()
    assert re.search(rf"^\s*(?:(?:async )?def|class) {name or 'test_'}", text, re.MULTILINE)
