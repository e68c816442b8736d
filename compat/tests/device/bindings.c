/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Who may bind what, several at once, memory ids, extra buffers, null ports, offsets. */
#include "bound.h"

static void shared_rings(void)
{
    struct bound one = bind_port("vale0:s"), two = bind_port("vale0:s"), peer = bind_port("vale0:t");

    CHECK(one.reg.nr_mem_id == two.reg.nr_mem_id && one.reg.nr_offset != two.reg.nr_offset);
    CHECK(put(tx(&one, 0), 60, 1, 2, 0) && deliver(&one) == 0);
    CHECK(tx(&two, 0)->head == 1 && tx(&two, 0)->tail == 0);
    CHECK(drain(&peer, 0) == 1);
    CHECK(put(tx(&two, 0), 60, 1, 2, 0) && deliver(&two) == 0 && drain(&peer, 0) == 1);
    CHECK(tx(&one, 0)->head == 2);
    unbind(&one);
    CHECK(put(tx(&two, 0), 60, 1, 2, 0) && deliver(&two) == 0 && drain(&peer, 0) == 1);
    /* While one is left the rings stay as they are. */
    one = bind_port("vale0:s");
    CHECK(tx(&one, 0)->head == 3);
    unbind(&one);
    unbind(&two);
    one = bind_port("vale0:s");
    CHECK(tx(&one, 0)->head == 0);
    unbind(&one);
    unbind(&peer);
}

static void exclusive_use(void)
{
    struct bound a = bind_mode("vale0:x", NR_REG_ALL_NIC, 0, NR_EXCLUSIVE);

    NEED(a.error == 0);
    CHECK(bind_error("vale0:x", NR_REG_ALL_NIC, 0, 0) == EBUSY);
    CHECK(bind_error("vale0:x", NR_REG_ONE_NIC, 0, 0) == EBUSY);
    CHECK(request(a.fd, NETMAP_REQ_REGISTER, "vale0:y", &a.reg) == EBUSY);
    unbind(&a);
    a = bind_port("vale0:x");
    CHECK(bind_error("vale0:x", NR_REG_ALL_NIC, 0, NR_EXCLUSIVE) == EBUSY);
    CHECK(bind_error("vale0:x", NR_REG_ALL_NIC, 0, 0) == 0);
    unbind(&a);
    CHECK(bind_error("vale0:x", NR_REG_ALL_NIC, 0, NR_EXCLUSIVE) == 0);
}

static void single_rings(void)
{
    struct nmreq_register wish;
    struct bound all, one, peer = bind_port("vale1:peer");

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_tx_rings = 2;
    wish.nr_rx_rings = 4;
    all = bind_as("vale1:r", wish, NULL);
    NEED(all.error == 0);
    one = bind_mode("vale1:r", NR_REG_ONE_NIC, 1, 0);
    NEED(one.error == 0);
    CHECK(one.nifp->ring_ofs[0] == 0 && one.nifp->ring_ofs[1] != 0 && one.nifp->ring_ofs[2] == 0);
    CHECK(one.nifp->ring_ofs[3] == 0 && one.nifp->ring_ofs[4] != 0);
    CHECK(put(tx(&one, 1), 60, 1, 2, 0) && deliver(&one) == 0 && drain(&peer, 0) == 1);
    unbind(&one);
    /* A number that fits one direction stands for ring 0 of the other. */
    one = bind_mode("vale1:r", NR_REG_ONE_NIC, 3, 0);
    NEED(one.error == 0);
    CHECK(one.nifp->ring_ofs[0] != 0 && one.nifp->ring_ofs[3 + 3] != 0 && one.nifp->ring_ofs[3] == 0);
    unbind(&one);
    CHECK(bind_error("vale1:r", NR_REG_ONE_NIC, 4, 0) == EINVAL);
    CHECK(bind_error("vale1:r", NR_REG_SW, 0, 0) == EINVAL);
    CHECK(bind_error("vale1:r", NR_REG_NIC_SW, 0, 0) == EINVAL);
    CHECK(bind_error("vale1:r", NR_REG_ONE_SW, 0, 0) == EINVAL);
    CHECK(bind_error("vale1:r", NR_REG_DEFAULT, 0, 0) == EINVAL);
    CHECK(bind_error("vale1:r", 99, 0, 0) == EINVAL);
    one = bind_mode("vale1:r", NR_REG_ALL_NIC, 0, NR_TX_RINGS_ONLY);
    NEED(one.error == 0);
    CHECK(one.nifp->ring_ofs[0] != 0 && one.nifp->ring_ofs[3] == 0);
    CHECK(poll_one(&one, POLLIN | POLLOUT, 0) == POLLOUT);
    unbind(&one);
    one = bind_mode("vale1:r", NR_REG_ALL_NIC, 0, NR_RX_RINGS_ONLY);
    NEED(one.error == 0);
    CHECK(poll_one(&one, POLLOUT, 50) == 0);
    unbind(&one);
    unbind(&all);
    /* No program has the rx rings: nothing is received. */
    one = bind_mode("vale1:r", NR_REG_ALL_NIC, 0, NR_TX_RINGS_ONLY);
    CHECK(put(tx(&peer, 0), 60, 2, -1, 0) && deliver(&peer) == 0);
    all = bind_port("vale1:r");
    CHECK(drain(&all, 0) == 0);
    CHECK(put(tx(&peer, 0), 60, 2, -1, 0) && deliver(&peer) == 0 && drain(&all, 0) == 1);
    unbind(&all);
    unbind(&one);
    unbind(&peer);
}

static void memory_ids(void)
{
    struct nmreq_register wish;
    struct bound a = bind_port("vale0:m1"), b;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_mem_id = a.reg.nr_mem_id;
    b = bind_as("vale0:m2", wish, NULL);
    NEED(b.error == 0);
    CHECK(b.reg.nr_mem_id == a.reg.nr_mem_id && b.reg.nr_memsize == a.reg.nr_memsize);
    /* One region: a buffer can change its ring. */
    CHECK(put(tx(&a, 0), 60, 1, 9, 'w'));
    {
        struct netmap_slot *from = &tx(&a, 0)->slot[0], *to = &tx(&b, 0)->slot[0];
        uint32_t index = to->buf_idx;

        to->buf_idx = from->buf_idx;
        to->len = 60;
        to->flags = NS_BUF_CHANGED;
        from->buf_idx = index;
        from->flags = NS_BUF_CHANGED;
        tx(&a, 0)->head = tx(&a, 0)->cur = 0;
        tx(&b, 0)->head = tx(&b, 0)->cur = 1;
    }
    {
        int fill = 0;

        CHECK(deliver(&b) == 0 && rxsync(&a) == 0 && take(rx(&a, 0), &fill, NULL) == 60 && fill == 'w');
    }
    unbind(&b);
    wish.nr_mem_id = 60000;
    b = bind_as("vale0:m3", wish, NULL);
    CHECK(b.error == EINVAL);
    close(b.fd);
    wish.nr_mem_id = a.reg.nr_mem_id;
    unbind(&a);
    b = bind_as("vale0:m3", wish, NULL);
    CHECK(b.error == EINVAL);
    /* A failed bind leaves the descriptor as it was. */
    CHECK(ioctl(b.fd, NIOCTXSYNC, NULL) == -1 && errno == ENXIO);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, b.fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(poll_one(&b, POLLIN, 0) & POLLERR);
    wish.nr_mem_id = 0;
    CHECK(request(b.fd, NETMAP_REQ_REGISTER, "vale0:m3", &wish) == 0);
    CHECK(mmap(NULL, wish.nr_memsize + 4096, PROT_READ, MAP_SHARED, b.fd, 0) == MAP_FAILED &&
          errno == EINVAL);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, b.fd, (off_t)wish.nr_memsize) == MAP_FAILED &&
          errno == EINVAL);
    close(b.fd);
}

static void extra_buffers(void)
{
    struct nmreq_register wish;
    struct bound a, b;
    uint32_t next, count = 0;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_extra_bufs = 1000;
    a = bind_as("vale0:e", wish, NULL);
    NEED(a.error == 0);
    CHECK(a.reg.nr_extra_bufs == 1000);
    for (next = a.nifp->ni_bufs_head; next != 0; next = *(uint32_t *)NETMAP_BUF(tx(&a, 0), next)) {
        count++;
    }
    CHECK(count == 1000);
    /* Of a region that exists, as many as are free. */
    wish.nr_extra_bufs = 10000000;
    b = bind_as("vale0:e", wish, NULL);
    CHECK(b.error == 0 && b.reg.nr_extra_bufs > 0 && b.reg.nr_extra_bufs < 10000000);
    unbind(&b);
    b = bind_as("vale0:e", wish, NULL);
    count = b.reg.nr_extra_bufs;
    unbind(&b);
    b = bind_as("vale0:e", wish, NULL);
    CHECK(b.reg.nr_extra_bufs == count);
    unbind(&b);
    unbind(&a);
}

static void null_ports(void)
{
    struct nmreq_register wish;
    struct bound a = bind_port("vale0:n"), b;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_NULL;
    b = bind_as("anything", wish, NULL);
    CHECK(b.error == EINVAL);
    close(b.fd);
    wish.nr_mem_id = a.reg.nr_mem_id;
    wish.nr_extra_bufs = 5;
    b = bind_as("anything", wish, NULL);
    NEED(b.error == 0);
    CHECK(b.reg.nr_tx_rings == 0 && b.reg.nr_rx_rings == 0 && b.reg.nr_extra_bufs == 5);
    CHECK(txsync(&b) == 0 && rxsync(&b) == 0);
    unbind(&b);
    wish.nr_tx_rings = 2;
    wish.nr_tx_slots = 16;
    b = bind_as("anything", wish, NULL);
    NEED(b.error == 0);
    CHECK(b.reg.nr_tx_rings == 2 && tx(&b, 1)->slot[3].buf_idx == 0 && txsync(&b) == 0);
    unbind(&b);
    unbind(&a);
}

static void offsets(void)
{
    struct nmreq_opt_offsets opt;
    struct nmreq_register wish;
    struct bound a, b = bind_port("vale3:b");
    int fill = 0;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    memset(&opt, 0, sizeof(opt));
    opt.nro_opt.nro_reqtype = NETMAP_REQ_OPT_OFFSETS;
    opt.nro_max_offset = 256;
    opt.nro_initial_offset = 64;
    opt.nro_offset_bits = 16;
    a = bind_as("vale3:a", wish, &opt);
    NEED(a.error == 0 && opt.nro_opt.nro_status == 0);
    CHECK(tx(&a, 0)->offset_mask == 0xffff && tx(&a, 0)->slot[5].ptr == 64);
    {
        struct netmap_slot *slot = &tx(&a, 0)->slot[0];
        uint8_t *data = (uint8_t *)NETMAP_BUF(tx(&a, 0), slot->buf_idx) + 64;

        memset(data, 'o', 100);
        memset(data, 0xff, 6);
        data[6] = 2;
        slot->len = 100;
        tx(&a, 0)->head = tx(&a, 0)->cur = 1;
    }
    CHECK(deliver(&a) == 0 && rxsync(&b) == 0 && take(rx(&b, 0), &fill, NULL) == 100 && fill == 'o');
    CHECK(put(tx(&b, 0), 60, 2, -1, 'q') && deliver(&b) == 0 && rxsync(&a) == 0);
    {
        struct netmap_slot *slot = &rx(&a, 0)->slot[0];
        uint8_t *data =
            (uint8_t *)NETMAP_BUF(rx(&a, 0), slot->buf_idx) + (slot->ptr & rx(&a, 0)->offset_mask);

        CHECK(slot->len == 60 && data[59] == 'q' && data[0] == 0xff);
    }
    /* Wider than what the rings in use have. */
    opt.nro_max_offset = 512;
    {
        struct bound c = bind_as("vale3:a", wish, &opt);

        CHECK(c.error == EBUSY && opt.nro_opt.nro_status == EBUSY);
        close(c.fd);
    }
    unbind(&a);
    opt.nro_max_offset = 4096;
    a = bind_as("vale3:a", wish, &opt);
    CHECK(a.error == EINVAL);
    close(a.fd);
    opt.nro_max_offset = 256;
    opt.nro_initial_offset = 300;
    a = bind_as("vale3:a", wish, &opt);
    CHECK(a.error == EINVAL);
    close(a.fd);
    opt.nro_initial_offset = 0;
    opt.nro_offset_bits = 4;
    a = bind_as("vale3:a", wish, &opt);
    CHECK(a.error == EINVAL);
    close(a.fd);
    unbind(&b);
}

int main(void)
{
    shared_rings();
    exclusive_use();
    single_rings();
    memory_ids();
    extra_buffers();
    null_ports();
    offsets();
    return CHECK_RESULT();
}
