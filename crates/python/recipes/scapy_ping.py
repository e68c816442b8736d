"""Ping a station of a switch with Scapy: python3 scapy_ping.py vale0:scapy 10.0.0.9 10.0.0.1"""

import sys

from scapy.config import conf
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether
from scapy.sendrecv import sndrcv

from ringroad.scapy_socket import RingroadSocket

conf.verb = 0
OWN_MAC = "02:00:00:00:00:09"
name, own, target = sys.argv[1:]
socket = RingroadSocket(name)
question = Ether(src=OWN_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=OWN_MAC, psrc=own, pdst=target)
answered, _ = sndrcv(socket, question, timeout=5)
mac = answered[0].answer.hwsrc
# The peer may have to resolve our address by ARP before it can answer: the frame is sent again until it does.
answered, _ = sndrcv(socket, Ether(src=OWN_MAC, dst=mac) / IP(src=own, dst=target) / ICMP(), timeout=5)
print(f"{target} is at {mac} and answers: {answered[0].answer.summary()}")
socket.close()
