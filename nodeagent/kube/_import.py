# SPDX-License-Identifier: Apache-2.0
"""The parts of the official client that the agent uses: configuration, credentials, transport.

The ``__init__`` of the package imports models of every Kubernetes object, 75 MB of files that the agent does not use
and does not ship. Here its modules are imported without. The list of shipped files must agree
(packaging/bundle/dependencies.py); a test imports exactly what is shipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from threading import Lock
from types import ModuleType
from typing import Any, Final, NamedTuple

from nodeagent.errors import Terminal
from nodeagent.reasons import Reason

WITHOUT_INIT = ("kubernetes", "kubernetes.aio", "kubernetes.aio.utils")
CLIENT = "kubernetes.aio.client"
API_CLIENT = "kubernetes.aio.client.api_client"


# Seconds for which a connection without a request stays open: longer than the pauses between the polls of an agent, and
# shorter than the 90 seconds after which an API server closes it. A new connection costs both sides several times as
# much as a request.
KEEP_OPEN: Final = 80.0


class Library(NamedTuple):
    """The library's own classes and functions, under their own names."""

    # The base of all errors of aiohttp.
    ClientError: type[Exception]
    ConfigException: type[Exception]
    Configuration: type[Any]
    InClusterConfigLoader: type[Any]
    RESTClientObject: type[Any]
    load_kube_config: Callable[..., Coroutine[Any, Any, object]]


# Concurrent imports would remove each other's stand-ins.
_LOADING: Final = Lock()


def load() -> Library:
    """Import the library, in any thread. Blocks for half a second at the first call.

    Raises ``Terminal`` (``ClientMissing``) if it is not installed.
    """
    with _LOADING:
        return _load()


@contextmanager
def _without_init(package: str) -> Iterator[None]:
    """Inside, import modules of ``package`` without its ``__init__``. A parent package must be imported already.

    A later import of the package is complete, with the same modules. If the package is imported already, or is not
    installed, nothing is changed, and the import inside raises its own error.
    """
    parent = sys.modules.get(package.rpartition(".")[0])
    path = None if parent is None else list(parent.__path__)
    spec = None if package in sys.modules else PathFinder.find_spec(package, path)
    if spec is None:
        yield
        return
    sys.modules[package] = module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[package]


@cache
def _load() -> Library:
    with ExitStack() as stack:
        for package in WITHOUT_INIT:
            stack.enter_context(_without_init(package))
        # The loader of kubeconfigs imports the client of the models for functions that are not used here.
        stand_in = API_CLIENT not in sys.modules
        if stand_in:
            sys.modules[API_CLIENT] = ModuleType(API_CLIENT)
            vars(sys.modules[API_CLIENT])["ApiClient"] = None
        try:
            from aiohttp import ClientError, TCPConnector
            from kubernetes.aio.client import Configuration
            from kubernetes.aio.client.rest import RESTClientObject
            from kubernetes.aio.config import ConfigException, load_kube_config
            from kubernetes.aio.config.incluster_config import InClusterConfigLoader
        except ModuleNotFoundError as error:
            message = f"the client for Kubernetes is not installed: {error}"
            raise Terminal(message, reason=Reason.CLIENT_MISSING) from None
        finally:
            # A later import of the whole library gets the real module.
            if stand_in:
                del sys.modules[API_CLIENT]
                if CLIENT in sys.modules:
                    vars(sys.modules[CLIENT]).pop("ApiClient", None)

    def connector(rest: Any) -> TCPConnector:
        return TCPConnector(limit=rest.maxsize, ssl=rest.ssl_context, keepalive_timeout=KEEP_OPEN)

    # The library has no setting for it, and names this method for a subclass.
    transport = type("Transport", (RESTClientObject,), {"_create_connector": connector})
    return Library(ClientError, ConfigException, Configuration, InClusterConfigLoader, transport, load_kube_config)
