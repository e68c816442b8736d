/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* CSB mode and the sync loop. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "bound.h"

static struct nm_csb_atok atok[2] __attribute__((aligned(64)));
static struct nm_csb_ktoa ktoa[2] __attribute__((aligned(64)));

static struct bound bind_csb(const char *name, uint64_t flags, void *to, void *from, uint32_t *status)
{
    struct nmreq_opt_csb opt;
    struct nmreq_register wish;
    struct bound b;

    memset(&opt, 0, sizeof(opt));
    opt.nro_opt.nro_reqtype = NETMAP_REQ_OPT_CSB;
    opt.csb_atok = (uintptr_t)to;
    opt.csb_ktoa = (uintptr_t)from;
    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_flags = flags;
    b = bind_as(name, wish, &opt);
    if (status != NULL) {
        *status = opt.nro_opt.nro_status;
    }
    return b;
}

static void refused(void)
{
    struct nmreq_sync_kloop_start start;
    struct bound b;

    b = bind_csb("vale0:c", 0, atok, ktoa, NULL);
    CHECK(b.error == EINVAL);
    close(b.fd);
    b = bind_csb("vale0:c", NR_EXCLUSIVE, (char *)atok + 8, ktoa, NULL);
    CHECK(b.error == EINVAL);
    close(b.fd);
    b = bind_csb("vale0:c", NR_EXCLUSIVE, (void *)4096, ktoa, NULL);
    CHECK(b.error == EFAULT);
    close(b.fd);
    memset(&start, 0, sizeof(start));
    b.fd = device();
    CHECK(request(b.fd, NETMAP_REQ_SYNC_KLOOP_START, "", &start) == ENXIO);
    CHECK(request(b.fd, NETMAP_REQ_CSB_ENABLE, "", NULL) == EINVAL);
    close(b.fd);
    b = bind_port("vale0:c");
    CHECK(request(b.fd, NETMAP_REQ_SYNC_KLOOP_START, "", &start) == EINVAL);
    unbind(&b);
    b = bind_csb("vale0:c", NR_EXCLUSIVE, atok, ktoa, NULL);
    NEED(b.error == 0);
    CHECK(ioctl(b.fd, NIOCTXSYNC, NULL) == -1 && errno == EBUSY);
    CHECK(poll_one(&b, POLLIN, 0) & POLLERR);
    start.sleep_us = 2000000;
    CHECK(request(b.fd, NETMAP_REQ_SYNC_KLOOP_START, "", &start) == EINVAL);
    /* A stop that comes first ends the next loop. */
    start.sleep_us = 10;
    CHECK(request(b.fd, NETMAP_REQ_SYNC_KLOOP_STOP, "", NULL) == 0);
    CHECK(request(b.fd, NETMAP_REQ_SYNC_KLOOP_START, "", &start) == 0);
    unbind(&b);
}

struct run {
    int fd;
    void *options;
    int error;
};

static void *loop(void *argument)
{
    struct run *run = argument;
    struct nmreq_sync_kloop_start start;

    memset(&start, 0, sizeof(start));
    start.sleep_us = 50;
    run->error = request_with(run->fd, NETMAP_REQ_SYNC_KLOOP_START, "", &start, run->options);
    return NULL;
}

static void fill(struct netmap_ring *ring, uint32_t slot)
{
    uint8_t *data = (uint8_t *)NETMAP_BUF(ring, ring->slot[slot].buf_idx);

    memset(data, 0xff, 60);
    data[6] = 2;
    ring->slot[slot].len = 60;
    ring->slot[slot].flags = 0;
}

static void runs(int with_events)
{
    struct {
        struct nmreq_opt_sync_kloop_eventfds opt;
        struct {
            int32_t ioeventfd;
            int32_t irqfd;
        } fds[2];
    } events;
    struct bound b = bind_csb("vale0:c", NR_EXCLUSIVE, atok, ktoa, NULL), peer = bind_port("vale0:d");
    struct run run = {.fd = b.fd, .options = NULL, .error = -1};
    pthread_t thread;
    uint64_t one = 1, got;
    int kick = eventfd(0, 0), irq = eventfd(0, 0), rx_kick = eventfd(0, 0), i;

    NEED(b.error == 0);
    CHECK(atok[0].head == 0 && atok[0].appl_need_kick == 1 && atok[0].sync_flags == 1);
    CHECK(ktoa[0].hwcur == 0 && ktoa[0].hwtail == 1023 && ktoa[0].kern_need_kick == 1);
    if (with_events) {
        memset(&events, 0, sizeof(events));
        events.opt.nro_opt.nro_reqtype = NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS;
        events.opt.nro_opt.nro_size = 8;
        run.options = &events;
        CHECK((loop(&run), run.error) == EINVAL && events.opt.nro_opt.nro_status == EINVAL);
        events.opt.nro_opt.nro_size = sizeof(events);
        events.fds[0].ioeventfd = kick;
        events.fds[0].irqfd = -1;
        events.fds[1].ioeventfd = rx_kick;
        events.fds[1].irqfd = irq;
    }
    NEED(pthread_create(&thread, NULL, loop, &run) == 0);
    for (i = 0; i < 300; i++) {
        fill(tx(&b, 0), (uint32_t)i);
        __atomic_store_n(&atok[0].cur, i + 1, __ATOMIC_RELEASE);
        __atomic_store_n(&atok[0].head, i + 1, __ATOMIC_RELEASE);
    }
    if (with_events) {
        CHECK(write(kick, &one, sizeof(one)) == sizeof(one));
    }
    for (i = 0; i < 300;) {
        CHECK(poll_one(&peer, POLLIN, PATIENCE_MS) == POLLIN);
        i += drain(&peer, 0);
    }
    CHECK(i == 300);
    while (__atomic_load_n(&ktoa[0].hwcur, __ATOMIC_ACQUIRE) != 300) {
        usleep(100);
    }
    CHECK(put(tx(&peer, 0), 60, 2, -1, 'r') && txsync(&peer) == 0);
    if (with_events) {
        CHECK(read(irq, &got, sizeof(got)) == sizeof(got));
    }
    while (__atomic_load_n(&ktoa[1].hwtail, __ATOMIC_ACQUIRE) != 1) {
        usleep(100);
    }
    CHECK(((uint8_t *)NETMAP_BUF(rx(&b, 0), rx(&b, 0)->slot[0].buf_idx))[59] == 'r');
    {
        struct run second = {.fd = b.fd, .options = NULL, .error = -1};

        loop(&second);
        CHECK(second.error == EBUSY);
    }
    CHECK(request(b.fd, NETMAP_REQ_SYNC_KLOOP_STOP, "", NULL) == 0);
    pthread_join(thread, NULL);
    CHECK(run.error == 0);
    unbind(&b);
    unbind(&peer);
    close(kick);
    close(irq);
    close(rx_kick);
}

int main(void)
{
    refused();
    runs(0);
    runs(1);
    return CHECK_RESULT();
}
