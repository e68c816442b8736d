/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A program that scribbles all over its region and is killed in the middle disturbs no other program. */
#include <signal.h>
#include <sys/wait.h>

#include "bound.h"

static uint64_t state = 88172645463325252u;

static uint64_t random_word(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Writes random values everywhere in its rings, and syncs them, until it is killed. */
static void scribble(int seed)
{
    struct bound evil = bind_port("vale1:evil");
    struct netmap_ring *rings[2];

    state += (uint64_t)seed * 7919;
    rings[0] = tx(&evil, 0);
    rings[1] = rx(&evil, 0);
    for (;;) {
        int i;

        for (i = 0; i < 64; i++) {
            struct netmap_ring *ring = rings[random_word() & 1];
            uint64_t word = random_word();

            switch (random_word() % 4) {
            case 0:
                /* Plausible indexes do more harm than wild ones. */
                ring->head = (uint32_t)(word % 1024);
                ring->cur = ring->head;
                break;
            case 1:
                ring->cur = (uint32_t)word;
                break;
            default:
                ((volatile uint64_t *)ring)[32 + random_word() % 2048] = word;
                break;
            }
        }
        ioctl(evil.fd, NIOCTXSYNC, NULL);
        ioctl(evil.fd, NIOCRXSYNC, NULL);
        poll_one(&evil, POLLIN | POLLOUT, 0);
    }
}

int main(void)
{
    struct bound a = bind_port("vale1:a"), b = bind_port("vale1:b");
    int round;

    /* Each learns where the other is, so that nothing is flooded to the third. */
    CHECK(put(tx(&a, 0), 60, 1, -1, 0) && deliver(&a) == 0 && drain(&b, 0) == 1);
    CHECK(put(tx(&b, 0), 60, 2, -1, 0) && deliver(&b) == 0 && drain(&a, 0) == 1);
    for (round = 0; round < 10; round++) {
        pid_t child = fork();
        int i, mine = 0;

        if (child == 0)
            scribble(round);
        for (i = 0; i < 2000; i++) {
            int fill = 0;

            CHECK(put(tx(&a, 0), 60, 1, 2, i & 0x7f) && txsync(&a) == 0 && rxsync(&b) == 0);
            /* Frames of the other may come here too, with any content. */
            for (;;) {
                struct netmap_ring *ring = rx(&b, 0);
                uint8_t *data;

                if (nm_ring_empty(ring)) {
                    if (poll_one(&b, POLLIN, PATIENCE_MS) != POLLIN)
                        break;
                }
                data = (uint8_t *)NETMAP_BUF(ring, ring->slot[ring->head].buf_idx);
                if (data[0] == 2 && data[5] == 2 && data[11] == 1) {
                    CHECK(take(ring, &fill, NULL) == 60 && fill == (i & 0x7f));
                    mine++;
                    break;
                }
                take(ring, NULL, NULL);
                CHECK(rxsync(&b) == 0);
            }
        }
        CHECK(mine == 2000);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    }
    /* Its rings are free again. */
    {
        struct bound again = bind_port("vale1:evil");

        CHECK(tx(&again, 0)->head == 0 && put(tx(&again, 0), 60, 3, 1, 'f') && txsync(&again) == 0);
        CHECK(poll_one(&a, POLLIN, PATIENCE_MS) == POLLIN);
        unbind(&again);
    }
    unbind(&a);
    unbind(&b);
    return CHECK_RESULT();
}
