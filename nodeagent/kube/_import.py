"""The parts of the official client that we use: configuration, credentials, transport.

Imported whole it costs a second of a small CPU and 40 MB of memory, most of it for pydantic models of every object that
Kubernetes has: half of each this way, and the package leaves those files out. What is left out here must be left out
there as well (packaging/bundle/dependencies.py), and a test imports exactly what is shipped.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from nodeagent._partial_import import without_init
from nodeagent.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["Library", "load"]

WITHOUT_INIT = ("kubernetes", "kubernetes.aio", "kubernetes.aio.utils")
CLIENT = "kubernetes.aio.client"
API_CLIENT = "kubernetes.aio.client.api_client"


@dataclass(frozen=True, slots=True)
class Library:
    """The library's own classes and functions, under their own names."""

    Configuration: type[Any]
    RESTClientObject: type[Any]
    ConfigException: type[Exception]
    InClusterConfigLoader: type[Any]
    ClientError: type[Exception]  # of aiohttp
    load_kube_config: Callable[..., Coroutine[Any, Any, object]]


_LOADING: Final = Lock()  # two at once would take away each other's stand-ins


def load() -> Library:
    """Blocks for half a second at the first time. Raises ``Terminal`` (``ClientMissing``) where it is not installed.
    From any thread."""
    with _LOADING:
        return _loaded()


@cache
def _loaded() -> Library:
    try:
        return _load()
    except ModuleNotFoundError as error:
        raise Terminal(f"the client for Kubernetes is not installed: {error}", reason="ClientMissing") from None


def _load() -> Library:
    with ExitStack() as stack:
        for package in WITHOUT_INIT:
            stack.enter_context(without_init(package))
        # The loader of kubeconfigs names the client of the models for functions that we do not call.
        stand_in = API_CLIENT not in sys.modules
        if stand_in:
            sys.modules[API_CLIENT] = ModuleType(API_CLIENT)
            vars(sys.modules[API_CLIENT])["ApiClient"] = None
        try:
            from aiohttp import ClientError
            from kubernetes.aio.client import Configuration
            from kubernetes.aio.client.rest import RESTClientObject
            from kubernetes.aio.config import ConfigException, load_kube_config
            from kubernetes.aio.config.incluster_config import InClusterConfigLoader
        finally:
            if stand_in:  # whoever imports the library whole afterwards gets the real one
                del sys.modules[API_CLIENT]
                if CLIENT in sys.modules:
                    vars(sys.modules[CLIENT]).pop("ApiClient", None)
    return Library(
        Configuration=Configuration,
        RESTClientObject=RESTClientObject,
        ConfigException=ConfigException,
        InClusterConfigLoader=InClusterConfigLoader,
        ClientError=ClientError,
        load_kube_config=load_kube_config,
    )
