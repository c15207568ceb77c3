# SPDX-License-Identifier: Apache-2.0
"""The address of the API server and the credentials: from a kubeconfig, or from the service account of the pod.

The official library reads token files and certificates once. ``ClusterAccess.load`` returns a connection with the files
that it was made from, and ``changed`` returns whether they were rotated. Both block, so they run in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from nodeagent.core.config.text import plain_yaml
from nodeagent.errors import Terminal
from nodeagent.kube._import import load
from nodeagent.reasons import Reason

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# Seconds for a credential plugin. The library has no limit, and a plugin that prompts for a password never ends.
PLUGIN_TIMEOUT: Final = 30.0

# Directory below ``ClusterAccess.private`` for the keys that are part of a kubeconfig.
KEYS: Final = "kubeconfig-keys"
# The library has one list of its files for the whole process.
_KEYS_LOCK: Final = Lock()

# Inode, size, nanoseconds: a rename over the file changes the first, a rewrite the others.
Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Credentials as they were read. ``configuration`` is the library's and holds secrets, so it is never shown."""

    host: str
    configuration: Any = field(repr=False)
    stamps: Mapping[str, Stamp | None] = field(repr=False)

    def changed(self) -> bool:
        return any(_stamp(path) != stamp for path, stamp in self.stamps.items())


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """``kubeconfig`` "" means the service account of this pod. ``private`` is a directory that only the agent can
    write. The library writes keys that are part of the kubeconfig to files; they are there during ``loaded`` only."""

    kubeconfig: str = ""
    context: str = ""
    private: str = "/run/nodeagent"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    service_account: Path = SERVICE_ACCOUNT

    @contextmanager
    def loaded(self) -> Iterator[ClientIdentity]:
        """Yield the credentials. A connection is made inside of the block: it reads the keys once.

        Raises ``Terminal`` with reason ``KubeconfigInvalid``; never with a token or a key in the message.
        """
        with _KEYS_LOCK:
            try:
                # What a killed process left is removed here.
                self._remove_keys()
                yield self._load()
            finally:
                self._remove_keys()

    def _remove_keys(self) -> None:
        # It keeps the names of the files by content, and would name a removed one again.
        module = sys.modules.get("kubernetes.aio.config.kube_config")
        forget: Callable[[], None] | None = getattr(module, "_cleanup_temp_files", None)
        if forget is not None:
            forget()
        shutil.rmtree(Path(self.private) / KEYS, ignore_errors=True)

    def _load(self) -> ClientIdentity:
        library = load()
        configuration = library.Configuration()
        # netrc files and proxies of the environment are for a shell; a kubeconfig has proxy-url for that.
        configuration.client_session_kwargs = {"trust_env": False}
        # Since Python 3.13 an authority without key usages is refused, and some clusters have one. The kubeconfig names
        # it, and kubectl accepts it.
        configuration.disable_strict_ssl_verification = True
        # The client decides which call is repeated.
        configuration.retries = None
        try:
            files = self._kubeconfig(configuration) if self.kubeconfig else self._in_cluster(configuration)
        except (library.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            # A parser may quote a secret in its message.
            words = str(error) if isinstance(error, library.ConfigException) else type(error).__name__
            if isinstance(error, OSError) and error.strerror:
                words = error.strerror
            raise Terminal(
                f"{self.kubeconfig or self.service_account}: {words}", reason=Reason.KUBECONFIG_INVALID
            ) from None
        keys = Path(self.private) / KEYS
        for path in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
            if path and not Path(path).is_relative_to(keys):
                files.add(str(path))
        # A file that changes between the reading and this line leads to a 401, after which it is read again.
        return ClientIdentity(configuration.host, configuration, {path: _stamp(path) for path in sorted(files)})

    def _kubeconfig(self, configuration: Any) -> set[str]:
        path = Path(self.kubeconfig)
        if path.exists() and not path.is_file():
            # A pipe without a writer would block this thread without end.
            raise OSError(errno.EINVAL, "it is no regular file")
        user = _user(path, self.context)
        keys = Path(self.private) / KEYS
        keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        loading = load().load_kube_config(
            config_file=self.kubeconfig,
            context=self.context or None,
            client_configuration=configuration,
            persist_config=False,
            temp_file_path=str(keys),
        )
        if user.keys() & {"exec", "auth-provider"}:
            # In this thread, which has no loop.
            asyncio.run(asyncio.wait_for(loading, PLUGIN_TIMEOUT))
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
    """Return the user of the context. The library reads it too, but does not return which files it read."""
    document: Any = plain_yaml.loads(kubeconfig.read_bytes())
    wanted = context or document["current-context"]
    names = {c["context"].get("user") for c in document["contexts"] if c["name"] == wanted}
    users = [u["user"] for u in document.get("users") or () if u["name"] in names]
    return users[0] or {} if users else {}


def _run_to_end(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that waits for nothing, without an event loop that its reading of files would block."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise ValueError("credentials that need a helper program")


def _stamp(path: str) -> Stamp | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
