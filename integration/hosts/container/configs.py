# SPDX-License-Identifier: Apache-2.0
"""Contents that the tests of the host ring put into configs, and what the built-in policy makes of them."""

from __future__ import annotations

REGISTRIES = "/etc/containers/registries.conf"
POLICY_JSON = "/etc/containers/policy.json"
ANCHOR = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
PULL_SECRET = "/var/lib/kubelet/config.json"

# Only pulls by digest are affected, so this needs a reload of CRI-O and no drain.
MIRRORED = """\
unqualified-search-registries = ["registry.example.com"]

[[registry]]
location = "quay.example.com"

[[registry.mirror]]
location = "mirror.example.com"
pull-from-mirror = "digest-only"
"""

# Changes what pods that run by tag would get.
BLOCKED = """\
unqualified-search-registries = ["registry.example.com"]

[[registry]]
location = "quay.example.com"
blocked = true
"""

SIGNED = """{"default": [{"type": "reject"}]}\n"""
LOOKASIDE = "docker:\n  registry.example.com:\n    sigstore: https://sigstore.example.com\n"

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUYNG0oG/Le+DxbFTJKSwB5aymssQwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEcmluZzAgFw0yNjExMjExMjA2NDBaGA8yMTI2MTAyODEyMDY0
MFowDzENMAsGA1UEAwwEcmluZzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMoa
M75hcGLTn4z9lE5BSbdZla6E7IEj5oghxUzQZyvZp7ZypHBmkqcIS6VjyDMeQxFj
/umd5dCtRrUsTIygXvOjUzBRMB0GA1UdDgQWBBSxczJDnaAhU5my/fvrFETiG2p5
3zAfBgNVHSMEGDAWgBSxczJDnaAhU5my/fvrFETiG2p53zAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIBYm9mZjkh152o9ylqy9jZV+/vXWsXC9Kyi3
owcFLt9qAiEAnBS5VjmrTonrhI0wKv+RR1ZUCHQxRKmW0GA1vT1V19c=
-----END CERTIFICATE-----
"""

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGKBGq0mTDtiMvTGAgKFZsdUfnrOuV9zQhZPm1k1l5aV ring"

APP = """\
[Unit]
Description=A service that a config brings

[Service]
Type=notify
NotifyAccess=all
KillMode=mixed
Environment=WATCH=/etc/app.conf
ExecStart=/usr/libexec/stand-in %n run

[Install]
WantedBy=multi-user.target
"""

# Restarting it lasts for as long as the file HOLD is there: a test does something in the middle of an update.
HOLD = "/run/hold"
SLOW = f"""\
[Service]
Type=oneshot
RemainAfterExit=yes
Environment=WATCH=/etc/slow.conf
ExecStartPre=/bin/sh -c 'while [ -e {HOLD} ]; do sleep 0.05; done'
ExecStart=/usr/libexec/stand-in %n once
"""

# Has killpoint.py start the daemon, and systemd start it again at once.
KILLPOINTS = "/var/lib/killpoint"
KILLABLE = {
    "/etc/systemd/system/nodeagent.service.d/50-killpoint.conf": """\
[Service]
ExecStart=
ExecStart=/usr/lib/nodeagent/bin/python3 -BIS /usr/libexec/killpoint.py
RestartSec=10ms
"""
}
