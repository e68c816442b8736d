/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Wait for two ports with select and print what comes: select PORT PORT. */
#include <libnetmap.h>
#include <sys/select.h>

/* Print length and addresses of each frame, and give the slots back. */
static void show(const char *name, struct nmport_d *port)
{
    uint32_t r;

    for (r = port->first_rx_ring; r <= port->last_rx_ring; r++) {
        struct netmap_ring *ring = NETMAP_RXRING(port->nifp, r);
        uint32_t i = ring->head;

        for (; i != ring->tail; i = nm_ring_next(ring, i)) {
            struct netmap_slot *slot = &ring->slot[i];
            const unsigned char *f = (const unsigned char *)NETMAP_BUF(ring, slot->buf_idx);

            if (slot->len >= 14)
                printf("%s: %u bytes, %02x:%02x:%02x:%02x:%02x:%02x > %02x:%02x:%02x:%02x:%02x:%02x\n", name,
                       slot->len, f[6], f[7], f[8], f[9], f[10], f[11], f[0], f[1], f[2], f[3], f[4], f[5]);
        }
        ring->head = ring->cur = i;
    }
}

int main(int argc, char **argv)
{
    struct nmport_d *ports[2];
    int i, most = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: %s PORT PORT\n", argv[0]);
        return 2;
    }
    setlinebuf(stdout);
    for (i = 0; i < 2; i++) {
        ports[i] = nmport_open(argv[1 + i]); /* prints its own error */
        if (ports[i] == NULL)
            return 1;
        if (ports[i]->fd >= FD_SETSIZE) {
            fprintf(stderr, "too many descriptors for select\n");
            return 1;
        }
        if (ports[i]->fd > most)
            most = ports[i]->fd;
    }
    for (;;) {
        fd_set readable;

        FD_ZERO(&readable);
        for (i = 0; i < 2; i++)
            FD_SET(ports[i]->fd, &readable);
        if (select(most + 1, &readable, NULL, NULL, NULL) < 0) {
            perror("select");
            return 1;
        }
        for (i = 0; i < 2; i++) {
            if (FD_ISSET(ports[i]->fd, &readable))
                show(argv[1 + i], ports[i]);
        }
    }
}
