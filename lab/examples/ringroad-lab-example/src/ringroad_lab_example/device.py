"""A device in about twenty lines: the kernel's traffic control sends what comes in at one interface out at another (tc-mirred(8))."""

from collections.abc import Sequence

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.dut.interface import Dut, DutPort, Rule


class KernelMirror(Dut):
    """Redirects all frames of an interface."""

    title = "Redirection by tc"
    carries = frozenset({CableKind.VETH})

    def prepare(self) -> None:
        """Look for tc."""
        self.host.require("tc", "iproute2")

    def start(self) -> None:
        """Do nothing: the kernel runs already."""

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Redirect the frames of each port as its rule says."""
        ends = {port.number: port.cable.dut_end for port in ports}
        for rule in rules:
            self.host.run(["tc", "qdisc", "add", "dev", ends[rule.in_port], "ingress"])
            every = ["protocol", "all", "u32", "match", "u8", "0", "0"]
            redirect = ["action", "mirred", "egress", "redirect", "dev", ends[rule.out_port]]
            self.host.run(["tc", "filter", "add", "dev", ends[rule.in_port], "parent", "ffff:", *every, *redirect])
