/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The netmap API as it was in 2012 (version 3), for programs of that time: rings with cur, avail and reserved, and
 * one structure for all requests.
 *
 * Such programs compile unchanged with this folder in front of others: -I.../netmap-2012. Names and values are those
 * of 2012; layouts are today's, so a program has to be compiled anew. New programs use today's <net/netmap.h>.
 *
 * Who writes a field is given in parentheses: (p) the program, (k) the provider, which in netmap is the kernel.
 */
#ifndef NET_NETMAP_2012_H
#define NET_NETMAP_2012_H

#ifdef NET_NETMAP_H
#    error "a program includes the netmap headers of 2012 or those of today, not both"
#endif

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/types.h>

#define NETMAP_API 3

/* Members that only the provider writes are const, and structures end in arrays: see <net/netmap.h> of today. */
#if defined(__cplusplus)
#    pragma GCC diagnostic push
#    pragma GCC diagnostic ignored "-Wuninitialized"
#    pragma GCC diagnostic ignored "-Wpedantic"
#endif

/* ---- Slots ---- */

/* One frame, or room for one. */
struct netmap_slot {
    uint32_t buf_idx; /* which buffer of the region */
    uint16_t len;     /* bytes in it */
    uint16_t flags;   /* NS_* */
    uint64_t later_;  /* unknown in 2012 */
};

#define NS_BUF_CHANGED 0x0001 /* buf_idx has changed: set by the side that exchanges a buffer */
#define NS_REPORT      0x0002 /* tx: give the slot back soon after it was sent, not at leisure */
#define NS_FORWARD     0x0004 /* rx, with NR_FORWARD: when released, pass on between host and interface */
#define NS_NO_LEARN    0x0008 /* tx to a switch: do not learn the source address */
#define NS_PORT_SHIFT  8
#define NS_PORT_MASK   (0xff << NS_PORT_SHIFT) /* tx to a switch: port to send to, 0: by address */

/* ---- Rings ---- */

/*
 * A ring of slots, in either direction. The program owns the avail slots from cur on: on a tx ring they are room for
 * frames, on an rx ring they hold received ones. For each slot that it has used the program moves cur on and lowers
 * avail. Of an rx ring it can keep slots before cur: as many as reserved says.
 *
 * A sync takes cur and reserved from the program and gives it a new avail. It does not read avail, so a program may
 * leave any value there.
 */
struct netmap_ring {
    const int64_t buf_ofs;      /* (k) from this structure to the first buffer, bytes */
    const uint32_t num_slots;   /* (k) */
    const uint32_t nr_buf_size; /* (k) bytes of a buffer */
    const uint32_t later_[2];
    uint32_t cur; /* (p) next slot to use */
    const uint32_t later2_;
    uint32_t flags;    /* (p) NR_* */
    struct timeval ts; /* (k) time of the last sync of an rx ring */
    const uint64_t later3_[2];

    uint32_t __attribute__((__aligned__(128))) avail; /* (k, p) slots from cur on */
    uint32_t reserved;                                /* (p) rx: slots before cur that it keeps */
    uint8_t later4_[120];

    struct netmap_slot slot[];
};

#define NR_TIMESTAMP 0x0002 /* set ts at each sync */
#define NR_FORWARD   0x0004 /* act on NS_FORWARD */

/* ---- Bound interfaces ---- */

/* An interface as one bound descriptor sees it: its rings, as offsets from this structure. */
struct netmap_if {
    char ni_name[16];          /* (k) name, cut to 15 bytes */
    const uint32_t ni_version; /* (k) unused */
    const uint32_t later_;
    const uint32_t ni_tx_rings; /* (k) tx rings, the host's not counted */
    const uint32_t ni_rx_rings; /* (k) rx rings, the host's not counted */
    const uint32_t later2_[6];
    const ssize_t ring_ofs[]; /* (k) tx, host tx, rx, host rx; 0 for a ring that is not bound */
};

/* ---- Requests ---- */

struct nmreq {
    char nr_name[16];    /* (p) */
    uint32_t nr_version; /* (p) not read: the request's number tells it */
    uint32_t nr_offset;  /* (k) of the netmap_if in the region, bytes */
    uint32_t nr_memsize; /* (k) bytes of the region */
    uint32_t nr_tx_slots;
    uint32_t nr_rx_slots;
    uint16_t nr_tx_rings;
    uint16_t nr_rx_rings;
    uint16_t nr_ringid; /* (p) number of a ring, and the flags below */
    uint16_t spare1;
    uint32_t spare2[5]; /* one word longer than the request of other versions, so that the numbers differ */
};

#define NETMAP_HW_RING    0x4000 /* only the pair of rings of this number */
#define NETMAP_SW_RING    0x2000 /* only the host's pair of rings */
#define NETMAP_NO_TX_POLL 0x1000 /* poll sends only with POLLOUT */
#define NETMAP_RING_MASK  0x0fff

#define NIOCGINFO   _IOWR('i', 145, struct nmreq) /* sizes of an interface */
#define NIOCREGIF   _IOWR('i', 146, struct nmreq) /* bind the descriptor to an interface */
#define NIOCUNREGIF _IO('i', 147)                 /* refused with EOPNOTSUPP: close the descriptor */
#define NIOCTXSYNC  _IO('i', 148)                 /* all bound tx rings: send up to cur, find new room */
#define NIOCRXSYNC  _IO('i', 149)                 /* all bound rx rings: take slots back, find new frames */

#if defined(__cplusplus)
#    pragma GCC diagnostic pop
#endif

#endif
