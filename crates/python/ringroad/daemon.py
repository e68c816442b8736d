"""Questions to the daemon, and orders, with their types."""

import json
from typing import Any, cast

from ringroad import _ringroad
from ringroad.reports import AttachedPort, MacEntryReport, PortReport, StatusReport


class Daemon(_ringroad.Daemon):
    """A connection to the daemon at ``socket``, else at the usual place. None is started.

    What the daemon refuses is a ``DaemonRefused``. ``request()`` takes every request of the control protocol.
    """

    def request(self, request: str, /, **fields: Any) -> Any:  # noqa: ANN401
        """Send a request, such as ``request("detach", name="vale0:a")``. Returns what the reply holds, or None."""
        reply = json.loads(self.request_json(json.dumps({request: fields} if fields else request)))
        return next(iter(reply.values())) if isinstance(reply, dict) else None

    def status(self) -> StatusReport:
        """Return the whole status of the daemon."""
        return cast(StatusReport, self.request("status"))

    def ports(self) -> list[PortReport]:
        """Return the ports."""
        return cast(list[PortReport], self.request("list")["ports"])

    def port(self, name: str) -> PortReport | None:
        """Return one port, if it is there."""
        return next((port for port in self.ports() if port["name"] == name), None)

    def attach(
        self,
        name: str,
        driver: str | None = None,
        *,
        for_program: bool = False,
        host: bool = False,
        take: bool = False,
        queues: int | None = None,
        slots: int | None = None,
        buffer_bytes: int | None = None,
    ) -> list[AttachedPort]:
        """Make a port that stays, as ``ringroad attach`` does. Returns it, and the host's side where there is one."""
        wish = {"queues": queues, "slots": slots, "buffer_bytes": buffer_bytes}
        attached = self.request(
            "attach", name=name, driver=driver, for_program=for_program, host=host, take=take, wish=wish
        )
        return cast(list[AttachedPort], attached)

    def detach(self, name: str, *, take: bool = False) -> None:
        """Remove an attached port; with ``take`` also one that a program has open."""
        self.request("detach", name=name, take=take)

    def macs(self, switch: str) -> list[MacEntryReport]:
        """Return the addresses that a switch knows."""
        return cast(list[MacEntryReport], self.request("mac_table", switch=switch))

    def set_address(self, switch: str, mac: str, port: str | None) -> None:
        """Put an address onto a port of a switch, where it stays; None takes it back."""
        self.request("set_address", switch=switch, mac=mac, port=port)

    def forget_addresses(self, switch: str, port: str | None = None) -> int:
        """Forget learned addresses. Returns their number."""
        return cast(int, self.request("forget_addresses", switch=switch, port=port)["addresses"])

    def reload(self) -> None:
        """Have the daemon read its configuration again."""
        self.request("reload")
