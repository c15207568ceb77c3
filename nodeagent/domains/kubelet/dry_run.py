# SPDX-License-Identifier: Apache-2.0
"""The dry run of the installed kubelet over the configuration as it will be.

A kubelet with ``--exit-on-lock-contention`` and without ``--lock-file`` ends with an error about that, after it has
decoded, merged and validated its configuration and before it touches a socket, a cgroup or the API (1.36:
cmd/kubelet/app/server.go, ``run``). An earlier error is a refusal of the configuration. It may write a certificate, so
it gets a directory of its own.

An unknown key is no error to a kubelet: it decodes leniently and warns, and says nothing at all for a drop-in. So the
merged document is decoded as a single file, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from nodeagent.core.plan.program import SCRATCH, TREE, ProgramCheck, ProgramResult
from nodeagent.domains.kubelet.document import UNREADABLE, KubeletConfig
from nodeagent.errors import Problem

PROGRAM: Final = "kubelet"
MERGED: Final = "/merged/kubelet.conf"
# Flags of the unit that would keep the dry run from ending, or lead it elsewhere.
REPLACED: Final = ("config", "config-dir", "cert-dir", "exit-on-lock-contention", "lock-file")
PASSED: Final = "cannot exit on lock file contention: no lock file specified"
LENIENT: Final = "Using lenient decoding as strict decoding failed"
# The kubelet logs with klog, which escapes the quotes of a nested error.
UNKNOWN_FIELD: Final = re.compile(r'unknown field \\?"([^"\\]+)\\?"')
REPEATED: Final = re.compile(r'(?:duplicate field|key) \\?"([^"\\]+)\\?"(?: already set in map)?')
ERROR: Final = re.compile(r'err="((?:[^"\\]|\\.)*)"')
# What follows the list of problems of a validation.
TAIL: Final = re.compile(r",? path: &TypeMeta\{.*?\}$")
NEXT: Final = re.compile(r", (?=invalid configuration: |kubelet is configured )")
# Seconds. The dry run takes well under one; the kubelet is a large program on a busy disk.
DEADLINE: Final = 20.0
MAX_REASON: Final = 400


def dry_runs(before: KubeletConfig, after: KubeletConfig) -> Iterator[ProgramCheck]:
    """Yield the dry runs of ``after``. What a kubelet finds in ``before`` as well is no fault of the update."""
    check = _layout(after)
    if check is not None:
        yield replace(check, control=_layout(before))
    # What only the kubelet can read, such as anchors of YAML, cannot be merged here.
    readable = not any(UNREADABLE in document for config in (before, after) for document in config.documents.values())
    if after.dropins and readable:
        yield replace(_whole(after), control=_whole(before))


def _layout(config: KubeletConfig) -> ProgramCheck | None:
    """The kubelet with its files in their places."""
    prefixes = tuple(f"{directory}/" for directory in config.config_dirs)
    paths = [path for path in config.files if path == config.config_file or (prefixes and path.startswith(prefixes))]
    if not paths:
        return None
    arguments = []
    if config.config_file in config.files:
        arguments.append(f"--config={TREE}{config.config_file}")
    if config.dropins:
        # A kubelet takes one directory.
        arguments.append(f"--config-dir={TREE}{config.config_dirs[0]}")
    return _check(config, arguments, {path: config.files[path] for path in paths}, partial(judge, config))


def _whole(config: KubeletConfig) -> ProgramCheck:
    """The kubelet with the merged document as its only file, in which it finds unknown keys of drop-ins."""
    tree = {MERGED: json.dumps(config.merged).encode()}
    return _check(config, [f"--config={TREE}{MERGED}"], tree, partial(_lenient, config))


def _check(
    config: KubeletConfig,
    arguments: list[str],
    tree: Mapping[str, bytes],
    judged: Callable[[ProgramResult], Iterator[Problem]],
) -> ProgramCheck:
    # Flags win over the files, so a dry run without those of the unit would validate another configuration.
    flags = [f"--{flag}={value}" for flag, value in config.unit.flags.items() if flag not in REPLACED]
    own = [f"--cert-dir={SCRATCH}", "--exit-on-lock-contention"]
    return ProgramCheck(config.unit.program or PROGRAM, (*flags, *arguments, *own), tree, judged, DEADLINE)


def judge(config: KubeletConfig, result: ProgramResult) -> Iterator[Problem]:
    yield from _lenient(config, result)
    # The kubelet has validated the configuration before that.
    if any(PASSED in line for line in result.lines):
        return
    reason = _reason(result)
    for text in NEXT.split(reason) if reason else ():
        yield Problem(_blamed(config, text), f"the kubelet of this host refuses it: {text[:MAX_REASON]}")


def _blamed(config: KubeletConfig, text: str) -> str:
    """Return the path that ``text`` names, or the source of the key that it names, or the main file."""
    named = [path for path in config.documents if path in text]
    if named:
        return max(named, key=len)
    key = next((key for key in config.merged if re.search(rf"\b{re.escape(key)}\b", text)), "")
    return config.source_of(key) if key else config.config_file


def _lenient(config: KubeletConfig, result: ProgramResult) -> Iterator[Problem]:
    """Yield the keys for which the kubelet decodes leniently. They would have no effect."""
    text = "\n".join(result.lines)
    if LENIENT not in text:
        return
    text = text[text.index(LENIENT) :]
    for key in dict.fromkeys(UNKNOWN_FIELD.findall(text)):
        yield Problem(config.source_of(key), f"has a key that the kubelet of this host does not know: {key}")
    for key in dict.fromkeys(REPEATED.findall(text)):
        yield Problem(config.config_file, f"has the key {key} twice; the kubelet would use the last one")


def _reason(result: ProgramResult) -> str:
    """Return why the kubelet ended; "" for an output without a reason, which says nothing about a configuration."""
    for line in result.lines:
        # An unknown feature gate ends the kubelet with a panic instead of an error.
        if line.startswith("panic: "):
            return line.removeprefix("panic: ")
    for line in reversed(result.lines):
        if (error := ERROR.search(line)) and '"command failed"' in line:
            text = TAIL.sub("", error[1].replace('\\"', '"')).strip()
            return text.replace("error: [", "error: ").rstrip("]") if "error: [" in text else text
    return ""
