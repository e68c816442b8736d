/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a program needs to walk a mapped netmap region: from the region to its rings, from a ring to its
 * buffers.
 *
 *     struct netmap_if *nifp = NETMAP_IF(base, reg.nr_offset);
 *     struct netmap_ring *ring = NETMAP_RXRING(nifp, 0);
 *     for (; !nm_ring_empty(ring); ring->head = ring->cur = nm_ring_next(ring, ring->head)) {
 *         struct netmap_slot *slot = &ring->slot[ring->head];
 *         consume(NETMAP_BUF(ring, slot->buf_idx), slot->len);
 *     }
 *
 * With NETMAP_WITH_LIBS defined before it is included, also <net/netmap_open.h>. Functions whose names end with an
 * underscore are not for programs.
 */
#ifndef NET_NETMAP_USER_H
#define NET_NETMAP_USER_H

#include <ctype.h> /* programs count on it */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <net/if.h>
#include <net/netmap.h>

#ifndef likely
#    define likely(x)   __builtin_expect(!!(x), 1)
#    define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/* ---- From the region to rings and buffers ---- */

#define _NETMAP_OFFSET(type, base, offset) ((type)(void *)((char *)(base) + (offset)))

/* The bound port at nr_offset of the region. */
#define NETMAP_IF(base, offset) _NETMAP_OFFSET(struct netmap_if *, base, offset)

/* Ring `index` of a direction; host rings follow the others. A ring that is not bound has offset 0. */
#define NETMAP_TXRING(nifp, index) _NETMAP_OFFSET(struct netmap_ring *, nifp, (nifp)->ring_ofs[index])
#define NETMAP_RXRING(nifp, index)             \
    _NETMAP_OFFSET(struct netmap_ring *, nifp, \
                   (nifp)->ring_ofs[(index) + (nifp)->ni_tx_rings + (nifp)->ni_host_tx_rings])

/* Address of a buffer, and index of the buffer at an address. */
#define NETMAP_BUF(ring, index) \
    ((char *)(ring) + (ring)->buf_ofs + (int64_t)(index) * (int64_t)(ring)->nr_buf_size)
#define NETMAP_BUF_IDX(ring, buf) \
    (((const char *)(buf) - ((const char *)(ring) + (ring)->buf_ofs)) / (ring)->nr_buf_size)

/* Of slots with offsets: where the frame begins in its buffer. Without the option these are 0 and do nothing.
 */
#define NETMAP_ROFFSET(ring, slot) ((slot)->ptr & (ring)->offset_mask)
#define NETMAP_WOFFSET(ring, slot, offset)                                                     \
    do {                                                                                       \
        (slot)->ptr = ((slot)->ptr & ~(ring)->offset_mask) | ((offset) & (ring)->offset_mask); \
    } while (0)
#define NETMAP_BUF_OFFSET(ring, slot) (NETMAP_BUF(ring, (slot)->buf_idx) + NETMAP_ROFFSET(ring, slot))

/* The slot behind `i`. */
static inline uint32_t nm_ring_next(struct netmap_ring *ring, uint32_t i)
{
    return unlikely(i + 1 == ring->num_slots) ? 0 : i + 1;
}

/* Slots that the program owns. */
static inline uint32_t nm_ring_space(struct netmap_ring *ring)
{
    return ring->tail >= ring->head ? ring->tail - ring->head : ring->tail + ring->num_slots - ring->head;
}

/* Whether something that was handed over on a tx ring has not been sent yet. */
static inline int nm_tx_pending(struct netmap_ring *ring)
{
    return nm_ring_next(ring, ring->tail) != ring->head;
}

/* Copy a frame between buffers that do not overlap. Callers leave room for up to 63 bytes more, though none
 * is taken. */
static inline void nm_pkt_copy(const void *from, void *to, int length)
{
    memcpy(to, from, (size_t)length);
}

/* ---- Messages ---- */

#ifndef ND

/* To stderr: time, function, line, message. */
static inline void __attribute__((__format__(__printf__, 3, 4)))
nm_message_(const char *function, int line, const char *format, ...)
{
    struct timeval now;
    va_list values;

    gettimeofday(&now, NULL);
    fprintf(stderr, "%03d.%06d %s [%d] ", (int)(now.tv_sec % 1000), (int)now.tv_usec, function, line);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
}

/* Whether one more message is allowed in this second. */
static inline int nm_message_due_(time_t *second, unsigned int *count, unsigned int most)
{
    struct timeval now;

    gettimeofday(&now, NULL);
    if (*second != now.tv_sec) {
        *second = now.tv_sec;
        *count = 0;
    }
    return (*count)++ < most;
}

/* D prints a message, ND does not, RD limits its messages per second. */
#    define D(...) nm_message_(__func__, __LINE__, __VA_ARGS__)
#    define ND(...) \
        do {        \
        } while (0)
#    define RD(lps, ...)                                                       \
        do {                                                                   \
            static time_t nm_second_;                                          \
            static unsigned int nm_count_;                                     \
            if (nm_message_due_(&nm_second_, &nm_count_, (unsigned int)(lps))) \
                D(__VA_ARGS__);                                                \
        } while (0)

#endif

#endif

/* Outside the guard, so that NETMAP_WITH_LIBS may come with a later inclusion. */
#if defined(NETMAP_WITH_LIBS)
#include <net/netmap_open.h>
#endif
