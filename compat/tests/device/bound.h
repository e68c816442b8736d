/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A port bound by hand, as programs that know only the header do it, and frames in and out of its rings. */
#ifndef COMPAT_TESTS_DEVICE_BOUND_H
#define COMPAT_TESTS_DEVICE_BOUND_H

#include <errno.h>
#include <fcntl.h>
#include <net/netmap.h>
#include <net/netmap_user.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../check.h"

struct bound {
    int fd;
    int error; /* errno of REGISTER, 0 where it is bound */
    struct nmreq_register reg;
    void *mem;
    struct netmap_if *nifp;
};

static inline void header_init(struct nmreq_header *hdr, uint16_t type, const char *name, void *body)
{
    memset(hdr, 0, sizeof(*hdr));
    hdr->nr_version = NETMAP_API;
    hdr->nr_reqtype = type;
    hdr->nr_body = (uintptr_t)body;
    strncpy(hdr->nr_name, name, sizeof(hdr->nr_name) - 1);
}

/* A request; errno, or 0. */
static inline int request_with(int fd, uint16_t type, const char *name, void *body, void *options)
{
    struct nmreq_header hdr;

    header_init(&hdr, type, name, body);
    hdr.nr_options = (uintptr_t)options;
    return ioctl(fd, NIOCCTRL, &hdr) == 0 ? 0 : errno;
}

static inline int request(int fd, uint16_t type, const char *name, void *body)
{
    return request_with(fd, type, name, body, NULL);
}

static inline int device(void)
{
    int fd = open("/dev/netmap", O_RDWR);

    NEED(fd >= 0);
    return fd;
}

/* Binds with everything in `wish` as it is. */
static inline struct bound bind_as(const char *name, struct nmreq_register wish, void *options)
{
    struct bound b;

    memset(&b, 0, sizeof(b));
    b.fd = device();
    b.reg = wish;
    b.error = request_with(b.fd, NETMAP_REQ_REGISTER, name, &b.reg, options);
    if (b.error != 0) {
        return b;
    }
    b.mem = mmap(NULL, b.reg.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
    NEED(b.mem != MAP_FAILED);
    b.nifp = NETMAP_IF(b.mem, b.reg.nr_offset);
    return b;
}

static inline struct bound bind_mode(const char *name, uint32_t mode, uint16_t ring, uint64_t flags)
{
    struct nmreq_register wish;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = mode;
    wish.nr_ringid = ring;
    wish.nr_flags = flags;
    return bind_as(name, wish, NULL);
}

static inline struct bound bind_port(const char *name)
{
    struct bound b = bind_mode(name, NR_REG_ALL_NIC, 0, 0);

    if (b.error != 0) {
        fprintf(stderr, "binding %s: %s\n", name, strerror(b.error));
        exit(1);
    }
    return b;
}

/* The error that a bind gives. */
static inline int bind_error(const char *name, uint32_t mode, uint16_t ring, uint64_t flags)
{
    struct bound b = bind_mode(name, mode, ring, flags);

    if (b.error == 0) {
        munmap(b.mem, b.reg.nr_memsize);
    }
    close(b.fd);
    return b.error;
}

static inline void unbind(struct bound *b)
{
    if (b->mem != NULL) {
        munmap(b->mem, b->reg.nr_memsize);
    }
    close(b->fd);
}

static inline struct netmap_ring *tx(const struct bound *b, unsigned index)
{
    return NETMAP_TXRING(b->nifp, index);
}

static inline struct netmap_ring *rx(const struct bound *b, unsigned index)
{
    return NETMAP_RXRING(b->nifp, index);
}

static inline int txsync(const struct bound *b)
{
    return ioctl(b->fd, NIOCTXSYNC, NULL);
}

/* Syncs until no slot is pending: what was sent on a switch lies in its receivers' rings then. */
static inline int deliver(const struct bound *b)
{
    unsigned rings = b->nifp->ni_tx_rings + b->nifp->ni_host_tx_rings, i;
    int pending = 1;

    while (pending && txsync(b) == 0) {
        pending = 0;
        for (i = 0; i < rings; i++) {
            pending |= b->nifp->ring_ofs[i] != 0 && nm_tx_pending(tx(b, i));
        }
    }
    return pending ? -1 : 0;
}

static inline int rxsync(const struct bound *b)
{
    return ioctl(b->fd, NIOCRXSYNC, NULL);
}

/* Puts a frame of `bytes` bytes from `from` to `to` (last byte of the address), the rest filled with `fill`, into the next slots. */
static inline int put(struct netmap_ring *ring, unsigned bytes, int from, int to, int fill)
{
    uint8_t frame[65536];
    unsigned done = 0;

    memset(frame, fill, sizeof(frame));
    memset(frame, to < 0 ? 0xff : 0, 6);
    memset(frame + 6, 0, 6);
    frame[0] = to < 0 ? 0xff : 2;
    frame[5] = (uint8_t)to;
    frame[6] = 2;
    frame[11] = (uint8_t)from;
    while (done < bytes || bytes == 0) {
        struct netmap_slot *slot = &ring->slot[ring->head];
        unsigned part = bytes - done < ring->nr_buf_size ? bytes - done : ring->nr_buf_size;

        if (nm_ring_empty(ring)) {
            return 0;
        }
        memcpy(NETMAP_BUF(ring, slot->buf_idx), frame + done, part);
        slot->len = (uint16_t)part;
        done += part;
        slot->flags = done < bytes ? NS_MOREFRAG : 0;
        ring->head = ring->cur = nm_ring_next(ring, ring->head);
        if (bytes == 0) {
            break;
        }
    }
    return 1;
}

/* Takes the next frame; its length, or -1 if there is none. `*fill` is its last byte. */
static inline int take(struct netmap_ring *ring, int *fill, unsigned *slots)
{
    int bytes = 0;
    unsigned count = 0;

    for (;;) {
        struct netmap_slot *slot = &ring->slot[ring->head];
        uint8_t *data;
        int more;

        if (nm_ring_empty(ring)) {
            return -1;
        }
        data = (uint8_t *)NETMAP_BUF(ring, slot->buf_idx);
        more = slot->flags & NS_MOREFRAG;
        bytes += slot->len;
        if (fill != NULL && slot->len > 0) {
            *fill = data[slot->len - 1];
        }
        count++;
        ring->head = ring->cur = nm_ring_next(ring, ring->head);
        if (!more) {
            break;
        }
    }
    if (slots != NULL) {
        *slots = count;
    }
    return bytes;
}

/* Frames received now, which are released. */
static inline int drain(const struct bound *b, unsigned index)
{
    int frames = 0;

    CHECK(rxsync(b) == 0);
    while (take(rx(b, index), NULL, NULL) >= 0) {
        frames++;
    }
    CHECK(rxsync(b) == 0);
    return frames;
}

/* Only a failure waits this long: a busy machine may take its time. */
#define PATIENCE_MS 120000

static inline short poll_one(const struct bound *b, short events, int timeout_ms)
{
    struct pollfd set = {.fd = b->fd, .events = events, .revents = 0};

    return poll(&set, 1, timeout_ms) > 0 ? set.revents : 0;
}

#endif
