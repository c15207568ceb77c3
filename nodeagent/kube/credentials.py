"""Where the API server is and who we are there: a kubeconfig, or the service account of the pod we run in.

Reading is the official library's; noticing that something was rotated is ours, because the library reads token files
and certificates once. ``Access.load`` gives a connection and the files it was made from; ``changed`` says when those
are not the same any more. Both block and belong into a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nodeagent.errors import Terminal
from nodeagent.kube._import import load

__all__ = ["Access", "Identity"]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PLUGIN_TIMEOUT: Final = 30.0
"""Seconds for a credential plugin. The library gives it none, and one that asks for a password would wait for ever."""

Stamp = tuple[int, int, int]  # inode, size, nanoseconds: a rename over the file changes the first, a rewrite the others


@dataclass(frozen=True, slots=True)
class Identity:
    """One reading of the credentials. ``configuration`` is the library's and holds secrets: never shown."""

    host: str
    configuration: Any = field(repr=False)
    stamps: Mapping[str, Stamp | None] = field(repr=False)

    def changed(self) -> bool:
        return any(_stamp(path) != stamp for path, stamp in self.stamps.items())


@dataclass(frozen=True, slots=True)
class Access:
    """``kubeconfig`` "" means the service account of this pod. ``private`` is a directory only we can read, where the
    library puts keys that stand in the kubeconfig itself."""

    kubeconfig: str = ""
    context: str = ""
    private: str = "/run/nodeagent"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    service_account: Path = SERVICE_ACCOUNT

    def load(self) -> Identity:
        """Raises ``Terminal`` with reason ``KubeconfigInvalid``; never with a token or a key in the message."""
        library = load()
        configuration = library.Configuration()
        # netrc files and proxies of the environment are for people at a shell; a kubeconfig says proxy-url if it
        # means it.
        configuration.client_session_kwargs = {"trust_env": False}
        # Since Python 3.13 an authority without key usages is refused, which is how some clusters' own are. This one is
        # named by the kubeconfig, and kubectl does not ask for more.
        configuration.disable_strict_ssl_verification = True
        configuration.retries = None  # which call may be repeated is decided where it is known what it does
        try:
            files = self._kubeconfig(configuration) if self.kubeconfig else self._in_cluster(configuration)
        except (library.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            # What a parser quotes may be the secret it stumbled over.
            words = str(error) if isinstance(error, library.ConfigException) else type(error).__name__
            if isinstance(error, OSError) and error.strerror:
                words = error.strerror
            raise Terminal(f"{self.kubeconfig or self.service_account}: {words}", reason="KubeconfigInvalid") from None
        for path in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
            if path:
                files.add(str(path))
        # A file that changes between the reading and here is noticed when the server says no: then we read again as
        # well.
        return Identity(configuration.host, configuration, {path: _stamp(path) for path in sorted(files)})

    def _kubeconfig(self, configuration: Any) -> set[str]:
        user = _user(Path(self.kubeconfig), self.context)
        loading = load().load_kube_config(
            config_file=self.kubeconfig,
            context=self.context or None,
            client_configuration=configuration,
            persist_config=False,
            temp_file_path=self.private,
        )
        if user.keys() & {"exec", "auth-provider"}:
            asyncio.run(asyncio.wait_for(loading, PLUGIN_TIMEOUT))  # in this thread, which has no loop
        else:
            _run_to_end(loading)
        token = user.get("tokenFile")
        return {self.kubeconfig, *([str(Path(self.kubeconfig).parent / token)] if token else ())}

    def _in_cluster(self, configuration: Any) -> set[str]:
        token, ca = self.service_account / "token", self.service_account / "ca.crt"
        loader = load().InClusterConfigLoader(str(token), str(ca), try_refresh_token=False, environ=self.environ)
        loader.load_and_set(configuration)
        return {str(token), str(ca)}


def _user(kubeconfig: Path, context: str) -> Mapping[str, Any]:
    """The user that the context names. The library reads it as well, and does not say which files it read."""
    import yaml

    try:
        document: Any = yaml.safe_load(kubeconfig.read_bytes())
    except yaml.YAMLError:
        raise ValueError("not YAML") from None
    wanted = context or document["current-context"]
    names = {c["context"].get("user") for c in document["contexts"] if c["name"] == wanted}
    users = [u["user"] for u in document.get("users") or () if u["name"] in names]
    return users[0] or {} if users else {}


def _run_to_end(coroutine: Coroutine[Any, Any, object]) -> None:
    """Runs a coroutine that has nothing to wait for, without a loop that its reading of files would block."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise ValueError("credentials that need a helper program")


def _stamp(path: str) -> Stamp | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
