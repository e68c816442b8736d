/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An interface's host rings: `host_rings TAP`, a TAP that is not open. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/socket.h>

#include "bound.h"

static const char *name;

static struct bound with_host_rings(uint32_t mode, uint16_t ring, uint16_t tx_rings, uint16_t rx_rings)
{
    struct nmreq_register wish;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = mode;
    wish.nr_ringid = ring;
    wish.nr_host_tx_rings = tx_rings;
    wish.nr_host_rx_rings = rx_rings;
    return bind_as(name, wish, NULL);
}

static void counts(void)
{
    struct bound b = with_host_rings(NR_REG_ONE_SW, 1, 2, 2);
    uint32_t nic;

    NEED(b.error == 0);
    CHECK(b.reg.nr_host_tx_rings == 2 && b.reg.nr_host_rx_rings == 2);
    CHECK(b.nifp->ni_host_tx_rings == 2);
    nic = b.nifp->ni_tx_rings;
    CHECK(b.nifp->ring_ofs[0] == 0 && b.nifp->ring_ofs[nic] == 0 && b.nifp->ring_ofs[nic + 1] != 0);
    CHECK(NETMAP_TXRING(b.nifp, nic + 1)->ringid == nic + 1);
    unbind(&b);
    b = with_host_rings(NR_REG_SW, 0, 5, 4);
    NEED(b.error == 0);
    CHECK(b.reg.nr_host_tx_rings == 5 && b.reg.nr_host_rx_rings == 4);
    unbind(&b);
    /* They go back to one each with the last binding. */
    b = with_host_rings(NR_REG_SW, 0, 0, 0);
    CHECK(b.error == 0 && b.reg.nr_host_tx_rings == 1);
    unbind(&b);
    CHECK(bind_error(name, NR_REG_ONE_SW, 3, 0) == EINVAL);
}

static int packet_socket(void)
{
    struct sockaddr_ll address;
    int fd = socket(AF_PACKET, SOCK_RAW, htons(0x88b5));

    NEED(fd >= 0);
    memset(&address, 0, sizeof(address));
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(0x88b5);
    address.sll_ifindex = (int)if_nametoindex(name);
    NEED(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

/* Frames that the host sends come by the host rx ring; the host receives frames put into the host tx ring. */
static void traffic(void)
{
    struct bound b = with_host_rings(NR_REG_NIC_SW, 0, 1, 1);
    struct netmap_ring *up, *down;
    uint8_t frame[60];
    struct pollfd set;
    int raw = packet_socket(), got = 0, i;

    NEED(b.error == 0);
    up = NETMAP_TXRING(b.nifp, b.nifp->ni_tx_rings);
    down = NETMAP_RXRING(b.nifp, b.nifp->ni_rx_rings);
    memset(frame, 0xff, 12);
    frame[6] = 2;
    frame[12] = 0x88;
    frame[13] = 0xb5;
    memset(frame + 14, 'h', sizeof(frame) - 14);
    /* AF_PACKET bypasses the queueing discipline only on request: this passes it, as the host's own traffic does. */
    CHECK(send(raw, frame, sizeof(frame), 0) == sizeof(frame));
    while (!got && poll_one(&b, POLLIN, PATIENCE_MS) == POLLIN) {
        int fill = 0;

        while (take(down, &fill, NULL) >= 0) {
            got |= fill == 'h';
        }
        for (i = 0; i < (int)b.nifp->ni_rx_rings; i++) {
            while (take(rx(&b, (unsigned)i), NULL, NULL) >= 0) {
            }
        }
    }
    CHECK(got);
    memset(frame + 14, 'u', sizeof(frame) - 14);
    memcpy(NETMAP_BUF(up, up->slot[up->head].buf_idx), frame, sizeof(frame));
    up->slot[up->head].len = sizeof(frame);
    up->head = up->cur = nm_ring_next(up, up->head);
    CHECK(txsync(&b) == 0);
    set.fd = raw;
    set.events = POLLIN;
    got = 0;
    while (!got && poll(&set, 1, PATIENCE_MS) == 1) {
        uint8_t data[2048];
        ssize_t bytes = recv(raw, data, sizeof(data), 0);

        got = bytes == 60 && data[59] == 'u';
    }
    CHECK(got);
    close(raw);
    unbind(&b);
}

static void attached_with_host(void)
{
    struct nmreq_vale_attach attach;
    struct nmreq_vale_detach detach;
    char full[64];
    int fd = device();

    snprintf(full, sizeof(full), "vale8:%s", name);
    memset(&attach, 0, sizeof(attach));
    attach.reg.nr_mode = NR_REG_NIC_SW;
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, full, &attach) == 0);
    memset(&detach, 0, sizeof(detach));
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, full, &detach) == 0);
    close(fd);
}

int main(int argc, char **argv)
{
    NEED(argc == 2);
    name = argv[1];
    counts();
    traffic();
    attached_with_host();
    return CHECK_RESULT();
}
