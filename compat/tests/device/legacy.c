/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* struct nmreq, as programs before API 12 use it. */
#include "bound.h"

static struct nmreq wish(const char *name)
{
    struct nmreq req;

    memset(&req, 0, sizeof(req));
    req.nr_version = NETMAP_API;
    strncpy(req.nr_name, name, sizeof(req.nr_name) - 1);
    return req;
}

/* As QEMU's netmap ports do: they try a length, restore the former one, and then set it. */
static void set_headers(int fd)
{
    static const uint16_t lengths[] = {10, 0, 12, 0, 12, 0};
    size_t i;

    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct nmreq req = wish("vale0:l");

        req.nr_cmd = NETMAP_BDG_VNET_HDR;
        req.nr_arg1 = lengths[i];
        CHECK(ioctl(fd, NIOCREGIF, &req) == 0);
        req = wish("vale0:l");
        req.nr_cmd = NETMAP_VNET_HDR_GET;
        CHECK(ioctl(fd, NIOCREGIF, &req) == 0 && req.nr_arg1 == lengths[i]);
    }
}

int main(void)
{
    struct nmreq req = wish("vale0:l"), before;
    struct nmreq_header hdr;
    struct nmreq_port_hdr length;
    int fd = device(), peer = device();
    struct netmap_if *nifp;
    void *mem;

    CHECK(ioctl(fd, NIOCGINFO, &req) == 0 && req.nr_tx_slots == 1024 && req.nr_rx_rings == 1);
    req = wish("vale0:l");
    req.nr_arg3 = 10;
    CHECK(ioctl(fd, NIOCREGIF, &req) == 0);
    CHECK(req.nr_arg2 > 1 && req.nr_arg3 == 10 && req.nr_memsize > 0 && req.nr_flags == 0 &&
          req.nr_ringid == 0);
    mem = mmap(NULL, req.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(mem != MAP_FAILED);
    nifp = NETMAP_IF(mem, req.nr_offset);
    CHECK(nifp->ni_bufs_head >= 2 && NETMAP_TXRING(nifp, 0)->num_slots == 1024);
    before = req;
    CHECK(ioctl(fd, NIOCREGIF, &req) == -1 && errno == EBUSY && memcmp(&req, &before, sizeof(req)) == 0);
    /* Pipes by flags. */
    req = wish("vale0:l");
    req.nr_flags = NR_REG_PIPE_MASTER;
    req.nr_ringid = 3;
    CHECK(ioctl(peer, NIOCREGIF, &req) == 0 && req.nr_arg2 == before.nr_arg2);
    close(peer);
    peer = device();
    req = wish("vale0:l}3");
    CHECK(ioctl(peer, NIOCREGIF, &req) == 0);
    close(peer);
    peer = device();
    req = wish("vale0:l");
    req.nr_ringid = NETMAP_HW_RING | 9;
    CHECK(ioctl(peer, NIOCREGIF, &req) == -1 && errno == EINVAL);
    req = wish("vale0:l");
    req.nr_version = 11;
    CHECK(ioctl(peer, NIOCREGIF, &req) == -1 && errno == EINVAL);
    req = wish("vale0:l");
    req.nr_version = 99;
    req.nr_ringid = NETMAP_NO_TX_POLL;
    CHECK(ioctl(peer, NIOCREGIF, &req) == 0 && req.nr_ringid == NETMAP_NO_TX_POLL);
    /* Commands. */
    req = wish("vale0:l");
    req.nr_cmd = NETMAP_VNET_HDR_GET;
    req.nr_arg1 = 7;
    CHECK(ioctl(fd, NIOCREGIF, &req) == 0 && req.nr_arg1 == 0);
    set_headers(fd);
    req = wish("vale0:l");
    req.nr_cmd = NETMAP_BDG_LIST;
    CHECK(ioctl(fd, NIOCGINFO, &req) == 0 && req.nr_arg2 == 0);
    req = wish("rrlegacy0");
    req.nr_cmd = NETMAP_BDG_NEWIF;
    CHECK(ioctl(fd, NIOCREGIF, &req) == 0);
    req = wish("vale0:rrlegacy0");
    req.nr_cmd = NETMAP_BDG_ATTACH;
    CHECK(ioctl(fd, NIOCREGIF, &req) == 0);
    req = wish("vale0:rrlegacy0");
    req.nr_cmd = NETMAP_BDG_DETACH;
    CHECK(ioctl(fd, NIOCREGIF, &req) == 0);
    req = wish("rrlegacy0");
    req.nr_cmd = NETMAP_BDG_DELIF;
    CHECK(ioctl(fd, NIOCREGIF, &req) == 0);
    header_init(&hdr, NETMAP_REQ_PORT_HDR_GET, "vale0:l", &length);
    CHECK(ioctl(fd, NIOCCTRL, &hdr) == 0 && length.nr_hdr_len == 0);
    close(peer);
    close(fd);
    return CHECK_RESULT();
}
