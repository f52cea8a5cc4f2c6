"""An MCP server that takes no argument a tool does not have: the SDK's own drops it and says nothing.

An agent that misspells `overrides` would train with another configuration than it meant. Imported only where the extra
`mcp` is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import ConfigDict, ValidationError

from algorithms.names import did_you_mean


class StrictServer(MCPServer[Any]):
    """Serves functions as tools; a call with wrong arguments is refused with a sentence for each."""

    def __init__(self, name: str, functions: Iterable[Callable[..., Any]], *, instructions: str) -> None:
        tools = [strict_tool(function) for function in functions]
        super().__init__(name, instructions=instructions, tools=tools, log_level="WARNING")
        self._arguments = {tool.name: list(tool.parameters["properties"]) for tool in tools}

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """As the SDK's.

        Raises:
            ToolError: the arguments are wrong, or the tool refuses; the message says what to change.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {mistakes(error.__cause__, self._arguments[name])}") from None
            raise


def strict_tool(function: Callable[..., Any]) -> Tool:
    """The function as a tool whose schema, and whose check of a call, forbid arguments that it does not have."""
    tool = Tool.from_function(function)
    lenient = tool.fn_metadata.arg_model
    body = {"__module__": __name__, "model_config": ConfigDict(extra="forbid")}
    tool.fn_metadata.arg_model = type(lenient.__name__, (lenient,), body)
    tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
    return tool


def mistakes(error: ValidationError, known: Collection[str]) -> str:
    """What is wrong with a call's arguments: name, value and rule of each."""
    return "; ".join(_mistake(issue, known) for issue in error.errors(include_url=False))


def _mistake(issue: Mapping[str, Any], known: Collection[str]) -> str:
    name = ".".join(str(part) for part in issue["loc"])
    if issue["type"] == "extra_forbidden":
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        return f"unknown argument {name!r}: {did_you_mean(name, known)}{takes}"
    if issue["type"] == "missing":
        return f"{name} is missing"
    return f"{name} = {str(issue['input'])[:80]!r}: {issue['msg'][0].lower()}{issue['msg'][1:]}"
