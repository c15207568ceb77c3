# SPDX-License-Identifier: Apache-2.0
"""The deploy family: what is pulled and said, what is staged, and what a success does not mean."""

from __future__ import annotations

import pytest

from integration.standins.rpmostreed.conftest import SandboxMaker
from integration.standins.rpmostreed.sandbox.sandbox import OS, Client, Peer, Sandbox
from integration.standins.rpmostreed.sandbox.template import BRANCH, CHUNKS, IMAGE
from nodeagent.features.rpmostree.transaction import Progress

REFERENCE = f"ostree-unverified-registry:{IMAGE}"
LAYERS = CHUNKS + 1
NO_OPTIONS = "@a{sv} {}"


def rebase(client: Client, target: str, options: str = NO_OPTIONS) -> Peer:
    return client.transact("Rebase", f"({options}, '{target}', @as [])")


def test_the_bytes_of_the_layers_are_those_of_the_signals(sandbox: Sandbox) -> None:
    progress, fetched = Progress(), []
    for member, body in rebase(sandbox.client(), f"{REFERENCE}:2").signals():
        if (found := progress.take(member, body)) is not None and found.fetched is not None:
            fetched.append(found.fetched)
    assert fetched == sorted(fetched)
    assert fetched[-1] > 0


def test_an_image_is_pulled_layer_by_layer(sandbox: Sandbox) -> None:
    client, digests = sandbox.client(), sandbox.template.digests
    peer = rebase(client, f"{REFERENCE}:2")
    names = [name for name, _ in peer.signals()]
    assert names == ["Message"] * 3 + ["TaskBegin", "TaskEnd"] * LAYERS + ["ProgressEnd"] + [
        *("TaskBegin", "TaskEnd"),
        "Finished",
    ]
    texts = peer.texts()
    assert texts[0] == f"Pulling manifest: {REFERENCE}:2"
    assert texts[1] == f"Importing: {REFERENCE}:2 (digest: {digests['2']})"
    assert texts[2].startswith(f"ostree chunk layers needed: {LAYERS} (")
    tasks = peer.texts("TaskBegin")
    assert tasks[0].startswith(f"[1/{LAYERS}] Fetching ostree chunk ")
    assert tasks[-1] == "Staging deployment"
    assert set(peer.texts("TaskEnd")) == {"done"}
    staged = client.deployments()[0]
    assert staged["container-image-reference"] == f"{REFERENCE}:2"
    assert staged["container-image-reference-digest"] == digests["2"]
    assert staged["version"] == "2"
    assert "origin" not in staged
    assert len(sandbox.run("ostree", "refs", "ostree/container/blob").split()) == LAYERS, "each layer is a commit"
    # The next image shares what did not change.
    again = rebase(client, f"{REFERENCE}:3")
    present = next(text for text in again.texts() if "already present" in text)
    shared = int(present.removeprefix("ostree chunk layers already present: "))
    assert 0 < shared < LAYERS
    assert again.texts("TaskBegin")[0].startswith(f"[1/{LAYERS - shared}] ")


# libostree reports progress once a second, at first up to 1.75 s after the beginning: the pull has to take longer.
SERVE = """
import http.server, os, time
os.chdir("/registry/repo")
class Slow(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.3)
        super().do_GET()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Slow)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_no_bytes_for_images_and_bytes_for_ostree(sandbox: Sandbox) -> None:
    client = sandbox.client()
    port = sandbox.background(SERVE)
    sandbox.run("ostree", "remote", "add", "--force", "--no-sign-verify", "test", f"http://127.0.0.1:{port}")
    image = {name for name, _ in rebase(client, f"{REFERENCE}:2").signals()}
    assert "DownloadProgress" not in image
    remote = rebase(client, f"test:{BRANCH}")
    bodies = [body for name, body in remote.signals() if name == "DownloadProgress"]
    assert bodies
    assert [len(part) for part in bodies[-1]] == [2, 2, 3, 4, 2, 2]
    staged = client.deployments()[0]
    assert (staged["origin"], staged["version"]) == (f"test:{BRANCH}", "3")
    assert "container-image-reference" not in staged


@pytest.mark.finding("stand-in: tasks of layering", "The tasks of layering are the real ones.")
def test_counted_progress_has_the_wrong_percentage(sandbox: Sandbox) -> None:
    peer = sandbox.client().transact("PkgChange", f"({NO_OPTIONS}, ['vim', 'htop', 'tmux'], @as [])")
    percents = [tuple(body) for name, body in peer.signals() if name == "PercentProgress"]
    counted = [
        (f"{text} packages{count}", percentage)
        for text in ("Importing", "Checking out")
        for count, percentage in (("", 0), (" (1/3)", 0), (" (2/3)", 0), (" (3/3)", 100))
    ]
    assert percents == [("Importing rpm-md", 0), ("Importing rpm-md", 5), ("Importing rpm-md", 100), *counted]
    assert [name for name, _ in peer.signals()].count("ProgressEnd") == 3, "and none for a base that is not pulled"
    assert [text.partition(" tree ")[0] for text in peer.texts("TaskBegin")] == [
        *("Checking out", "Resolving dependencies", "Running pre scripts", "Running systemd-sysusers"),
        *("Running post scripts", "Running posttrans scripts", "Writing rpmdb", "Writing OSTree commit"),
        "Staging deployment",
    ]


def test_success_does_not_mean_a_new_deployment(sandbox: Sandbox) -> None:
    client = sandbox.client()
    same = client.transact(
        "UpdateDeployment", f"({{'set-revision': <'{sandbox.template.commits['1']}'>}}, {NO_OPTIONS})"
    )
    assert (same.finished(), same.texts()[-1]) == ((True, ""), "No change.")
    for option, said in (("download-only", True), ("dry-run", False)):
        peer = client.transact("Upgrade", f"({{'{option}': <true>}},)")
        assert peer.finished() == (True, "")
        assert ("Update downloaded." in peer.texts()) is said
    assert [one["booted"] for one in client.deployments()] == [True]
    client.transact("Upgrade", f"({NO_OPTIONS},)")
    assert client.deployments()[0]["version"] == "3"
    again = client.transact("Upgrade", f"({NO_OPTIONS},)")
    assert (again.finished(), again.texts()[-1]) == ((True, ""), "No upgrade available.")


def test_the_same_digest_says_only_that_it_looks(sandbox: Sandbox) -> None:
    client, digest = sandbox.client(), sandbox.template.digests["2"]
    rebase(client, f"{REFERENCE}:2")
    client.transact("Deploy", f"('{digest}', {NO_OPTIONS})")
    third = client.transact("Deploy", f"('{digest}', {NO_OPTIONS})")
    assert third.texts()[0] == f"Pulling manifest: {REFERENCE.rpartition(':')[0]}:{IMAGE}@{digest}"
    # The end of looking for the revision, which there is for every kind of it; then the base.
    assert [name for name, _ in third.signals()][:3] == ["ProgressEnd", "Message", "ProgressEnd"]
    assert client.deployments()[0]["container-image-reference"] == f"{REFERENCE}:2"


def test_rebasing_to_where_one_is_fails_also_for_what_is_only_staged(sandbox: Sandbox) -> None:
    client = sandbox.client()
    assert rebase(client, f"test:{BRANCH}").finished() == (False, f"Old and new refs are equal: test:{BRANCH}")
    rebase(client, f"{REFERENCE}:2")
    assert rebase(client, f"{REFERENCE}:2").finished() == (False, f"Old and new refs are equal: {REFERENCE}:2")
    # Which is why who stages again has to deploy.
    deploy = client.transact("Deploy", f"('{sandbox.template.digests['3']}', {NO_OPTIONS})")
    assert deploy.finished() == (True, "")
    staged = client.deployments()[0]
    assert staged["container-image-reference-digest"] == sandbox.template.digests["3"]
    assert staged["container-image-reference"] == f"{REFERENCE}:2"


def test_options_are_read_leniently(sandbox: Sandbox) -> None:
    client = sandbox.client()
    peer = client.transact(
        "UpdateDeployment",
        "({'set-revision': <'2'>, 'custom-origin': <('u', 'd')>, 'install-packages': <'not an array'>},"
        " {'allow-downgrade': <'a string'>, 'no-such-option': <1>, 'allow-inactive-requests': <true>,"
        " 'lock-finalization': <'true'>, 'no-pull-base': <uint32 1>})",
    )
    assert peer.finished() == (True, "")
    assert "Resolving version '2'" in peer.texts()
    staged = client.deployments()[0]
    assert (staged["version"], staged["requested-packages"]) == ("2", [])
    assert "custom-origin" not in staged, "a modifier in the documentation, an option in the code"
    assert not sandbox.run("sh", "-c", "grep -c locked /run/ostree/staged-deployment", check=False).startswith("1")


DOWNGRADES = [
    ("Deploy", "('OLD', {'skip-branch-check': <true>})", True),
    ("Deploy", "('OLD', {'skip-branch-check': <true>, 'allow-downgrade': <false>})", False),
    ("UpdateDeployment", "({'set-revision': <'OLD'>}, {'skip-branch-check': <true>})", False),
    ("UpdateDeployment", "({'set-revision': <'OLD'>}, {'skip-branch-check': <true>, 'allow-downgrade': <true>})", True),
    ("UpdateDeployment", "({'set-refspec': <'test:os/old'>}, @a{sv} {})", True),
    ("Rebase", "(@a{sv} {}, 'test:os/old', @as [])", True),
]


def test_defaults_of_downgrades_differ(sandbox: Sandbox) -> None:
    client = sandbox.client()
    for member, body, allowed in DOWNGRADES:
        peer = client.transact(member, body.replace("OLD", sandbox.template.commits["old"]))
        success, text = peer.finished()
        assert success is allowed, (member, body, text)
        assert allowed or "older than current revision" in text
        client.transact("Cleanup", "(['pending-deploy'],)")


CONFLICTS = [
    ("{'cache-only': <true>, 'download-only': <true>}", "Can't specify cache-only and download-only"),
    ("{'dry-run': <true>, 'download-only': <true>}", "Can't specify dry-run and download-only"),
    ("{'skip-purge': <true>}", "Can't specify skip-purge if not setting a new refspec"),
    ("{'apply-live': <true>, 'reboot': <true>}", "Cannot specify `apply-live` and `reboot`"),
]


def test_conflicts_show_at_the_end_only(sandbox: Sandbox) -> None:
    client = sandbox.client()
    for options, text in CONFLICTS:
        peer = client.transact("Upgrade", f"({options},)")
        assert peer.finished() == (False, text)
    assert client.transact(
        "UpdateDeployment", f"({{'override-replace-packages': <['x']>}}, {NO_OPTIONS})"
    ).finished() == (
        False,
        "Non-local replacement overrides not implemented yet",
    )


def test_revisions(sandbox: Sandbox) -> None:
    client, commits = sandbox.client(), sandbox.template.commits
    for revision, message, version in (
        ("version=2", "Resolving version '2'", "2"),
        (commits["3"], f"Validating checksum '{commits['3']}'", "3"),
        (f"revision={commits['2']}", f"Validating checksum '{commits['2']}'", "2"),
    ):
        peer = client.transact("Deploy", f"('{revision}', {NO_OPTIONS})")
        assert peer.finished() == (True, "")
        assert message in peer.texts()
        assert client.deployments()[0]["version"] == version
    unknown = client.transact("Deploy", f"('nope', {NO_OPTIONS})")
    assert unknown.finished() == (False, f"Version nope not found in test:{BRANCH}")
    pinned = rebase(client, f":{commits['2']}")
    assert pinned.finished() == (True, "")
    assert client.deployments()[0]["origin"] == commits["2"]
    again = client.transact("Deploy", f"('3', {NO_OPTIONS})")
    assert again.finished() == (False, "Cannot look up version while pinned to commit")


def test_packages_are_a_layer(sandbox: Sandbox) -> None:
    client, commits = sandbox.client(), sandbox.template.commits
    client.transact("PkgChange", f"({NO_OPTIONS}, ['vim'], @as [])")
    staged = client.deployments()[0]
    assert (staged["requested-packages"], staged["packages"]) == (["vim"], ["vim"])
    assert (staged["base-checksum"], staged["base-version"]) == (commits["1"], "1")
    assert staged["checksum"] != commits["1"]
    assert staged["origin"] == f"test:{BRANCH}"
    # The next base keeps them, and one request can do both.
    body = f"({{'install-packages': <['htop']>, 'uninstall-packages': <['vim']>}}, {NO_OPTIONS})"
    client.transact("UpdateDeployment", body)
    staged = client.deployments()[0]
    assert (staged["requested-packages"], staged["base-version"]) == (["htop"], "3")
    path = f"/sysroot/ostree/deploy/tiny/deploy/{staged['checksum']}.0/usr/share/rpmostreed-standin/packages"
    assert sandbox.run("ls", path).split() == ["bash", "htop"]
    for body, text in (
        (f"({NO_OPTIONS}, ['htop'], @as [])", "Package/capability 'htop' is already requested"),
        (f"({NO_OPTIONS}, @as [], ['nope'])", "Package/capability 'nope' is not currently requested"),
        (
            f"({NO_OPTIONS}, ['bash'], @as [])",
            '"bash" is already provided by: bash. Use --allow-inactive to explicitly',
        ),
    ):
        peer = client.transact("PkgChange", body)
        success, error = peer.finished()
        assert not success
        assert error.startswith(text)
    body = "({'override-remove-packages': <['bash']>}, {'no-pull-base': <true>})"
    client.transact("UpdateDeployment", body)
    assert client.deployments()[0]["requested-base-removals"] == ["bash"]


@pytest.mark.finding("stand-in: merge commits", "The merge commit of an image has no version.")
def test_packages_on_an_image(sandbox: Sandbox) -> None:
    client, digest = sandbox.client(), sandbox.template.digests["2"]
    body = f"({{'set-refspec': <'{REFERENCE}:2'>, 'install-packages': <['vim']>}}, {NO_OPTIONS})"
    client.transact("UpdateDeployment", body)
    staged = client.deployments()[0]
    assert staged["container-image-reference-digest"] == digest
    assert staged["packages"] == ["vim"]
    assert staged["base-checksum"] != staged["checksum"]
    # The merge commit of an image has no version: the one that is shown is a label of the image.
    assert "base-timestamp" in staged
    assert "base-version" not in staged
    assert staged["version"] == "2"
    sandbox.write("/registry/packages.json", '{"packages": ["vim"]}')
    peer = client.transact("PkgChange", f"({NO_OPTIONS}, ['nope'], @as [])")
    assert peer.finished() == (False, "Packages not found: nope")


def test_custom_layers_lie_over_the_image(sandbox: Sandbox) -> None:
    client = sandbox.client()
    sandbox.run(
        "sh",
        "-ec",
        "mkdir -p /tmp/c/usr/share/content && echo own >/tmp/c/usr/own && cd /tmp/c && "
        "touch usr/share/content/.wh.1 && ostree --repo=/registry/repo commit -b custom --tree=dir=.",
    )
    sandbox.run(
        *("python3", "-BP", "-m", "integration.standins.rpmostreed.standin.publish", "--registry=/registry"),
        *("--from=/registry/repo", f"--commit={sandbox.template.commits['2']}", f"--name={IMAGE}", "--tag=custom"),
        *("--chunks=2", "--custom=custom"),
    )
    peer = rebase(client, f"{REFERENCE}:custom")
    assert peer.finished() == (True, "")
    assert any(text.startswith("custom layers needed: 1 (") for text in peer.texts())
    tree = f"/sysroot/ostree/deploy/tiny/deploy/{client.deployments()[0]['checksum']}.0/usr"
    assert sandbox.read(f"{tree}/own") == "own\n"
    assert sandbox.read(f"{tree}/share/content/1") is None
    assert sandbox.read(f"{tree}/share/content/2") is not None


def test_a_registry_that_publishing_makes(make_sandbox: SandboxMaker) -> None:
    sandbox = make_sandbox(registry="/var/registry")
    client = sandbox.client()
    body = f"({NO_OPTIONS}, '{REFERENCE}:2', @as [])"
    unreachable = client.transact("Rebase", body).finished()
    assert unreachable[1].endswith('Get "https://quay.io/v2/": dial tcp: lookup quay.io: no such host')
    digest = sandbox.run(
        *("python3", "-BP", "-m", "integration.standins.rpmostreed.standin.publish", "--registry=/var/registry"),
        *("--from=/registry/repo", f"--commit={sandbox.template.commits['2']}", f"--name={IMAGE}", "--tag=2"),
    ).strip()
    assert client.transact("Rebase", body).finished() == (True, "")
    staged = client.deployments()[0]
    assert staged["container-image-reference-digest"] == digest
    owner = sandbox.run(
        "stat", "-c", "%u %a", f"/sysroot/ostree/deploy/tiny/deploy/{staged['checksum']}.0/usr/etc/passwd"
    )
    assert owner.split() == ["0", "644"]


def test_a_trigger_without_a_policy_does_nothing(sandbox: Sandbox) -> None:
    client = sandbox.client()
    assert client.result(OS, "OS.AutomaticUpdateTrigger", f"({NO_OPTIONS},)") == [False, ""]
    enabled, address = client.result(OS, "OS.AutomaticUpdateTrigger", "({'mode': <'stage'>},)")
    peer = client.peer(address)
    peer.start()
    assert (enabled, peer.finished()) == (True, (True, ""))
    assert peer.texts("TaskBegin") == [], "it logs its work to the journal"
    assert "Staging deployment..." in sandbox.daemon_log()
    peer.close()
    assert client.deployments()[0]["version"] == "3"
