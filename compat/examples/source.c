/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Send broadcast frames of 60 bytes as fast as the port takes them: source PORT COUNT. */
#include <libnetmap.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static unsigned char frame[60] = {
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* to all */
    0x02, 0x00, 0x00, 0x00, 0x00, 0x01, /* from an unused address */
    0x88, 0xb5                          /* EtherType for experiments */
};

int main(int argc, char **argv)
{
    unsigned long long left;
    struct nmport_d *port;
    struct pollfd poll_fd;
    uint32_t r;

    if (argc != 3) {
        fprintf(stderr, "usage: %s PORT COUNT\n", argv[0]);
        return 2;
    }
    left = strtoull(argv[2], NULL, 10);
    port = nmport_open(argv[1]); /* prints its own error */
    if (port == NULL)
        return 1;
    poll_fd.fd = port->fd;
    poll_fd.events = POLLOUT;
    while (left > 0) {
        /* Push what lies in the rings, and sleep until one has room. */
        if (poll(&poll_fd, 1, -1) < 0 || (poll_fd.revents & POLLERR)) {
            fprintf(stderr, "%s: the port has stopped\n", argv[1]);
            nmport_close(port);
            return 1;
        }
        for (r = port->first_tx_ring; r <= port->last_tx_ring; r++) {
            struct netmap_ring *ring = NETMAP_TXRING(port->nifp, r);
            uint32_t i = ring->head;

            for (; i != ring->tail && left > 0; i = nm_ring_next(ring, i), left--) {
                memcpy(NETMAP_BUF(ring, ring->slot[i].buf_idx), frame, sizeof(frame));
                ring->slot[i].len = sizeof(frame);
                ring->slot[i].flags = 0;
            }
            ring->head = ring->cur = i;
        }
    }
    /* The last ones leave with a sync, and are gone when nothing is pending. */
    for (r = port->first_tx_ring; r <= port->last_tx_ring; r++) {
        while (nm_tx_pending(NETMAP_TXRING(port->nifp, r)) && ioctl(port->fd, NIOCTXSYNC, NULL) == 0)
            ;
    }
    nmport_close(port);
    return 0;
}
