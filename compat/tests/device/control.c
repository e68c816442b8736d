/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Requests that bind nothing: what a port is, and what is on the switches. */
#include "bound.h"

static int fd;

static void port_info(void)
{
    struct nmreq_port_info_get info;

    memset(&info, 0, sizeof(info));
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "vale0:nobody", &info) == 0);
    CHECK(info.nr_tx_slots == 1024 && info.nr_rx_rings == 1 && info.nr_host_tx_rings == 0);
    CHECK(info.nr_mem_id > 1 && info.nr_memsize > 0);
    /* The port was there for the question only. */
    {
        struct nmreq_vale_list list;

        memset(&list, 0, sizeof(list));
        CHECK(request(fd, NETMAP_REQ_VALE_LIST, "vale0:nobody", &list) == ENOENT);
    }
    memset(&info, 0, sizeof(info));
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "", &info) == 0 && info.nr_mem_id == 1 &&
          info.nr_memsize > 0);
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "no-such-port", &info) == ENXIO);
    memset(&info, 0, sizeof(info));
    info.nr_mem_id = 60000;
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "vale0:nobody", &info) == EINVAL);
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "", &info) == EINVAL);
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "vale0:nobody", NULL) == EINVAL);
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "vale0:nobody", (void *)8) == EFAULT);
    memset(&info, 0, sizeof(info));
    CHECK(request(fd, NETMAP_REQ_PORT_INFO_GET, "some{pipe", &info) == 0 && info.nr_tx_rings == 1);
}

static void pools_info(void)
{
    struct nmreq_pools_info pools;
    struct bound a = bind_port("vale0:pools");
    uint64_t end;

    memset(&pools, 0, sizeof(pools));
    CHECK(request(fd, NETMAP_REQ_POOLS_INFO_GET, "vale0:pools", &pools) == 0);
    CHECK(pools.nr_mem_id == a.reg.nr_mem_id && pools.nr_memsize == a.reg.nr_memsize);
    CHECK(pools.nr_if_pool_offset == 0 && pools.nr_buf_pool_objsize == 2048);
    CHECK(pools.nr_ring_pool_objsize >= 256 + 16 * 1024);
    end = pools.nr_buf_pool_offset + (uint64_t)pools.nr_buf_pool_objtotal * pools.nr_buf_pool_objsize;
    CHECK(end <= pools.nr_memsize);
    CHECK((char *)NETMAP_BUF(tx(&a, 0), 7) ==
          (char *)a.mem + pools.nr_buf_pool_offset + 7 * (uint64_t)pools.nr_buf_pool_objsize);
    CHECK(request(fd, NETMAP_REQ_POOLS_INFO_GET, "", &pools) == ENXIO);
    unbind(&a);
    memset(&pools, 0, sizeof(pools));
    CHECK(request(fd, NETMAP_REQ_POOLS_INFO_GET, "vale0:pools", &pools) == 0 && pools.nr_memsize > 0);
}

static void header_length(void)
{
    struct nmreq_port_hdr hdr;
    struct bound a = bind_port("vale0:h");

    memset(&hdr, 0, sizeof(hdr));
    CHECK(request(fd, NETMAP_REQ_PORT_HDR_GET, "vale0:h", &hdr) == 0 && hdr.nr_hdr_len == 0);
    hdr.nr_hdr_len = 11;
    CHECK(request(fd, NETMAP_REQ_PORT_HDR_SET, "vale0:h", &hdr) == EINVAL);
    hdr.nr_hdr_len = 12;
    CHECK(request(fd, NETMAP_REQ_PORT_HDR_SET, "vale0:absent", &hdr) == ENXIO);
    CHECK(request(fd, NETMAP_REQ_PORT_HDR_GET, "vale0:absent", &hdr) == ENXIO);
    hdr.nr_hdr_len = 12;
    CHECK(request(fd, NETMAP_REQ_PORT_HDR_SET, "vale0:h", &hdr) == 0);
    hdr.nr_hdr_len = 0;
    CHECK(request(fd, NETMAP_REQ_PORT_HDR_GET, "vale0:h", &hdr) == 0 && hdr.nr_hdr_len == 12);
    /* A program that binds it now must declare support. */
    CHECK(bind_error("vale0:h", NR_REG_ALL_NIC, 0, 0) == EIO);
    CHECK(bind_error("vale0:h", NR_REG_ALL_NIC, 0, NR_ACCEPT_VNET_HDR) == 0);
    hdr.nr_hdr_len = 0;
    CHECK(request(fd, NETMAP_REQ_PORT_HDR_SET, "vale0:h", &hdr) == 0);
    unbind(&a);
}

static void persistent_ports(void)
{
    struct nmreq_vale_newif made;
    struct nmreq_vale_attach attach;
    struct nmreq_vale_detach detach;
    struct nmreq_vale_list list;
    struct nmreq_header hdr;
    struct bound a, b;

    memset(&made, 0, sizeof(made));
    made.nr_tx_slots = 256;
    CHECK(request(fd, NETMAP_REQ_VALE_NEWIF, "vale-x", &made) == EINVAL);
    CHECK(request(fd, NETMAP_REQ_VALE_NEWIF, "a-name-of-sixteen", &made) == EINVAL);
    CHECK(request(fd, NETMAP_REQ_VALE_NEWIF, "lo", &made) == EEXIST);
    CHECK(request(fd, NETMAP_REQ_VALE_NEWIF, "rrp0", &made) == 0);
    CHECK(made.nr_tx_slots == 256 && made.nr_rx_slots == 1024 && made.nr_tx_rings == 1 && made.nr_mem_id > 1);
    CHECK(request(fd, NETMAP_REQ_VALE_NEWIF, "rrp0", &made) == EEXIST);
    /* Bound by its name; on no switch, what it sends goes nowhere. */
    a = bind_port("rrp0");
    CHECK(a.reg.nr_mem_id == made.nr_mem_id && put(tx(&a, 0), 60, 1, 2, 0) && txsync(&a) == 0);
    memset(&attach, 0, sizeof(attach));
    attach.reg.nr_mode = NR_REG_ALL_NIC;
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale5:rrp0", &attach) == EBUSY);
    CHECK(request(fd, NETMAP_REQ_VALE_DELIF, "rrp0", NULL) == EBUSY);
    unbind(&a);
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "rrp0", &attach) == EINVAL);
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale5:absent", &attach) == EINVAL);
    attach.reg.nr_mode = NR_REG_ONE_NIC;
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale5:rrp0", &attach) == EINVAL);
    attach.reg.nr_mode = NR_REG_ALL_NIC;
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale5:rrp0", &attach) == 0 && attach.port_index == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale5:rrp0", &attach) == EBUSY);
    /* By either name, and persistent: the attachment outlives the program that made it. */
    a = bind_port("vale5:rrp0");
    b = bind_port("vale5:other");
    CHECK(tx(&a, 0)->num_slots == 256);
    CHECK(put(tx(&a, 0), 60, 1, 2, 0) && deliver(&a) == 0 && drain(&b, 0) == 1);
    unbind(&a);
    CHECK(put(tx(&b, 0), 60, 2, 1, 0) && deliver(&b) == 0);
    a = bind_port("rrp0");
    CHECK(drain(&a, 0) == 0 && put(tx(&b, 0), 60, 2, 1, 0) && deliver(&b) == 0 && drain(&a, 0) == 1);
    memset(&list, 0, sizeof(list));
    CHECK(request(fd, NETMAP_REQ_VALE_LIST, "vale5:rrp0", &list) == 0 && list.nr_port_idx == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_LIST, "vale5:absent", &list) == 0 && list.nr_port_idx == 255);
    CHECK(request(fd, NETMAP_REQ_VALE_LIST, "rrp0", &list) == EINVAL);
    /* One after the other. */
    {
        int found = 0;

        memset(&list, 0, sizeof(list));
        for (;;) {
            header_init(&hdr, NETMAP_REQ_VALE_LIST, "", &list);
            if (ioctl(fd, NIOCCTRL, &hdr) != 0) {
                CHECK(errno == ENOENT);
                break;
            }
            found += strcmp(hdr.nr_name, "vale5:rrp0") == 0 || strcmp(hdr.nr_name, "vale5:other") == 0;
            list.nr_port_idx++;
        }
        CHECK(found == 2);
    }
    memset(&detach, 0, sizeof(detach));
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, "vale5:absent", &detach) == ENXIO);
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, "rrp0", &detach) == EINVAL);
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, "vale5:other", &detach) == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_DELIF, "rrp0", NULL) == EBUSY);
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, "vale5:rrp0", &detach) == 0);
    CHECK(put(tx(&a, 0), 60, 1, 2, 0) && deliver(&a) == 0 && drain(&b, 0) == 0);
    unbind(&a);
    CHECK(request(fd, NETMAP_REQ_VALE_DELIF, "rrp0", NULL) == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_DELIF, "rrp0", NULL) == ENXIO);
    CHECK(request(fd, NETMAP_REQ_VALE_DELIF, "lo", NULL) == EINVAL);
    unbind(&b);
}

static void two_switches(void)
{
    struct nmreq_vale_newif made;
    struct nmreq_vale_attach attach;
    struct nmreq_vale_detach detach;
    struct bound a, b;

    memset(&made, 0, sizeof(made));
    NEED(request(fd, NETMAP_REQ_VALE_NEWIF, "rrp1", &made) == 0);
    memset(&attach, 0, sizeof(attach));
    attach.reg.nr_mode = NR_REG_ALL_NIC;
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale6:rrp1", &attach) == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale7:rrp1", &attach) == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, "vale4:rrp1", &attach) == EBUSY);
    CHECK(bind_error("rrp1", NR_REG_ALL_NIC, 0, 0) == EBUSY);
    a = bind_port("vale6:a");
    b = bind_port("vale7:b");
    CHECK(put(tx(&a, 0), 60, 1, 2, 0) && txsync(&a) == 0);
    CHECK(poll_one(&b, POLLIN, PATIENCE_MS) == POLLIN && drain(&b, 0) == 1);
    CHECK(put(tx(&b, 0), 3000, 2, 1, 0) && txsync(&b) == 0);
    CHECK(poll_one(&a, POLLIN, PATIENCE_MS) == POLLIN && take(rx(&a, 0), NULL, NULL) == 3000);
    memset(&detach, 0, sizeof(detach));
    /* The last is undone first. */
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, "vale6:rrp1", &detach) == EBUSY);
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, "vale7:rrp1", &detach) == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, "vale6:rrp1", &detach) == 0);
    CHECK(request(fd, NETMAP_REQ_VALE_DELIF, "rrp1", NULL) == 0);
    unbind(&a);
    unbind(&b);
}

static void polling(void)
{
    struct nmreq_vale_polling polling;
    struct bound a = bind_port("vale0:q");

    memset(&polling, 0, sizeof(polling));
    polling.nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU;
    polling.nr_num_polling_cpus = 1;
    CHECK(request(fd, NETMAP_REQ_VALE_POLLING_ENABLE, "vale0:absent", &polling) == ENXIO);
    CHECK(request(fd, NETMAP_REQ_VALE_POLLING_ENABLE, "vale0:q", &polling) == EOPNOTSUPP);
    CHECK(request(fd, NETMAP_REQ_VALE_POLLING_ENABLE, "q", &polling) == EINVAL);
    unbind(&a);
}

static void malformed(void)
{
    struct nmreq_port_info_get info;
    struct nmreq_header hdr;

    header_init(&hdr, NETMAP_REQ_PORT_INFO_GET, "vale0:x", &info);
    hdr.nr_version = 13;
    CHECK(ioctl(fd, NIOCCTRL, &hdr) == -1 && errno == EINVAL);
    hdr.nr_version = 16;
    CHECK(ioctl(fd, NIOCCTRL, &hdr) == -1 && errno == EINVAL);
    hdr.nr_version = 15;
    memset(&info, 0, sizeof(info));
    CHECK(ioctl(fd, NIOCCTRL, &hdr) == 0);
    hdr.nr_reserved = 1;
    CHECK(ioctl(fd, NIOCCTRL, &hdr) == -1 && errno == EINVAL);
    CHECK(request(fd, 77, "vale0:x", NULL) == EINVAL);
    CHECK(ioctl(fd, NIOCCTRL, NULL) == -1 && errno == EINVAL);
    CHECK(ioctl(fd, NIOCCTRL, (void *)8) == -1 && errno == EFAULT);
    CHECK(ioctl(fd, 0x1234, NULL) == -1 && errno == EOPNOTSUPP);
    CHECK(ioctl(fd, NIOCTXSYNC, NULL) == -1 && errno == ENXIO);
    CHECK(read(fd, &info, 1) == -1 && errno == EINVAL && write(fd, "", 1) == -1 && errno == EINVAL);
}

int main(void)
{
    fd = device();
    port_info();
    pools_info();
    header_length();
    persistent_ports();
    two_switches();
    polling();
    malformed();
    return CHECK_RESULT();
}
