/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The netmap API of 2012: cur, avail, reserved, NIOCREGIF without a version, and buffers exchanged between rings.
 * Two ends of one pipe, so that every frame is seen at once.
 */
#include <netmap-2012/net/netmap_user.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../check.h"

/* Only a failure waits this long, ms. */
#define PATIENCE 120000

struct end {
    int fd;
    char *mem;
    struct nmreq req;
    struct netmap_ring *tx;
    struct netmap_ring *rx;
};

static struct end opened(const char *name)
{
    struct end e;
    struct netmap_if *nifp;

    memset(&e, 0, sizeof(e));
    e.fd = open("/dev/netmap", O_RDWR);
    NEED(e.fd >= 0);
    strncpy(e.req.nr_name, name, sizeof(e.req.nr_name) - 1);
    NEED(ioctl(e.fd, NIOCREGIF, &e.req) == 0);
    CHECK(e.req.nr_version == 0 && e.req.nr_tx_rings == 1 && e.req.nr_rx_rings == 1);
    e.mem = (char *)mmap(NULL, e.req.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, e.fd, 0);
    NEED(e.mem != MAP_FAILED);
    nifp = NETMAP_IF(e.mem, e.req.nr_offset);
    e.tx = NETMAP_TXRING(nifp, 0);
    e.rx = NETMAP_RXRING(nifp, 0);
    /* Full of room before the first sync. */
    CHECK(e.tx->avail == e.tx->num_slots - 1 && NETMAP_TX_RING_EMPTY(e.tx));
    CHECK(e.rx->avail == 0 && e.rx->reserved == 0);
    return e;
}

static short polled(const struct end *e, short events, int timeout_ms)
{
    struct pollfd entry;

    entry.fd = e->fd;
    entry.events = events;
    entry.revents = 0;
    return poll(&entry, 1, timeout_ms) < 0 ? POLLNVAL : entry.revents;
}

static void put(struct netmap_ring *ring, unsigned char number)
{
    struct netmap_slot *slot = &ring->slot[ring->cur];

    NEED(ring->avail > 0);
    memset(NETMAP_BUF(ring, slot->buf_idx), number, 60);
    slot->len = 60;
    ring->cur = NETMAP_RING_NEXT(ring, ring->cur);
    ring->avail--;
}

static int number_at(const struct netmap_ring *ring, unsigned slot)
{
    const unsigned char *frame = (const unsigned char *)NETMAP_BUF(ring, ring->slot[slot].buf_idx);

    return ring->slot[slot].len == 60 ? frame[59] : -1;
}

static int take(struct netmap_ring *ring)
{
    int number = number_at(ring, ring->cur);

    NEED(ring->avail > 0);
    ring->cur = NETMAP_RING_NEXT(ring, ring->cur);
    ring->avail--;
    return number;
}

/* In 2012 one region held all interfaces, and programs could map it before they bound one. */
static void map_before_binding(void)
{
    struct nmreq req;
    struct netmap_if *nifp;
    char *mem;
    int fd = open("/dev/netmap", O_RDWR);

    NEED(fd >= 0);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    memset(&req, 0, sizeof(req));
    strncpy(req.nr_name, "vale0:early", sizeof(req.nr_name) - 1);
    NEED(ioctl(fd, NIOCGINFO, &req) == 0 && req.nr_memsize > 0);
    mem = (char *)mmap(NULL, req.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(mem != MAP_FAILED);
    CHECK(ioctl(fd, NIOCGINFO, &req) == 0);
    NEED(ioctl(fd, NIOCREGIF, &req) == 0);
    nifp = NETMAP_IF(mem, req.nr_offset);
    CHECK(strcmp(nifp->ni_name, "vale0:early") == 0);
    CHECK(NETMAP_TXRING(nifp, 0)->avail == req.nr_tx_slots - 1);
    CHECK(ioctl(fd, NIOCREGIF, &req) == -1 && errno == EBUSY);
    munmap(mem, req.nr_memsize);
    close(fd);
}

int main(void)
{
    struct end a = opened("x{1"), b = opened("x}1");
    unsigned full = a.tx->num_slots - 1, i, kept;
    struct netmap_slot *from, *to;
    uint32_t index;
    struct nmreq info;

    /* Sending: a loop may leave any avail, even one below 0, and the next sync repairs it. */
    for (i = 0; a.tx->avail-- > 0; i++) {
        memset(NETMAP_BUF(a.tx, a.tx->slot[a.tx->cur].buf_idx), (int)(i % 251), 60);
        a.tx->slot[a.tx->cur].len = 60;
        a.tx->cur = NETMAP_RING_NEXT(a.tx, a.tx->cur);
    }
    CHECK(i == full && a.tx->avail == UINT32_MAX);
    CHECK(polled(&a, POLLOUT, 0) == 0 && a.tx->avail == 0);
    /* Receiving all of them, in order. */
    CHECK(polled(&b, POLLIN, PATIENCE) == POLLIN && b.rx->avail == full);
    for (i = 0; i < full; i++) {
        CHECK(take(b.rx) == (int)(i % 251));
    }
    CHECK(ioctl(b.fd, NIOCRXSYNC, NULL) == 0 && b.rx->avail == 0);
    CHECK(polled(&a, POLLOUT, PATIENCE) == POLLOUT && a.tx->avail == full && NETMAP_TX_RING_EMPTY(a.tx));

    /* Reserved slots stay the program's over syncs, and the sender gets no room for them. */
    for (i = 0; i < 5; i++) {
        put(a.tx, (unsigned char)(100 + i));
    }
    CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0);
    CHECK(ioctl(b.fd, NIOCRXSYNC, NULL) == 0 && b.rx->avail == 5);
    kept = b.rx->cur;
    for (i = 0; i < 3; i++) {
        CHECK(take(b.rx) == (int)(100 + i));
    }
    b.rx->reserved = 3;
    CHECK(ioctl(b.fd, NIOCRXSYNC, NULL) == 0 && b.rx->avail == 2 && b.rx->reserved == 3);
    CHECK(NETMAP_RING_FIRST_RESERVED(b.rx) == kept);
    CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0 && a.tx->avail == full - 5);
    CHECK(number_at(b.rx, kept) == 100 && number_at(b.rx, NETMAP_RING_NEXT(b.rx, kept)) == 101);
    b.rx->reserved = 1;
    CHECK(ioctl(b.fd, NIOCRXSYNC, NULL) == 0 && b.rx->avail == 2);
    CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0 && a.tx->avail == full - 3);
    CHECK(NETMAP_RING_FIRST_RESERVED(b.rx) == (kept + 2) % b.rx->num_slots);
    CHECK(number_at(b.rx, NETMAP_RING_FIRST_RESERVED(b.rx)) == 102);
    b.rx->reserved = 0;
    CHECK(take(b.rx) == 103 && take(b.rx) == 104);
    CHECK(ioctl(b.fd, NIOCRXSYNC, NULL) == 0 && b.rx->avail == 0);
    CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0 && a.tx->avail == full);

    /* A received buffer goes back by exchange: b sends to a what it received from a, without a copy. */
    put(a.tx, 77);
    CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0);
    CHECK(polled(&b, POLLIN, PATIENCE) == POLLIN && b.rx->avail == 1);
    from = &b.rx->slot[b.rx->cur];
    to = &b.tx->slot[b.tx->cur];
    index = from->buf_idx;
    from->buf_idx = to->buf_idx;
    to->buf_idx = index;
    to->len = from->len;
    to->flags = from->flags = NS_BUF_CHANGED;
    CHECK(from->buf_idx != index);
    b.rx->cur = NETMAP_RING_NEXT(b.rx, b.rx->cur);
    b.rx->avail--;
    b.tx->cur = NETMAP_RING_NEXT(b.tx, b.tx->cur);
    b.tx->avail--;
    CHECK(ioctl(b.fd, NIOCTXSYNC, NULL) == 0 && ioctl(b.fd, NIOCRXSYNC, NULL) == 0);
    CHECK(polled(&a, POLLIN, PATIENCE) == POLLIN && take(a.rx) == 77);
    CHECK(ioctl(a.fd, NIOCRXSYNC, NULL) == 0);

    /* More reserved than was received is refused once and put right; a wild cur as well. */
    b.rx->reserved = b.rx->num_slots / 2;
    CHECK(polled(&b, POLLIN, 0) == POLLERR && b.rx->reserved == 0);
    b.rx->reserved = UINT32_MAX;
    CHECK(polled(&b, POLLIN, 0) == POLLERR && b.rx->reserved == 0);
    b.rx->cur = UINT32_MAX;
    CHECK(polled(&b, POLLIN, 0) == POLLERR && b.rx->cur < b.rx->num_slots);
    put(a.tx, 78);
    CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0);
    CHECK(polled(&b, POLLIN, PATIENCE) == POLLIN && b.rx->avail == 1 && take(b.rx) == 78);

    /* Other requests. */
    memset(&info, 0, sizeof(info));
    strncpy(info.nr_name, "x{1", sizeof(info.nr_name) - 1);
    info.nr_version = NETMAP_API;
    CHECK(ioctl(a.fd, NIOCGINFO, &info) == 0 && info.nr_memsize == a.req.nr_memsize);
    CHECK(info.nr_tx_slots == full + 1);
    CHECK(ioctl(a.fd, NIOCREGIF, &info) == -1 && errno == EBUSY);
    CHECK(ioctl(a.fd, NIOCUNREGIF, NULL) == -1 && errno == EOPNOTSUPP);
    map_before_binding();
    munmap(a.mem, a.req.nr_memsize);
    munmap(b.mem, b.req.nr_memsize);
    close(a.fd);
    close(b.fd);
    return CHECK_RESULT();
}
