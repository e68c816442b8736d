/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From a mapped region to its rings and buffers, in the API of 2012. */
#ifndef NET_NETMAP_2012_USER_H
#define NET_NETMAP_2012_USER_H

#include "netmap.h"

#define _NETMAP_OFFSET(type, base, offset) ((type)(void *)((char *)(base) + (offset)))

/* The bound interface at nr_offset of the region. */
#define NETMAP_IF(base, offset) _NETMAP_OFFSET(struct netmap_if *, base, offset)

/* Ring `index` of a direction; the host's ring follows the others. */
#define NETMAP_TXRING(nifp, index) _NETMAP_OFFSET(struct netmap_ring *, nifp, (nifp)->ring_ofs[index])
#define NETMAP_RXRING(nifp, index) \
    _NETMAP_OFFSET(struct netmap_ring *, nifp, (nifp)->ring_ofs[(index) + (nifp)->ni_tx_rings + 1])

/* Address of a buffer, and index of the buffer at an address. */
#define NETMAP_BUF(ring, index) \
    ((char *)(ring) + (ring)->buf_ofs + (int64_t)(index) * (int64_t)(ring)->nr_buf_size)
#define NETMAP_BUF_IDX(ring, buf) \
    (((const char *)(buf) - ((const char *)(ring) + (ring)->buf_ofs)) / (ring)->nr_buf_size)

/* The slot behind `i`. */
#define NETMAP_RING_NEXT(ring, i) ((i) + 1 == (ring)->num_slots ? 0 : (i) + 1)

/* The first slot of an rx ring that the program keeps. */
#define NETMAP_RING_FIRST_RESERVED(ring) \
    ((ring)->cur - (ring)->reserved + ((ring)->cur < (ring)->reserved ? (ring)->num_slots : 0))

/* Whether everything that was handed over on a tx ring has been sent: valid after a sync. */
#define NETMAP_TX_RING_EMPTY(ring) ((ring)->avail >= (ring)->num_slots - 1)

#endif
