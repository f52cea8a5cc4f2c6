"""A caller of any Whitney, in plain HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from whitney.routes import Route


class Whitney:
    """A caller: names routes, never paths, and remembers its sessions, to close them."""

    def __init__(self, http: httpx.Client, routes: dict[str, Route], model: str | None = None) -> None:
        self.http, self.routes = http, routes
        rows = self.get("capabilities")["rows"]
        self.row: dict[str, Any] = next(row for row in rows if model in (None, row["model"]))
        self._sessions: list[str] = []

    def send(self, route: str, body: Any = None, params: Any = None, **ids: str | int) -> httpx.Response:
        found = self.routes[route]
        return self.http.request(found.method, found.path(**ids), json=body, params=params)

    def get(self, route: str, params: Any = None, **ids: str | int) -> Any:
        answer = self.send(route, params=params, **ids)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def open_session(self, **labels: str) -> str:
        answer = self.send("create_session", {"create_key": uuid4().hex, "labels": labels})
        assert answer.status_code == 200, answer.text
        session_id: str = answer.json()["session_id"]
        self._sessions.append(session_id)
        return session_id

    def run_body(self, **fields: Any) -> dict[str, Any]:
        lora = {"rank": 4, "alpha": 8.0, "seed": 1}
        own = {"create_key": uuid4().hex, "provider": self.row["provider"], "model": self.row["model"], "lora": lora}
        return own | fields

    def open_run(self, session_id: str | None = None, **fields: Any) -> str:
        body = self.run_body(**fields)
        answer = self.send("create_run", body, session_id=session_id or self.open_session())
        assert answer.status_code == 200, answer.text
        assert answer.json()["next_seq_id"] == 0
        run_id: str = answer.json()["run_id"]
        return run_id

    def post(self, run_id: str, seq_id: int, kind: str, payload: Any, sampler: str | None = None) -> httpx.Response:
        body = {"seq_id": seq_id, "kind": kind, "payload": payload}
        if sampler is None:
            return self.send("run_operation", body, run_id=run_id)
        return self.send("sampler_operation", body, run_id=run_id, sampler_id=sampler)

    def operation(self, run_id: str, seq_id: int, wait_s: float) -> dict[str, Any]:
        operation: dict[str, Any] = self.get("get_operation", {"wait_s": wait_s}, run_id=run_id, seq_id=seq_id)
        return operation

    def run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.get("get_run", run_id=run_id)
        return run

    def wait(self, run_id: str, seq_id: int) -> dict[str, Any]:
        while True:
            operation = self.operation(run_id, seq_id, wait_s=30)
            if operation["status"] not in ("queued", "running"):
                return operation

    def do(self, run_id: str, seq_id: int, kind: str, payload: Any, sampler: str | None = None) -> dict[str, Any]:
        answer = self.post(run_id, seq_id, kind, payload, sampler)
        assert answer.status_code == 202, answer.text
        operation = self.wait(run_id, seq_id)
        assert operation["status"] == "succeeded", operation
        result: dict[str, Any] = operation["result"]
        return result

    def until_terminal(self, run_id: str) -> str:
        while True:
            status: str = self.run(run_id)["status"]
            if status in ("finished", "cancelled", "failed"):
                return status

    def clean_up(self) -> None:
        """Cancel, poll, close: the order that leaves nothing billing."""
        for session_id in self._sessions:
            session = self.get("get_session", session_id=session_id)
            for run in session["runs"]:
                assert self.send("cancel_run", run_id=run["run_id"]).status_code == 202
                self.until_terminal(run["run_id"])
            assert self.send("close_session", session_id=session_id).status_code == 200
