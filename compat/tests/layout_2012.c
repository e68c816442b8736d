/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The structures of the header of 2012 lie over those of API 14 (abi_layout.c), and its requests have numbers of their
 * own. Checked by the compiler: to be compiled, not run.
 */
#include <netmap-2012/net/netmap_user.h>
#include <stddef.h>

#include "static_check.h"

#define FIELD(type, field, offset, bytes) \
    STATIC_CHECK(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (bytes))

STATIC_CHECK(sizeof(struct netmap_slot) == 16);
FIELD(struct netmap_slot, buf_idx, 0, 4);
FIELD(struct netmap_slot, len, 4, 2);
FIELD(struct netmap_slot, flags, 6, 2);

FIELD(struct netmap_ring, buf_ofs, 0, 8);
FIELD(struct netmap_ring, num_slots, 8, 4);
FIELD(struct netmap_ring, nr_buf_size, 12, 4);
FIELD(struct netmap_ring, cur, 24, 4);
FIELD(struct netmap_ring, flags, 32, 4);
FIELD(struct netmap_ring, ts, 40, 16);
FIELD(struct netmap_ring, avail, 128, 4);
FIELD(struct netmap_ring, reserved, 132, 4);
STATIC_CHECK(offsetof(struct netmap_ring, slot) == 256);

FIELD(struct netmap_if, ni_name, 0, 16);
FIELD(struct netmap_if, ni_version, 16, 4);
FIELD(struct netmap_if, ni_tx_rings, 24, 4);
FIELD(struct netmap_if, ni_rx_rings, 28, 4);
STATIC_CHECK(offsetof(struct netmap_if, ring_ofs) == 56);

FIELD(struct nmreq, nr_name, 0, 16);
FIELD(struct nmreq, nr_version, 16, 4);
FIELD(struct nmreq, nr_offset, 20, 4);
FIELD(struct nmreq, nr_memsize, 24, 4);
FIELD(struct nmreq, nr_tx_slots, 28, 4);
FIELD(struct nmreq, nr_rx_slots, 32, 4);
FIELD(struct nmreq, nr_tx_rings, 36, 2);
FIELD(struct nmreq, nr_rx_rings, 38, 2);
FIELD(struct nmreq, nr_ringid, 40, 2);

STATIC_CHECK(NIOCGINFO == 0xC0406991);
STATIC_CHECK(NIOCREGIF == 0xC0406992);
STATIC_CHECK(NIOCTXSYNC == 0x6994 && NIOCRXSYNC == 0x6995);
