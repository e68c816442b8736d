/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Network interfaces: `interface HERE THERE` with two that are joined (a veth pair). */
#include <net/if.h>

#include "bound.h"

static const char *here, *there;

/* Sends until it arrives: an interface is not a switch, frames take time. */
static int arrives(const struct bound *from, unsigned tx_ring, const struct bound *to, int *fill)
{
    if (!put(tx(from, tx_ring), 60, 1, -1, *fill)) {
        return 0;
    }
    if (txsync(from) != 0) {
        return 0;
    }
    while (poll_one(to, POLLIN, PATIENCE_MS) == POLLIN) {
        unsigned i;

        for (i = 0; i < to->nifp->ni_rx_rings; i++) {
            int got = 0;

            if (to->nifp->ring_ofs[to->nifp->ni_tx_rings + to->nifp->ni_host_tx_rings + i] == 0) {
                continue;
            }
            while (take(rx(to, i), &got, NULL) >= 0) {
                if (got == *fill) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

static void rings(void)
{
    struct bound a = bind_port(here), b = bind_port(there);
    int fill = 'n';

    CHECK(a.reg.nr_mem_id == 1 && b.reg.nr_mem_id == 1);
    CHECK(a.reg.nr_host_tx_rings == 1 && a.reg.nr_host_rx_rings == 1 && a.reg.nr_tx_rings >= 1);
    CHECK(arrives(&a, 0, &b, &fill));
    fill = 'm';
    CHECK(arrives(&b, 0, &a, &fill));
    CHECK(poll_one(&a, POLLOUT, PATIENCE_MS) == POLLOUT);
    /* Another binding of the same rings. */
    {
        struct bound again = bind_port(here);

        CHECK(tx(&again, 0)->head == tx(&a, 0)->head);
        unbind(&again);
    }
    unbind(&a);
    unbind(&b);
}

static void single_ring(void)
{
    struct bound a = bind_mode(here, NR_REG_ONE_NIC, 0, 0), b = bind_mode(there, NR_REG_NIC_SW, 0, 0);
    int fill = 'o';

    NEED(a.error == 0 && b.error == 0);
    CHECK(arrives(&a, 0, &b, &fill));
    unbind(&a);
    CHECK(bind_error(here, NR_REG_ONE_NIC, 200, 0) == EINVAL);
    unbind(&b);
}

static void with_pipe(void)
{
    char name[64];
    struct bound m, s;

    snprintf(name, sizeof(name), "%s{9", here);
    m = bind_port(name);
    snprintf(name, sizeof(name), "%s}9", here);
    s = bind_port(name);
    CHECK(m.reg.nr_mem_id == 1 && put(tx(&m, 0), 60, 1, 2, 0) && txsync(&m) == 0 && drain(&s, 0) == 1);
    unbind(&m);
    unbind(&s);
}

static void attached(void)
{
    struct nmreq_vale_attach attach;
    struct nmreq_vale_detach detach;
    char name[64];
    struct bound a, b = bind_port(there);
    int fd = device(), fill = 'q';

    snprintf(name, sizeof(name), "vale9:%s", here);
    memset(&attach, 0, sizeof(attach));
    attach.reg.nr_mode = NR_REG_ALL_NIC;
    CHECK(request(fd, NETMAP_REQ_VALE_ATTACH, name, &attach) == 0);
    CHECK(bind_error(here, NR_REG_ALL_NIC, 0, 0) == EBUSY);
    CHECK(bind_error(name, NR_REG_ALL_NIC, 0, 0) == EBUSY);
    a = bind_port("vale9:program");
    CHECK(arrives(&a, 0, &b, &fill));
    fill = 'r';
    CHECK(arrives(&b, 0, &a, &fill));
    {
        struct nmreq_vale_polling polling;

        memset(&polling, 0, sizeof(polling));
        polling.nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU;
        polling.nr_num_polling_cpus = 1;
        CHECK(request(fd, NETMAP_REQ_VALE_POLLING_DISABLE, name, &polling) == EFAULT);
        if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
            CHECK(request(fd, NETMAP_REQ_VALE_POLLING_ENABLE, name, &polling) == 0);
            CHECK(request(fd, NETMAP_REQ_VALE_POLLING_ENABLE, name, &polling) == EFAULT);
            memset(&detach, 0, sizeof(detach));
            CHECK(request(fd, NETMAP_REQ_VALE_DETACH, name, &detach) == EBUSY);
            CHECK(request(fd, NETMAP_REQ_VALE_POLLING_DISABLE, name, &polling) == 0);
        }
        polling.nr_num_polling_cpus = 5000;
        CHECK(request(fd, NETMAP_REQ_VALE_POLLING_ENABLE, name, &polling) == EINVAL);
    }
    memset(&detach, 0, sizeof(detach));
    CHECK(request(fd, NETMAP_REQ_VALE_DETACH, name, &detach) == 0);
    CHECK(bind_error(here, NR_REG_ALL_NIC, 0, 0) == 0);
    unbind(&a);
    unbind(&b);
    close(fd);
}

static void monitored(void)
{
    struct bound a = bind_port(here), b = bind_port(there),
                 m = bind_mode(there, NR_REG_ALL_NIC, 0, NR_MONITOR_RX);
    int fill = 's';

    NEED(m.error == 0);
    CHECK(arrives(&a, 0, &b, &fill));
    CHECK(poll_one(&m, POLLIN, PATIENCE_MS) == POLLIN);
    unbind(&m);
    unbind(&a);
    unbind(&b);
}

int main(int argc, char **argv)
{
    NEED(argc == 3);
    here = argv[1];
    there = argv[2];
    CHECK(bind_error("no-such-if0", NR_REG_ALL_NIC, 0, 0) == ENXIO);
    rings();
    single_ring();
    with_pipe();
    attached();
    monitored();
    return CHECK_RESULT();
}
