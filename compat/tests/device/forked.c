/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A port of libnetmap.h after fork(2): parent and child share it, and it lasts as long as one of them has it. */
#include <libnetmap.h>
#include <sys/wait.h>

#include "bound.h"

static struct nmport_d *open_port(const char *name)
{
    struct nmport_d *port = nmport_open(name);

    NEED(port != NULL);
    return port;
}

static void send_frame(struct nmport_d *port, unsigned char number)
{
    unsigned char frame[60];

    memset(frame, number, sizeof(frame));
    memset(frame, 0xFF, 6);
    frame[6] = 2;
    NEED(nmport_inject(port, frame, sizeof(frame)) == sizeof(frame));
    do {
        NEED(ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
    } while (nm_tx_pending(NETMAP_TXRING(port->nifp, port->first_tx_ring)));
}

/* Waits for the next frame; returns its number. */
static int await_frame(struct nmport_d *port)
{
    struct netmap_ring *ring = NETMAP_RXRING(port->nifp, port->first_rx_ring);
    struct pollfd one = {.fd = port->fd, .events = POLLIN};
    int number;

    NEED(poll(&one, 1, -1) == 1 && !nm_ring_empty(ring));
    number = (unsigned char)NETMAP_BUF(ring, ring->slot[ring->head].buf_idx)[59];
    ring->head = ring->cur = nm_ring_next(ring, ring->head);
    return number;
}

static void await_success(pid_t child)
{
    int status;

    NEED(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Only a failure waits so long. */
static pid_t forked(void)
{
    pid_t child = fork();

    NEED(child >= 0);
    alarm(60);
    return child;
}

int main(void)
{
    struct nmport_d *a = open_port("vale0:a"), *b = open_port("vale0:b");
    int ends[2];
    pid_t child = forked();

    /* A child uses the port, and closes its copy. */
    if (child == 0) {
        send_frame(a, 1);
        nmport_close(a);
        nmport_close(b);
        exit(0);
    }
    NEED(await_frame(b) == 1);
    await_success(child);
    send_frame(a, 2);
    NEED(await_frame(b) == 2);

    /* The parent closes the port, and the child goes on. */
    NEED(pipe(ends) == 0);
    child = forked();
    if (child == 0) {
        close(ends[1]);
        NEED(read(ends[0], ends, 1) == 0);
        send_frame(a, 3);
        exit(0);
    }
    nmport_close(a);
    close(ends[0]);
    close(ends[1]);
    NEED(await_frame(b) == 3);
    await_success(child);

    /* Another program. */
    child = forked();
    if (child == 0)
        execlp("true", "true", (char *)NULL);
    await_success(child);
    a = open_port("vale0:c");
    send_frame(a, 4);
    NEED(await_frame(b) == 4);
    nmport_close(a);
    nmport_close(b);
    return CHECK_RESULT();
}
