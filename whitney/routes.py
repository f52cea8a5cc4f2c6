"""ONE table of verb and path, used by the client, the gateway and the docs.

Routes marked assumed in docs are not published by Whitney. A hosted Whitney that differs is met by editing data, not
code: put a JSON object {name: path} in a file and name it in WHITNEY_ROUTES_FILE; names not in it keep their path.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

PREFIX = "/v1/training"


@dataclass(frozen=True, slots=True)
class Route:
    """A verb and a path template below the base URL."""

    method: str
    template: str

    def path(self, **ids: str | int) -> str:
        """Fill the template; every id is percent-encoded, so that none can reach another route.

        Raises:
            ValueError: an id that is empty, or that a URL would resolve away.
        """
        for name, value in ids.items():
            if str(value) in ("", ".", ".."):
                raise ValueError(f"{name} is {str(value)!r}, which is no id")
        return self.template.format(**{name: quote(str(value), safe="") for name, value in ids.items()})


ROUTES: dict[str, Route] = {
    "healthz": Route("GET", "/healthz"),
    "capabilities": Route("GET", PREFIX + "/capabilities"),
    "create_session": Route("POST", PREFIX + "/sessions"),
    "list_sessions": Route("GET", PREFIX + "/sessions"),
    "get_session": Route("GET", PREFIX + "/sessions/{session_id}"),
    "heartbeat": Route("POST", PREFIX + "/sessions/{session_id}/heartbeat"),
    "close_session": Route("POST", PREFIX + "/sessions/{session_id}/close"),
    "create_run": Route("POST", PREFIX + "/sessions/{session_id}/runs"),
    "get_run": Route("GET", PREFIX + "/runs/{run_id}"),
    "run_operation": Route("POST", PREFIX + "/runs/{run_id}/operations"),
    "sampler_operation": Route("POST", PREFIX + "/runs/{run_id}/samplers/{sampler_id}/operations"),
    "get_operation": Route("GET", PREFIX + "/runs/{run_id}/operations/{seq_id}"),
    "finish_run": Route("POST", PREFIX + "/runs/{run_id}/finish"),
    "cancel_run": Route("POST", PREFIX + "/runs/{run_id}/cancel"),
    "get_state": Route("GET", PREFIX + "/states/{state_id}"),
    "delete_state": Route("DELETE", PREFIX + "/states/{state_id}"),
    "get_artifact": Route("GET", PREFIX + "/artifacts/{artifact_id}"),
    "delete_artifact": Route("DELETE", PREFIX + "/artifacts/{artifact_id}"),
}

_FIELD = re.compile(r"{(\w+)}")


def load_routes(overrides: Path | None = None) -> dict[str, Route]:
    """The table, with the paths of an override file put over it.

    Raises:
        ValueError: the file is no such object, or names an unknown route or a path whose `{fields}` are not the
            route's.
    """
    if overrides is None:
        return dict(ROUTES)
    table = dict(ROUTES)
    wanted_paths = json.loads(overrides.read_text(encoding="utf-8"))
    if not isinstance(wanted_paths, dict):
        raise ValueError(f"{overrides}: must be a JSON object {{route name: path}}")  # noqa: TRY004 - a file's content
    for name, template in wanted_paths.items():
        if name not in table:
            raise ValueError(f"{overrides}: unknown route {name!r}; known: {', '.join(sorted(table))}")
        if not isinstance(template, str) or not template.startswith("/"):
            raise ValueError(f"{overrides}: the path of {name!r} must be a string that begins with /")
        wanted, found = set(_FIELD.findall(table[name].template)), set(_FIELD.findall(template))
        if wanted != found:
            raise ValueError(f"{overrides}: route {name!r} needs {sorted(wanted)} in its path, it has {sorted(found)}")
        table[name] = Route(table[name].method, template)
    return table
