"""Where the key comes from: the environment, or a Prefect block. Never a flow parameter, which Prefect stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from whitney.settings import WhitneySettings, resolve_settings


class WhitneyCredentials(Block):
    """Base URL and key of a Whitney endpoint, kept by the Prefect server (the key encrypted at rest)."""

    _block_type_name: ClassVar[str] = "Whitney Credentials"
    _block_type_slug: ClassVar[str] = "whitney-credentials"

    base_url: str = Field(description="https://host[:port][/prefix]")
    api_key: SecretStr = Field(description="Bearer key")


def settings_for(credentials_block: str | None) -> WhitneySettings:
    """The settings of a flow: a block's when one is named, else what the environment says.

    Raises:
        ConfigurationError: neither says where Whitney is.
        ValueError: no block of that name.
    """
    if credentials_block is None:
        return resolve_settings()
    # `_sync`: hooks are called on a running event loop, where `load` would return a coroutine that nobody awaits.
    load = cast("Callable[..., WhitneyCredentials]", WhitneyCredentials.load)
    block = load(credentials_block, _sync=True)
    return WhitneySettings(base_url=block.base_url, api_key=block.api_key)
