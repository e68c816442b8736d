/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Ports of a switch: what is sent is on its way after the sync, and there when no slot is pending any more. */
#include "bound.h"

static void fresh_rings(void)
{
    struct bound a = bind_port("vale0:fresh");
    struct netmap_ring *t = tx(&a, 0), *r = rx(&a, 0);
    unsigned i;

    CHECK(a.reg.nr_tx_slots == 1024 && a.reg.nr_rx_slots == 1024);
    CHECK(a.reg.nr_tx_rings == 1 && a.reg.nr_rx_rings == 1);
    CHECK(a.reg.nr_host_tx_rings == 0 && a.reg.nr_host_rx_rings == 0);
    CHECK(a.reg.nr_mem_id > 1 && a.reg.nr_memsize > 0);
    CHECK(strcmp(a.nifp->ni_name, "vale0:fresh") == 0);
    CHECK(a.nifp->ni_tx_rings == 1 && a.nifp->ni_host_tx_rings == 1);
    CHECK(t->head == 0 && t->cur == 0 && t->tail == 1023 && t->num_slots == 1024);
    CHECK(r->head == 0 && r->cur == 0 && r->tail == 0 && r->nr_buf_size == 2048);
    for (i = 0; i < 1024; i++) {
        CHECK(t->slot[i].len == 2048 && t->slot[i].flags == 0 && t->slot[i].ptr == 0);
        CHECK(t->slot[i].buf_idx >= 2 && r->slot[i].buf_idx >= 2 && t->slot[i].buf_idx != r->slot[i].buf_idx);
    }
    /* Host rings were not selected. */
    CHECK(a.nifp->ring_ofs[1] == 0 && a.nifp->ring_ofs[3] == 0);
    CHECK((char *)NETMAP_BUF(t, 3) == (char *)t + t->buf_ofs + 3 * 2048);
    unbind(&a);
}

static void learns_and_floods(void)
{
    struct bound a = bind_port("vale0:a"), b = bind_port("vale0:b"), c = bind_port("vale0:c");
    int fill = 0;

    CHECK(put(tx(&a, 0), 60, 1, 2, 'x') && deliver(&a) == 0);
    CHECK(tx(&a, 0)->tail == 0);
    CHECK(rxsync(&b) == 0 && take(rx(&b, 0), &fill, NULL) == 60 && fill == 'x');
    CHECK(drain(&c, 0) == 1 && drain(&a, 0) == 0);
    CHECK(put(tx(&b, 0), 1514, 2, 1, 'y') && deliver(&b) == 0);
    CHECK(rxsync(&a) == 0 && take(rx(&a, 0), &fill, NULL) == 1514 && fill == 'y');
    CHECK(drain(&c, 0) == 0);
    CHECK(put(tx(&a, 0), 60, 1, -1, 'z') && deliver(&a) == 0);
    CHECK(drain(&b, 0) == 1 && drain(&c, 0) == 1);
    /* To itself, and too short for a header: dropped. */
    CHECK(put(tx(&a, 0), 60, 1, 1, 'z') && put(tx(&a, 0), 13, 1, 2, 'z') && deliver(&a) == 0);
    CHECK(drain(&a, 0) == 0 && drain(&b, 0) == 0 && drain(&c, 0) == 0);
    unbind(&a);
    unbind(&b);
    unbind(&c);
}

static void many_slots(void)
{
    struct bound a = bind_port("vale1:a"), b = bind_port("vale1:b");
    unsigned slots = 0;
    int fill = 0;

    CHECK(put(tx(&a, 0), 9000, 1, 2, 'm') && deliver(&a) == 0 && rxsync(&b) == 0);
    CHECK(rx(&b, 0)->slot[0].flags >> 8 == 5);
    CHECK(take(rx(&b, 0), &fill, &slots) == 9000 && slots == 5 && fill == 'm');
    CHECK(rxsync(&b) == 0);
    unbind(&a);
    unbind(&b);
}

static void full_receiver(void)
{
    struct bound a = bind_port("vale1:a"), b = bind_port("vale1:b");
    int i;

    /* More than fit: the sender is never held up, the receiver keeps what it had room for. */
    for (i = 0; i < 40; i++) {
        while (put(tx(&a, 0), 60, 1, 2, 0)) {
        }
        CHECK(txsync(&a) == 0);
        CHECK(poll_one(&a, POLLOUT, PATIENCE_MS) == POLLOUT);
    }
    CHECK(deliver(&a) == 0);
    CHECK(drain(&b, 0) == 1023);
    unbind(&a);
    unbind(&b);
}

/* A program may end right after its last sync: what it has sent arrives. */
static void closed_after_a_sync(void)
{
    struct bound a = bind_port("vale1:a"), b = bind_port("vale1:b");
    int sent = 0;

    while (put(tx(&a, 0), 60, 1, 2, 0)) {
        sent++;
    }
    CHECK(sent == 1023 && txsync(&a) == 0);
    unbind(&a);
    CHECK(drain(&b, 0) == sent);
    unbind(&b);
}

static void wrong_indexes(void)
{
    struct bound a = bind_port("vale1:a"), b = bind_port("vale1:b");
    struct netmap_ring *t = tx(&a, 0);
    uint32_t tail = t->tail;

    /* A tail that the program changed is corrected without an error. */
    t->tail = 5;
    CHECK(txsync(&a) == 0 && t->tail == tail);
    /* An index outside its window: no error from the ioctl, one from poll, and the ring continues when it is right again. */
    t->head = t->cur = 5000;
    CHECK(poll_one(&a, POLLOUT, 0) & POLLERR);
    CHECK(txsync(&a) == 0 && t->head == 0 && t->cur == 0);
    t->cur = 3;
    t->head = 5;
    CHECK(poll_one(&a, POLLOUT, 0) & POLLERR);
    t->head = t->cur = 0;
    CHECK(put(t, 60, 1, 2, 'k') && deliver(&a) == 0 && drain(&b, 0) == 1);
    /* Slots that name no buffer, or more than one holds, count as empty. */
    t->slot[t->head].buf_idx = 0xffffff;
    t->slot[t->head].len = 60;
    t->head = t->cur = nm_ring_next(t, t->head);
    t->slot[t->head].len = 3000;
    t->head = t->cur = nm_ring_next(t, t->head);
    CHECK(put(t, 60, 1, 2, 'k') && deliver(&a) == 0 && drain(&b, 0) == 1);
    unbind(&a);
    unbind(&b);
}

static void indirect(void)
{
    struct bound a = bind_port("vale1:a"), b = bind_port("vale1:b");
    struct netmap_ring *t = tx(&a, 0);
    uint8_t frame[200];
    int fill = 0;

    memset(frame, 'i', sizeof(frame));
    frame[6] = 2;
    frame[0] = 2;
    frame[5] = 9;
    t->slot[0].ptr = (uintptr_t)frame;
    t->slot[0].len = sizeof(frame);
    t->slot[0].flags = NS_INDIRECT;
    t->slot[1].ptr = 64;
    t->slot[1].len = 60;
    t->slot[1].flags = NS_INDIRECT;
    t->head = t->cur = 2;
    CHECK(deliver(&a) == 0 && rxsync(&b) == 0);
    CHECK(take(rx(&b, 0), &fill, NULL) == 200 && fill == 'i');
    CHECK(take(rx(&b, 0), NULL, NULL) == -1);
    unbind(&a);
    unbind(&b);
}

static void rings_by_index(void)
{
    struct nmreq_register wish;
    struct bound a, b;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_tx_rings = 3;
    wish.nr_rx_rings = 2;
    wish.nr_tx_slots = 64;
    wish.nr_rx_slots = 128;
    a = bind_as("vale2:a", wish, NULL);
    b = bind_as("vale2:b", wish, NULL);
    NEED(a.error == 0 && b.error == 0);
    CHECK(a.reg.nr_tx_rings == 3 && a.reg.nr_rx_rings == 2 && tx(&a, 2)->num_slots == 64);
    CHECK(rx(&a, 1)->num_slots == 128 && tx(&a, 2)->ringid == 2);
    CHECK(put(tx(&b, 0), 60, 2, 1, 0) && deliver(&b) == 0 && drain(&a, 0) == 1);
    CHECK(put(tx(&a, 1), 60, 1, 2, 0) && put(tx(&a, 2), 60, 1, 2, 0) && put(tx(&a, 2), 60, 1, 2, 0));
    CHECK(deliver(&a) == 0);
    CHECK(drain(&b, 1) == 1 && drain(&b, 0) == 2);
    unbind(&a);
    unbind(&b);
    /* Requests beyond the limits get the limits. */
    wish.nr_tx_rings = 100;
    wish.nr_rx_slots = 100000;
    a = bind_as("vale2:large", wish, NULL);
    CHECK(a.error == 0 && a.reg.nr_tx_rings == 16 && a.reg.nr_rx_slots == 4096);
    unbind(&a);
}

static void waits(void)
{
    struct bound a = bind_port("vale1:a"), b = bind_port("vale1:b");

    CHECK(poll_one(&b, POLLIN, 0) == 0 && poll_one(&b, POLLOUT, 0) == POLLOUT);
    if (fork() == 0) {
        usleep(20000);
        put(tx(&a, 0), 60, 1, 2, 0);
        _exit(txsync(&a) == 0 ? 0 : 1);
    }
    CHECK(poll_one(&b, POLLIN, PATIENCE_MS) == POLLIN);
    CHECK(!nm_ring_empty(rx(&b, 0)));
    unbind(&a);
    unbind(&b);
}

int main(void)
{
    fresh_rings();
    learns_and_floods();
    many_slots();
    full_receiver();
    closed_after_a_sync();
    wrong_indexes();
    indirect();
    rings_by_index();
    waits();
    return CHECK_RESULT();
}
