"""Counts frames of a device with a libpcap that it loads itself: ctypes_pcap.py DEVICE COUNT."""

import ctypes
import ctypes.util
import sys


class Header(ctypes.Structure):
    _fields_ = [
        ("seconds", ctypes.c_long),
        ("fraction", ctypes.c_long),
        ("captured", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
    ]


pcap = ctypes.CDLL(ctypes.util.find_library("pcap"))
pcap.pcap_open_live.restype = ctypes.c_void_p
pcap.pcap_lib_version.restype = ctypes.c_char_p
error = ctypes.create_string_buffer(256)
device = ctypes.c_void_p(pcap.pcap_open_live(sys.argv[1].encode(), 65535, 1, 1000, error))
if not device:
    sys.exit(error.value.decode())

header = ctypes.POINTER(Header)()
packet = ctypes.POINTER(ctypes.c_ubyte)()
lengths = []
while len(lengths) < int(sys.argv[2]):
    status = pcap.pcap_next_ex(device, ctypes.byref(header), ctypes.byref(packet))
    if status < 0:
        sys.exit("the device failed")
    if status == 1:
        lengths.append(header.contents.captured)
pcap.pcap_close(device)
print(pcap.pcap_lib_version().decode())
print(lengths)
