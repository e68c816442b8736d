"""Address and credentials of another machine, for SSH."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ringroad_lab.trial import Frozen


class SshAddress(Frozen):
    """Address and credentials of another machine, for SSH."""

    name: str
    address: str
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: str = "root"
    key_file: str | None = None
    known_hosts_file: str | None = None
