# SPDX-License-Identifier: Apache-2.0
"""The test's own view of the API server: synchronous, over the standard library, and nothing of nodeagent in it.

What checks nodeagent must not share its mistakes, and a test must be able to do what nodeagent would never do.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from integration import tls

TIMEOUT: Final = 20.0
Object = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"


class ApiError(Exception):
    def __init__(self, status: int, answer: Object) -> None:
        super().__init__(f"{status} {answer.get('message', answer)}")
        self.status = status
        self.answer = answer


class Api:
    def __init__(self, port: int, ca: Path, certificate: Path, key: Path) -> None:
        self._port = port
        self.context = tls.client(ca)
        self.context.load_cert_chain(certificate, key)

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        kind: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        """The answer as JSON, or `{"text": ...}` if it is none. Raises ApiError, OSError."""
        url = f"{quote(path)}?{urlencode(query)}" if query else quote(path)
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self.context, timeout=TIMEOUT)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, url, body=data, headers={"Content-Type": kind, "Accept": JSON})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            answer: Object = json.loads(text)
        except ValueError:
            answer = {"text": text}
        if response.status >= 300:
            raise ApiError(response.status, answer)
        return answer

    def get(self, path: str, **query: str) -> Object:
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Object | None:
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: Object) -> Object:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        return self.request("PATCH", path, body, kind=MERGE)

    def delete(self, path: str, **query: str) -> Object:
        return self.request("DELETE", path, query=query)

    def end_pod(self, path: str) -> None:
        """Ends a pod as its kubelet does. A pod that something else has deleted first is fine."""
        try:
            self.delete(path, gracePeriodSeconds="0")
        except ApiError as error:
            if error.status != 404:
                raise
