/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Pass frames between two ports, both ways: bridge PORT PORT. Without a copy where they share a region. */
#include <libnetmap.h>
#include <poll.h>
#include <string.h>

/* Move as many slots as both rings allow. */
static void move(struct netmap_ring *rx, struct netmap_ring *tx, int same_region)
{
    uint32_t i = rx->head, o = tx->head;

    for (; i != rx->tail && o != tx->tail; i = nm_ring_next(rx, i), o = nm_ring_next(tx, o)) {
        struct netmap_slot *in = &rx->slot[i], *out = &tx->slot[o];

        if (same_region) {
            uint32_t buffer = out->buf_idx;

            out->buf_idx = in->buf_idx;
            in->buf_idx = buffer;
            in->flags |= NS_BUF_CHANGED;
        } else {
            memcpy(NETMAP_BUF(tx, out->buf_idx), NETMAP_BUF(rx, in->buf_idx), in->len);
        }
        out->len = in->len;
        /* Only these: what else received slots carry means something else on the way out. */
        out->flags = (uint16_t)((in->flags & NS_MOREFRAG) | (same_region ? NS_BUF_CHANGED : 0));
    }
    rx->head = rx->cur = i;
    tx->head = tx->cur = o;
}

static void pass(struct nmport_d *from, struct nmport_d *to)
{
    uint32_t r, t = to->first_tx_ring;

    for (r = from->first_rx_ring; r <= from->last_rx_ring && t <= to->last_tx_ring; r++) {
        move(NETMAP_RXRING(from->nifp, r), NETMAP_TXRING(to->nifp, t), from->mem == to->mem);
        t = t == to->last_tx_ring ? to->first_tx_ring : t + 1;
    }
}

static int frames_wait(struct nmport_d *port)
{
    uint32_t r = port->first_rx_ring;

    while (r <= port->last_rx_ring && nm_ring_empty(NETMAP_RXRING(port->nifp, r)))
        r++;
    return r <= port->last_rx_ring;
}

int main(int argc, char **argv)
{
    struct nmport_d *a, *b;
    struct pollfd fds[2];

    if (argc != 3) {
        fprintf(stderr, "usage: %s PORT PORT\n", argv[0]);
        return 2;
    }
    a = nmport_open(argv[1]);
    b = a != NULL ? nmport_open(argv[2]) : NULL;
    if (b == NULL)
        return 1;
    fprintf(stderr, "%s\n", a->mem == b->mem ? "exchanging buffers" : "copying");
    for (;;) {
        fds[0].fd = a->fd;
        fds[1].fd = b->fd;
        /* Where frames wait already, room on the other side is what is missing. */
        fds[0].events = (short)((frames_wait(a) ? 0 : POLLIN) | (frames_wait(b) ? POLLOUT : 0));
        fds[1].events = (short)((frames_wait(b) ? 0 : POLLIN) | (frames_wait(a) ? POLLOUT : 0));
        if (poll(fds, 2, -1) < 0 || ((fds[0].revents | fds[1].revents) & POLLERR))
            break;
        pass(a, b);
        pass(b, a);
    }
    fprintf(stderr, "a port has stopped\n");
    return 1;
}
