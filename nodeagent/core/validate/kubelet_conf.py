"""Check the configuration file of the kubelet: YAML or JSON with a KubeletConfiguration.

The kubelet does not start with a file that it cannot read, and then the node does not return from the reboot that
follows the change. Only the form is checked, because only the kubelet of the host knows the keys. Anchors and other
YAML that the kubelet accepts are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nodeagent.core.config.problems import shown

KIND: Final = "KubeletConfiguration"
KUBECONFIG: Final = "Config"
GROUP: Final = "kubelet.config.k8s.io/"
# About a hundred times what a kubelet needs.
MAX_BYTES: Final = 1024 * 1024


def check_main(content: bytes) -> Iterator[str]:
    """Check a file at a path where OpenShift has the configuration and kubeadm the kubeconfig of the kubelet."""
    if not is_kubeconfig(content):
        yield from check(content)


def is_kubeconfig(content: bytes) -> bool:
    """Return whether the file is a kubeconfig, which has credentials."""
    return _read(content)[0].get("kind") == KUBECONFIG


def check(content: bytes) -> Iterator[str]:
    top, problem = _read(content)
    if problem:
        yield problem
    if "kind" in top and top["kind"] != KIND:
        yield f"kind must be {KIND}, is {shown(top['kind'])}"
    if "apiVersion" in top and not top["apiVersion"].startswith(GROUP):
        yield f"apiVersion must be {GROUP}v1beta1, is {shown(top['apiVersion'])}"


def _read(content: bytes) -> tuple[dict[str, str], str]:
    """Return the top-level scalars, and why there are none."""
    # Only a config with this file pays for the import.
    import yaml

    if len(content) > MAX_BYTES:
        return {}, f"is {len(content)} bytes; a kubelet configuration has at most {MAX_BYTES}"
    try:
        content.decode()
        top = _top(content)
    except UnicodeDecodeError as error:
        return {}, f"is not UTF-8 at offset {error.start}"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1} column {mark.column + 1}: "
        return {}, f"is not YAML: {where}{_without_quotes(error.problem or '')}"
    except yaml.YAMLError:
        return {}, "is not YAML: it has a character that YAML does not allow"
    return ({}, "is not a YAML mapping of settings") if top is None else (top, "")


def _top(content: bytes) -> dict[str, str] | None:
    """Return the top-level scalars of the first document; None if it is not a mapping. Parse the whole text."""
    import yaml

    found: dict[str, str] = {}
    depth, top, key = 0, None, ""
    # Events expand no alias, so a small text cannot take all memory.
    for event in yaml.parse(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if not isinstance(event, yaml.NodeEvent):
            continue
        text = event.value if isinstance(event, yaml.ScalarEvent) else ""
        if not depth:
            top = top or type(event)
        elif depth == 1 and key:
            found.setdefault(key, text)
            key = ""
        elif depth == 1:
            key = text or "?"
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
    return found if top is yaml.MappingStartEvent else None


def _without_quotes(problem: str) -> str:
    """Return the problem without the text of the file that the parser quotes."""
    return problem.partition("'")[0].strip() if problem.count("'") > 1 else problem
