/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Send each frame back to where it came from, the way libpcap programs are written: echo PORT. */
#define NETMAP_WITH_LIBS
#include <net/netmap_user.h>
#include <poll.h>
#include <string.h>

struct reply {
    struct nm_desc *port;
    unsigned long long no_room;
};

/* Swap the addresses and send. A frame over several slots is more than its first slot shows: it is left out. */
static void answer(unsigned char *argument, const struct nm_pkthdr *header, const unsigned char *bytes)
{
    struct reply *reply = (struct reply *)(void *)argument;
    unsigned char frame[2048];

    if (header->caplen < 14 || header->caplen > sizeof(frame) || header->caplen != header->len)
        return;
    memcpy(frame, bytes + 6, 6);
    memcpy(frame + 6, bytes, 6);
    memcpy(frame + 12, bytes + 12, header->caplen - 12);
    if (nm_inject(reply->port, frame, header->caplen) == 0)
        reply->no_room++;
}

int main(int argc, char **argv)
{
    struct pollfd poll_fd;
    struct reply reply;

    if (argc != 2) {
        fprintf(stderr, "usage: %s PORT\n", argv[0]);
        return 2;
    }
    reply.no_room = 0;
    reply.port = nm_open(argv[1], NULL, 0, NULL);
    if (reply.port == NULL) {
        fprintf(stderr, "cannot open %s: %s\n", argv[1],
                errno != 0 ? strerror(errno) : "not a name of netmap's");
        return 1;
    }
    poll_fd.fd = NETMAP_FD(reply.port);
    poll_fd.events = POLLIN;
    /* poll also pushes what answer put into the tx rings. */
    while (poll(&poll_fd, 1, -1) >= 0 && !(poll_fd.revents & POLLERR))
        nm_dispatch(reply.port, -1, answer, (unsigned char *)&reply);
    fprintf(stderr, "the port has stopped; no room for %llu answers\n", reply.no_room);
    nm_close(reply.port);
    return 1;
}
