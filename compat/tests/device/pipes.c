/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Pipes: whole slots pass, nothing is dropped, buffers come back as the receiver left them. */
#include "bound.h"

static void whole_slots(void)
{
    struct bound m = bind_port("vale0:p{1"), s = bind_port("vale0:p}1");
    struct netmap_ring *t = tx(&m, 0), *r = rx(&s, 0);
    uint32_t index = t->slot[0].buf_idx;

    CHECK(m.reg.nr_mem_id == s.reg.nr_mem_id && t->num_slots == 1024);
    put(t, 60, 1, 2, 'p');
    t->slot[0].flags = NS_REPORT;
    t->slot[0].ptr = 0x1234;
    CHECK(txsync(&m) == 0 && rxsync(&s) == 0);
    CHECK(r->tail == 1 && r->slot[0].buf_idx == index && r->slot[0].len == 60);
    CHECK((r->slot[0].flags & NS_REPORT) && r->slot[0].ptr == 0x1234);
    /* Not released yet: pending. */
    CHECK(t->tail == 1023 && nm_tx_pending(t));
    CHECK(take(r, NULL, NULL) == 60 && rxsync(&s) == 0);
    CHECK(nm_tx_pending(t) && txsync(&m) == 0 && t->tail == 0 && !nm_tx_pending(t));
    unbind(&m);
    unbind(&s);
}

static void back_pressure(void)
{
    struct bound m = bind_port("vale0:p{2"), s = bind_port("vale0:p}2");
    int sent = 0, got;

    while (put(tx(&m, 0), 60, 1, 2, 0)) {
        sent++;
    }
    CHECK(sent == 1023 && txsync(&m) == 0 && nm_ring_empty(tx(&m, 0)));
    CHECK(poll_one(&m, POLLOUT, 0) == 0);
    got = drain(&s, 0);
    CHECK(got == 1023 && poll_one(&m, POLLOUT, PATIENCE_MS) == POLLOUT && nm_ring_space(tx(&m, 0)) == 1023);
    /* An unfinished frame stays until it is whole. */
    put(tx(&m, 0), 60, 1, 2, 0);
    tx(&m, 0)->slot[1023].flags = NS_MOREFRAG;
    CHECK(txsync(&m) == 0 && drain(&s, 0) == 0);
    put(tx(&m, 0), 60, 1, 2, 0);
    CHECK(txsync(&m) == 0 && drain(&s, 0) == 1);
    unbind(&m);
    unbind(&s);
}

static void buffers_come_back(void)
{
    struct nmreq_register wish;
    struct bound m = bind_port("vale0:p{3"), s;
    struct netmap_ring *t = tx(&m, 0), *r;
    uint32_t extra, first = t->slot[0].buf_idx;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_extra_bufs = 3;
    s = bind_as("vale0:p}3", wish, NULL);
    NEED(s.error == 0 && s.reg.nr_extra_bufs == 3);
    r = rx(&s, 0);
    extra = s.nifp->ni_bufs_head;
    CHECK(extra >= 2);
    CHECK(put(t, 60, 1, 2, 'e') && txsync(&m) == 0 && rxsync(&s) == 0);
    s.nifp->ni_bufs_head = *(uint32_t *)NETMAP_BUF(r, extra);
    r->slot[0].buf_idx = extra;
    r->slot[0].flags |= NS_BUF_CHANGED;
    r->head = r->cur = 1;
    CHECK(rxsync(&s) == 0 && txsync(&m) == 0);
    CHECK(t->slot[0].buf_idx == extra && (t->slot[0].flags & NS_BUF_CHANGED));
    /* The frame that was taken out still lies in its buffer. */
    CHECK(((uint8_t *)NETMAP_BUF(r, first))[59] == 'e');
    *(uint32_t *)NETMAP_BUF(r, first) = s.nifp->ni_bufs_head;
    s.nifp->ni_bufs_head = first;
    unbind(&s);
    unbind(&m);
}

static void survives_reopening(void)
{
    struct bound m = bind_port("vale0:p{4"), s = bind_port("vale0:p}4");

    put(tx(&m, 0), 60, 1, 2, 'a');
    put(tx(&m, 0), 61, 1, 2, 'b');
    CHECK(txsync(&m) == 0);
    unbind(&m);
    m = bind_port("vale0:p{4");
    CHECK(tx(&m, 0)->head == 2 && nm_tx_pending(tx(&m, 0)));
    CHECK(drain(&s, 0) == 2);
    CHECK(txsync(&m) == 0 && !nm_tx_pending(tx(&m, 0)));
    /* Data queues before the other end is there. */
    unbind(&s);
    put(tx(&m, 0), 62, 1, 2, 'c');
    CHECK(txsync(&m) == 0);
    s = bind_port("vale0:p}4");
    CHECK(rxsync(&s) == 0 && take(rx(&s, 0), NULL, NULL) == 62);
    unbind(&m);
    unbind(&s);
    /* Both ends closed: all is gone. */
    s = bind_port("vale0:p}4");
    CHECK(drain(&s, 0) == 0);
    unbind(&s);
}

static void names(void)
{
    struct bound a = bind_port("anything{x1"), b = bind_port("anything}x1"), c;
    struct nmreq_register wish;

    CHECK(put(tx(&b, 0), 60, 1, 2, 0) && txsync(&b) == 0 && drain(&a, 0) == 1);
    /* The parent came into being with its first pipe, and can be bound. */
    c = bind_port("anything");
    CHECK(c.reg.nr_mem_id == a.reg.nr_mem_id);
    CHECK(request(c.fd, NETMAP_REQ_VALE_DELIF, "anything", NULL) == EINVAL);
    unbind(&c);
    unbind(&a);
    unbind(&b);
    CHECK(bind_error("anything", NR_REG_ALL_NIC, 0, 0) == ENXIO);
    CHECK(bind_error("{1", NR_REG_ALL_NIC, 0, 0) == EINVAL);
    CHECK(bind_error("x{", NR_REG_ALL_NIC, 0, 0) == EINVAL);
    CHECK(bind_error("x{1", NR_REG_SW, 0, 0) == EINVAL);
    CHECK(bind_error("x{1", NR_REG_PIPE_MASTER, 1, 0) == EINVAL);
    /* Master's tx is slave's rx. */
    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_tx_rings = 2;
    wish.nr_tx_slots = 32;
    wish.nr_rx_slots = 64;
    a = bind_as("vale0:p{5", wish, NULL);
    b = bind_port("vale0:p}5");
    CHECK(a.error == 0 && a.reg.nr_tx_rings == 2 && a.reg.nr_tx_slots == 32);
    CHECK(b.reg.nr_rx_rings == 2 && b.reg.nr_rx_slots == 32 && b.reg.nr_tx_slots == 64);
    CHECK(put(tx(&a, 1), 60, 1, 2, 0) && txsync(&a) == 0 && drain(&b, 1) == 1);
    unbind(&a);
    unbind(&b);
}

static void sleepers(void)
{
    struct bound m = bind_port("vale0:p{6"), s = bind_port("vale0:p}6");

    if (fork() == 0) {
        /* Fills the pipe, waits for room, and sends one more. */
        while (put(tx(&m, 0), 60, 1, 2, 0)) {
        }
        txsync(&m);
        if (poll_one(&m, POLLOUT, PATIENCE_MS) != POLLOUT) {
            _exit(1);
        }
        _exit(put(tx(&m, 0), 99, 1, 2, 0) && txsync(&m) == 0 ? 0 : 1);
    }
    int frames = 0, last = 0;
    while (frames < 1024 && poll_one(&s, POLLIN, PATIENCE_MS) == POLLIN) {
        while ((last = take(rx(&s, 0), NULL, NULL)) == 60) {
            frames++;
        }
        if (last == 99) {
            break;
        }
        CHECK(rxsync(&s) == 0);
    }
    CHECK(frames == 1023 && last == 99);
    unbind(&m);
    unbind(&s);
}

int main(void)
{
    whole_slots();
    back_pressure();
    buffers_come_back();
    survives_reopening();
    names();
    sleepers();
    return CHECK_RESULT();
}
