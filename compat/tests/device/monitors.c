/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Monitors of ports and pipes: copies as frames pass, exchanges when they are finished with. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "bound.h"

static struct bound monitor(const char *name, uint64_t flags)
{
    struct bound b = bind_mode(name, NR_REG_ALL_NIC, 0, flags);

    if (b.error != 0) {
        fprintf(stderr, "monitoring %s: %s\n", name, strerror(b.error));
        exit(1);
    }
    return b;
}

/* The next slot of a monitor, which is released; its flags, or -1. */
static int seen(const struct bound *b, int *fill)
{
    struct netmap_ring *ring = rx(b, 0);
    int flags;

    CHECK(rxsync(b) == 0);
    if (nm_ring_empty(ring)) {
        return -1;
    }
    flags = ring->slot[ring->head].flags;
    take(ring, fill, NULL);
    CHECK(rxsync(b) == 0);
    return flags;
}

static void copies_on_a_switch(void)
{
    struct bound a, b, t, r, both;
    int fill = 0;

    CHECK(bind_error("vale0:ma", NR_REG_ALL_NIC, 0, NR_MONITOR_RX) == EINVAL);
    a = bind_port("vale0:ma");
    b = bind_port("vale0:mb");
    t = monitor("vale0:ma", NR_MONITOR_TX);
    r = monitor("vale0:mb", NR_MONITOR_RX);
    both = monitor("vale0:ma", NR_MONITOR_TX | NR_MONITOR_RX);
    CHECK(put(tx(&a, 0), 60, 1, 2, 's') && deliver(&a) == 0);
    CHECK(seen(&t, &fill) == NS_TXMON && fill == 's');
    /* On arrival, whether or not the port's program has looked. */
    CHECK(seen(&r, &fill) == 0 && fill == 's' && seen(&both, &fill) == NS_TXMON);
    CHECK(drain(&b, 0) == 1);
    CHECK(put(tx(&b, 0), 60, 2, 1, 'u') && deliver(&b) == 0);
    CHECK(seen(&t, &fill) == -1 && seen(&both, &fill) == 0 && fill == 'u' && drain(&a, 0) == 1);
    /* Frames of several slots stay so. */
    CHECK(put(tx(&a, 0), 5000, 1, 2, 'l') && deliver(&a) == 0 && rxsync(&t) == 0);
    CHECK(take(rx(&t, 0), &fill, NULL) == 5000 && fill == 'l');
    CHECK(poll_one(&t, POLLOUT, 0) & POLLERR);
    CHECK(txsync(&t) == 0);
    /* The port goes: its monitors are dead. */
    unbind(&a);
    CHECK(poll_one(&both, POLLIN, PATIENCE_MS) & POLLERR);
    CHECK(rxsync(&t) == -1 && errno == EIO);
    unbind(&t);
    unbind(&both);
    unbind(&r);
    unbind(&b);
}

static void full_monitor(void)
{
    struct nmreq_register wish;
    struct bound a = bind_port("vale0:ma"), b = bind_port("vale0:mb"), m;
    int i, frames = 0, fill = 0, last = 0;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    wish.nr_flags = NR_MONITOR_TX;
    wish.nr_rx_slots = 16;
    m = bind_as("vale0:ma", wish, NULL);
    NEED(m.error == 0);
    for (i = 0; i < 40; i++) {
        put(tx(&a, 0), 60, 1, 2, i);
    }
    CHECK(deliver(&a) == 0 && drain(&b, 0) == 40 && rxsync(&m) == 0);
    while (take(rx(&m, 0), &fill, NULL) >= 0) {
        frames++;
        last = fill;
    }
    CHECK(frames == 15 && last == 39);
    unbind(&m);
    unbind(&a);
    unbind(&b);
}

static void exchanges_on_a_switch(void)
{
    struct bound a = bind_port("vale0:ma"), b = bind_port("vale0:mb"), za, zb;
    int fill = 0, flags;
    uint32_t index;

    za = monitor("vale0:ma", NR_ZCOPY_MON);
    CHECK((za.reg.nr_flags & (NR_MONITOR_TX | NR_MONITOR_RX)) == (NR_MONITOR_TX | NR_MONITOR_RX));
    CHECK(za.reg.nr_mem_id == a.reg.nr_mem_id);
    zb = monitor("vale0:mb", NR_ZCOPY_MON);
    index = tx(&a, 0)->slot[0].buf_idx;
    CHECK(put(tx(&a, 0), 60, 1, 2, 'z') && deliver(&a) == 0);
    flags = seen(&za, &fill);
    CHECK(flags >= 0 && (flags & NS_TXMON) && fill == 'z');
    CHECK(tx(&a, 0)->slot[0].buf_idx != index && (tx(&a, 0)->slot[0].flags & NS_BUF_CHANGED));
    /* Received frames show when the program has released them. */
    CHECK(rxsync(&b) == 0 && !nm_ring_empty(rx(&b, 0)) && seen(&zb, &fill) == -1);
    CHECK(take(rx(&b, 0), NULL, NULL) == 60 && rxsync(&b) == 0);
    fill = 0;
    flags = seen(&zb, &fill);
    CHECK(flags >= 0 && !(flags & NS_TXMON) && fill == 'z');
    unbind(&za);
    unbind(&zb);
    unbind(&a);
    unbind(&b);
}

static void on_pipes(void)
{
    struct bound a = bind_port("vale0:mp{1"), b = bind_port("vale0:mp}1"), t, r, z;
    int fill = 0;

    t = monitor("vale0:mp{1", NR_MONITOR_TX);
    r = monitor("vale0:mp}1", NR_MONITOR_RX);
    z = monitor("vale0:mp{1", NR_ZCOPY_MON);
    CHECK(put(tx(&a, 0), 60, 1, 2, 'v') && txsync(&a) == 0);
    CHECK(seen(&t, &fill) == NS_TXMON && fill == 'v');
    fill = 0;
    CHECK(seen(&r, &fill) == 0 && fill == 'v');
    CHECK(seen(&z, &fill) == -1 && drain(&b, 0) == 1 && seen(&z, &fill) == -1);
    /* When the peer has released it, and the sender has seen that. */
    fill = 0;
    CHECK(txsync(&a) == 0 && seen(&z, &fill) >= 0 && fill == 'v');
    CHECK(put(tx(&b, 0), 60, 1, 2, 'w') && txsync(&b) == 0);
    CHECK(seen(&t, &fill) == -1 && seen(&z, &fill) == -1 && drain(&a, 0) == 1);
    fill = 0;
    CHECK(seen(&z, &fill) >= 0 && fill == 'w');
    unbind(&z);
    unbind(&t);
    unbind(&r);
    unbind(&a);
    unbind(&b);
}

static void wakes(void)
{
    struct bound a = bind_port("vale0:ma"), m = monitor("vale0:ma", NR_MONITOR_TX);

    if (fork() == 0) {
        usleep(20000);
        put(tx(&a, 0), 60, 1, 2, 0);
        _exit(txsync(&a) == 0 ? 0 : 1);
    }
    CHECK(poll_one(&m, POLLIN, PATIENCE_MS) == POLLIN);
    unbind(&m);
    unbind(&a);
}

/* Gives this process a policy of scheduling and its least priority, if it may have them. */
static int schedule_by(int policy)
{
    const struct sched_param least = {.sched_priority = sched_get_priority_min(policy)};

    return sched_setscheduler(0, policy, &least) == 0;
}

/* All that this process starts from here on runs at once on this one processor, in the middle of what this process does:
   as a real-time process where that is permitted. Elsewhere this process is an idle one, which other load keeps waiting. */
static cpu_set_t give_way(void)
{
    cpu_set_t before, one;

    NEED(sched_getaffinity(0, sizeof(before), &before) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    NEED(sched_setaffinity(0, sizeof(one), &one) == 0);
    NEED(schedule_by(SCHED_RR) ? schedule_by(SCHED_OTHER) : schedule_by(SCHED_IDLE));
    return before;
}

/* For a child: it goes before its parent. */
static void go_first(void)
{
    NEED(schedule_by(SCHED_RR) || schedule_by(SCHED_OTHER));
}

static void stop_giving_way(cpu_set_t before)
{
    NEED(schedule_by(SCHED_OTHER));
    NEED(sched_setaffinity(0, sizeof(before), &before) == 0);
}

/* The monitor runs as soon as it is woken, on the processor of the thread that fills its ring and has not finished that. It is woken for each frame all the same. */
static void wakes_for_each_frame_of_a_pipe(uint64_t flags)
{
    enum { FRAMES = 500 };
    struct bound a = bind_port("vale0:mw{1"), b = bind_port("vale0:mw}1");
    int seen_by[2], i, status = -1;
    cpu_set_t before = give_way();
    pid_t onlooker;
    char byte;

    NEED(pipe(seen_by) == 0);
    onlooker = fork();
    if (onlooker == 0) {
        struct bound m = monitor("vale0:mw{1", flags);

        go_first();
        NEED(write(seen_by[1], "", 1) == 1);
        for (i = 0; i < FRAMES; i++) {
            /* At the end of a time limit it would look once more. */
            NEED(poll_one(&m, POLLIN, -1) == POLLIN && take(rx(&m, 0), NULL, NULL) == 60);
            NEED(write(seen_by[1], "", 1) == 1);
        }
        _exit(0);
    }
    close(seen_by[1]);
    NEED(read(seen_by[0], &byte, 1) == 1);
    for (i = 0; i < FRAMES; i++) {
        /* Copies are made when it is sent, exchanges when the sender sees that the peer has released it. */
        CHECK(put(tx(&a, 0), 60, 1, 2, 0) && txsync(&a) == 0 && drain(&b, 0) == 1 && txsync(&a) == 0);
        NEED(read(seen_by[0], &byte, 1) == 1);
    }
    CHECK(waitpid(onlooker, &status, 0) == onlooker && status == 0);
    stop_giving_way(before);
    close(seen_by[0]);
    unbind(&a);
    unbind(&b);
}

/* Buffers are exchanged with monitors that come and go, and no frame of the pipe itself is lost or written over for that. */
static void come_and_go(void)
{
    enum { FRAMES = 200000 };
    struct bound a = bind_port("vale0:mc{1"), b = bind_port("vale0:mc}1");
    uint32_t sent = 0, received = 0, wrong = 0;
    cpu_set_t before = give_way();
    pid_t onlooker = fork();

    if (onlooker == 0) {
        go_first();
        for (;;) {
            struct bound m = monitor("vale0:mc{1", NR_ZCOPY_MON);

            CHECK(poll_one(&m, POLLIN, -1) == POLLIN);
            drain(&m, 0);
            unbind(&m);
        }
    }
    while (received < FRAMES) {
        struct netmap_ring *from = tx(&a, 0), *to = rx(&b, 0);
        int batch;

        for (batch = 0; batch < 16 && sent < FRAMES && !nm_ring_empty(from); batch++, sent++) {
            struct netmap_slot *slot = &from->slot[from->head];

            memcpy(NETMAP_BUF(from, slot->buf_idx), &sent, sizeof(sent));
            slot->len = 60;
            slot->flags = 0;
            from->head = from->cur = nm_ring_next(from, from->head);
        }
        CHECK(txsync(&a) == 0 && rxsync(&b) == 0);
        /* Some stay under way. */
        while (!nm_ring_empty(to) && (sent - received > 100 || sent == FRAMES)) {
            uint32_t number;

            memcpy(&number, NETMAP_BUF(to, to->slot[to->head].buf_idx), sizeof(number));
            wrong += number != received++;
            to->head = to->cur = nm_ring_next(to, to->head);
        }
    }
    CHECK(wrong == 0);
    CHECK(kill(onlooker, SIGKILL) == 0 && waitpid(onlooker, NULL, 0) == onlooker);
    stop_giving_way(before);
    unbind(&a);
    unbind(&b);
}

int main(void)
{
    copies_on_a_switch();
    full_monitor();
    exchanges_on_a_switch();
    on_pipes();
    wakes();
    wakes_for_each_frame_of_a_pipe(NR_MONITOR_TX);
    wakes_for_each_frame_of_a_pipe(NR_ZCOPY_MON);
    come_and_go();
    return CHECK_RESULT();
}
