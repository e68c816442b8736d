/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Count what comes in: sink PORT. Ends with ^C and prints how much it was. */
#include <libnetmap.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

int main(int argc, char **argv)
{
    unsigned long long frames = 0, bytes = 0;
    struct sigaction action;
    struct nmport_d *port;
    struct pollfd poll_fd;

    if (argc != 2) {
        fprintf(stderr, "usage: %s PORT\n", argv[0]);
        return 2;
    }
    port = nmport_open(argv[1]); /* prints its own error */
    if (port == NULL)
        return 1;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal; /* without SA_RESTART: poll returns */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    poll_fd.fd = port->fd;
    poll_fd.events = POLLIN;
    while (!stop) {
        uint32_t r;

        /* Give back what was read, and sleep until there is more. */
        if (poll(&poll_fd, 1, -1) < 0 && errno != EINTR) {
            perror("poll");
            break;
        }
        if (poll_fd.revents & POLLERR) {
            fprintf(stderr, "%s: the port has stopped\n", argv[1]);
            break;
        }
        for (r = port->first_rx_ring; r <= port->last_rx_ring; r++) {
            struct netmap_ring *ring = NETMAP_RXRING(port->nifp, r);
            uint32_t i = ring->head;

            for (; i != ring->tail; i = nm_ring_next(ring, i)) {
                frames += !(ring->slot[i].flags & NS_MOREFRAG);
                bytes += ring->slot[i].len;
            }
            ring->head = ring->cur = i;
        }
    }
    nmport_close(port);
    printf("%llu frames, %llu bytes\n", frames, bytes);
    return stop ? 0 : 1;
}
