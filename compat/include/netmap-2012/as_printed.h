/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The names of the samples in L. Rizzo, "netmap: a novel framework for fast packet I/O" (2012), which are shorter than
 * those of the header of that time. For these samples only: several names are common words, and become macros. So this
 * header comes after all others.
 */
#ifndef NETMAP_2012_AS_PRINTED_H
#define NETMAP_2012_AS_PRINTED_H

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "net/netmap_user.h"

#define NIOCREG                        NIOCREGIF
#define nm_name                        nr_name
#define memsize                        nr_memsize
#define offset                         nr_offset
#define num_queues                     nr_tx_rings
#define buf_index                      buf_idx
#define BUF_CHANGED                    NS_BUF_CHANGED
#define NETMAP_NEXT(ring, i)           NETMAP_RING_NEXT(ring, i)
#define mmap(address, size, fd)        mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
/* The samples pass the one structure itself. */
#define poll(entry, count, timeout_ms) poll(&(entry), count, timeout_ms)

#endif
