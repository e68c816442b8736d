/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The two samples of L. Rizzo, "netmap: a novel framework for fast packet I/O" (2012), sections 4.2.3 and 4.5, as they
 * are printed. Two places of the first are no C: its "... store the payload into buf ..." and the value of len.
 *
 *     printed_2012 generate       sends on ix0 without an end
 *     printed_2012 forward A B    passes frames from A to B without an end
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <netmap-2012/as_printed.h>

#define FRAME_BYTES 60

static void generate(void)
{
    static struct nmreq nmr;
    struct netmap_if *nifp;
    struct netmap_ring *ring;
    struct pollfd fds;
    unsigned r, i;
    void *p;
    char *buf;

    /* clang-format off */
fds.fd = open("/dev/netmap", O_RDWR);
strcpy(nmr.nm_name, "ix0");
ioctl(fds.fd, NIOCREG, &nmr);
p = mmap(0, nmr.memsize, fds.fd);
nifp = NETMAP_IF(p, nmr.offset);
fds.events = POLLOUT;
for (;;) {
  poll(fds, 1, -1);
  for (r = 0; r < nmr.num_queues; r++) {
    ring = NETMAP_TXRING(nifp, r);
    while (ring->avail-- > 0) {
      i = ring->cur;
      buf = NETMAP_BUF(ring, ring->slot[i].buf_index);
      memset(buf, 0xff, FRAME_BYTES);
      ring->slot[i].len = FRAME_BYTES; // set packet length
      ring->cur = NETMAP_NEXT(ring, i);
      }
   }
}
    /* clang-format on */
}

struct bound {
    struct pollfd fds;
    struct netmap_ring *tx;
    struct netmap_ring *rx;
};

static struct bound bound(const char *name)
{
    static struct nmreq nmr;
    struct bound port;
    struct netmap_if *nifp;

    port.fds.fd = open("/dev/netmap", O_RDWR);
    port.fds.events = POLLIN;
    strncpy(nmr.nm_name, name, sizeof(nmr.nm_name) - 1);
    if (ioctl(port.fds.fd, NIOCREG, &nmr) != 0) {
        fprintf(stderr, "%s: %s\n", name, strerror(errno));
        exit(1);
    }
    nifp = NETMAP_IF(mmap(0, nmr.memsize, port.fds.fd), nmr.offset);
    port.tx = NETMAP_TXRING(nifp, 0);
    port.rx = NETMAP_RXRING(nifp, 0);
    return port;
}

static void exchange(struct netmap_ring *src_nifp, unsigned i, struct netmap_ring *dst_nifp, unsigned j)
{
    struct netmap_slot *src, *dst;
    uint32_t tmp;

    /* clang-format off */
src = &src_nifp->slot[i]; /* locate src and dst slots */
dst = &dst_nifp->slot[j];
/* swap the buffers */
tmp = dst->buf_index;
dst->buf_index = src->buf_index;
src->buf_index = tmp;
/* update length and flags */
dst->len = src->len;
/* tell kernel to update addresses in the NIC rings */
dst->flags = src->flags = BUF_CHANGED;
    /* clang-format on */
}

static void forward(const char *from, const char *to)
{
    struct bound a = bound(from), b = bound(to);

    for (;;) {
        poll(a.fds, 1, -1);
        ioctl(b.fds.fd, NIOCTXSYNC, NULL);
        while (a.rx->avail > 0 && b.tx->avail > 0) {
            exchange(a.rx, a.rx->cur, b.tx, b.tx->cur);
            a.rx->cur = NETMAP_NEXT(a.rx, a.rx->cur);
            b.tx->cur = NETMAP_NEXT(b.tx, b.tx->cur);
            a.rx->avail--;
            b.tx->avail--;
        }
        ioctl(b.fds.fd, NIOCTXSYNC, NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "generate") == 0) {
        generate();
    } else if (argc == 4 && strcmp(argv[1], "forward") == 0) {
        forward(argv[2], argv[3]);
    }
    return 2;
}
