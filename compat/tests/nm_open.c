/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* nm_open and its family, and the macros and inline functions that they stand on. */
#define NETMAP_WITH_LIBS
#include <net/netmap_user.h>

#include "check.h"
#include "provider.h"

/* Plays the provider: writes a frame into the next slot of an rx ring. */
static void receive(struct netmap_ring *ring, const char *bytes, size_t length, uint16_t flags)
{
    struct netmap_slot *slot = &ring->slot[ring->tail];

    memcpy(NETMAP_BUF(ring, slot->buf_idx), bytes, length);
    slot->len = (uint16_t)length;
    slot->flags = flags;
    ring->tail = nm_ring_next(ring, ring->tail);
}

static void a_port_opens_and_closes(void)
{
    struct nm_desc *d = nm_open("vale0:a", NULL, NETMAP_NO_TX_POLL, NULL);

    CHECK(d != NULL);
    if (d == NULL)
        return;
    CHECK(IS_NETMAP_DESC(d) && NETMAP_FD(d) >= 0 && provider_open_devices == 1);
    CHECK(provider_last_legacy.nr_version == NETMAP_API);
    CHECK(provider_last_legacy.nr_ringid == NETMAP_NO_TX_POLL);
    CHECK(d->done_mmap && d->memsize == PROVIDER_MEMSIZE);
    CHECK((char *)d->nifp == (char *)d->mem + d->req.nr_offset);
    CHECK(d->first_tx_ring == 0 && d->last_tx_ring == 1 && d->first_rx_ring == 0 && d->last_rx_ring == 1);
    CHECK(d->some_ring == NETMAP_RXRING(d->nifp, 0));
    CHECK((char *)d->buf_start == NETMAP_BUF(d->some_ring, 0));
    CHECK((char *)d->buf_end == (char *)d->mem + d->memsize);
    CHECK(nm_mmap(d, NULL) == EBUSY);
    CHECK(nm_close(d) == 0 && provider_open_devices == 0);
    CHECK(nm_close(NULL) == EINVAL);
}

static void failures_leave_nothing_open(void)
{
    errno = 5;
    CHECK(nm_open("eth0", NULL, 0, NULL) == NULL && errno == 0);
    CHECK(nm_open("netmap:eth0-", NULL, 0, NULL) == NULL && errno == EINVAL);
    CHECK(nm_open("netmap:absent", NULL, 0, NULL) == NULL && errno == ENXIO);
    CHECK(provider_open_devices == 0);
}

static void modes_choose_rings(void)
{
    struct nm_desc *d = nm_open("netmap:a^", NULL, 0, NULL);

    CHECK(d->first_tx_ring == 2 && d->last_tx_ring == 2 && d->first_rx_ring == 2 && d->last_rx_ring == 2);
    nm_close(d);
    d = nm_open("netmap:a*", NULL, 0, NULL);
    CHECK(d->first_tx_ring == 0 && d->last_tx_ring == 2 && d->last_rx_ring == 2);
    nm_close(d);
    d = nm_open("netmap:a-1", NULL, 0, NULL);
    CHECK(d->first_tx_ring == 1 && d->last_tx_ring == 1 && d->cur_rx_ring == 1);
    nm_close(d);
    d = nm_open("netmap:a/T", NULL, 0, NULL);
    CHECK(d->some_ring == NETMAP_TXRING(d->nifp, 0));
    CHECK(nm_nextpkt(d, &d->hdr) == NULL && nm_dispatch(d, 0, NULL, NULL) == 0);
    nm_close(d);
    d = nm_open("netmap:a/R", NULL, 0, NULL);
    CHECK(nm_inject(d, "frame", 5) == 0);
    nm_close(d);
}

static void parts_come_from_a_parent(void)
{
    struct nm_desc *a = nm_open("netmap:a", NULL, 0, NULL), *b, *base;
    struct nmreq first;

    b = nm_open("netmap:b", NULL, NM_OPEN_NO_MMAP, a);
    CHECK(b != NULL && b->mem == a->mem && !b->done_mmap && b->nifp != a->nifp);
    nm_close(b);
    CHECK(NETMAP_TXRING(a->nifp, 0)->num_slots == PROVIDER_SLOTS);
    b = nm_open("vale0:c", NULL, NM_OPEN_NO_MMAP, a);
    CHECK(b != NULL && b->mem != a->mem && b->done_mmap);
    nm_close(b);
    b = nm_open("netmap:b", NULL, NM_OPEN_NO_MMAP, NULL);
    CHECK(b != NULL && b->mem == NULL && b->nifp == NULL);
    nm_close(b);
    nm_close(a);

    base = (struct nm_desc *)calloc(1, sizeof(*base));
    base->self = base;
    strcpy(base->req.nr_name, "given");
    base->req.nr_flags = NR_REG_ONE_NIC;
    base->req.nr_ringid = 1;
    base->req.nr_arg1 = 4;
    base->req.nr_arg2 = 9;
    base->req.nr_arg3 = 7;
    base->req.nr_tx_slots = 32;
    base->req.nr_rx_rings = 3;
    b = nm_open("netmap:ignored", NULL,
                NM_OPEN_IFNAME | NM_OPEN_ARG1 | NM_OPEN_ARG2 | NM_OPEN_ARG3 | NM_OPEN_RING_CFG, base);
    CHECK(b != NULL && strcmp(provider_last_legacy.nr_name, "given") == 0 && b->first_tx_ring == 1);
    CHECK(provider_last_legacy.nr_arg1 == 4 && provider_last_legacy.nr_arg2 == 9 &&
          provider_last_legacy.nr_arg3 == 7);
    CHECK(provider_last_legacy.nr_tx_slots == 32 && provider_last_legacy.nr_rx_rings == 3);
    nm_close(b);
    b = nm_open("netmap:own", NULL, 0, base);
    CHECK(provider_last_legacy.nr_arg1 == 0 && provider_last_legacy.nr_arg2 == 0 &&
          provider_last_legacy.nr_arg3 == 0);
    CHECK(provider_last_legacy.nr_tx_slots == 0 && strcmp(provider_last_legacy.nr_name, "own") == 0);
    nm_close(b);
    free(base);

    memset(&first, 0, sizeof(first));
    first.nr_arg3 = 5;
    b = nm_open("netmap:own", &first, 0, NULL);
    CHECK(provider_last_legacy.nr_arg3 == 5);
    nm_close(b);
}

static void frames_are_injected(void)
{
    struct nm_desc *d = nm_open("vale1:a", NULL, 0, NULL);
    struct netmap_ring *ring = NETMAP_TXRING(d->nifp, 0);
    char frame[PROVIDER_BUF_SIZE + 7];
    int sent = 0;

    memset(frame, 'x', sizeof(frame));
    CHECK(!nm_tx_pending(ring));
    CHECK(nm_inject(d, frame, 60) == 60 && ring->slot[0].len == 60 && ring->slot[0].flags == 0);
    CHECK(nm_tx_pending(ring));
    CHECK(nm_inject(d, frame, sizeof(frame)) == (int)sizeof(frame) && ring->head == 3 && ring->cur == 3);
    CHECK(ring->slot[1].flags == NS_MOREFRAG && ring->slot[2].flags == 0 && ring->slot[2].len == 7);
    CHECK(memcmp(NETMAP_BUF(ring, ring->slot[2].buf_idx), frame, 7) == 0);
    while (nm_inject(d, frame, 60) == 60)
        sent++;
    CHECK(sent == 2 * (PROVIDER_SLOTS - 1) - 3 && d->cur_tx_ring == 1 && nm_ring_empty(ring));
    nm_close(d);
}

static char seen[8][16];
static struct nm_pkthdr headers[8];
static int calls;

static void on_frame(unsigned char *arg, const struct nm_pkthdr *header, const unsigned char *bytes)
{
    CHECK(arg == (unsigned char *)seen && bytes == header->buf && header->d != NULL);
    CHECK(!nm_ring_empty(NETMAP_RXRING(header->d->nifp, header->d->cur_rx_ring)));
    memcpy(seen[calls], bytes, header->caplen);
    headers[calls++] = *header;
}

static void frames_are_received(void)
{
    struct nm_desc *d = nm_open("vale2:a", NULL, 0, NULL);
    struct netmap_ring *r0 = NETMAP_RXRING(d->nifp, 0), *r1 = NETMAP_RXRING(d->nifp, 1);
    struct nm_pkthdr header;

    CHECK(nm_nextpkt(d, &header) == NULL);
    r1->ts.tv_sec = 77;
    receive(r0, "one", 3, 0);
    receive(r0, "two", 3, NS_MOREFRAG);
    receive(r0, "and more", 8, 0);
    receive(r0, "three", 5, 0);
    receive(r1, "four", 4, 0);
    receive(r1, "five", 4, 0);
    CHECK(nm_dispatch(d, 2, on_frame, (unsigned char *)seen) == 2 && calls == 2);
    CHECK(strncmp(seen[0], "one", 3) == 0 && headers[0].len == 3 && headers[0].caplen == 3);
    CHECK(strncmp(seen[1], "two", 3) == 0 && headers[1].len == 11 && headers[1].caplen == 3);
    CHECK(headers[1].flags == NM_MORE_PKTS && headers[1].slot == &r0->slot[1] && r0->head == 3);
    CHECK(nm_dispatch(d, -1, on_frame, (unsigned char *)seen) == 3 && calls == 5);
    CHECK(strncmp(seen[2], "three", 5) == 0 && headers[2].flags == 0);
    CHECK(strncmp(seen[3], "four", 4) == 0 && headers[3].flags == NM_MORE_PKTS && headers[3].ts.tv_sec == 77);
    CHECK(strncmp(seen[4], "five", 4) == 0 && d->cur_rx_ring == 1);
    CHECK(nm_ring_empty(r0) && nm_ring_empty(r1));

    receive(r0, "six", 3, 0);
    CHECK(memcmp(nm_nextpkt(d, &header), "six", 3) == 0 && header.len == 3 && r0->cur == r0->head);
    CHECK(nm_nextpkt(d, &header) == NULL);
    nm_close(d);
}

static void cursors_go_round(void)
{
    struct nm_desc *d = nm_open("vale3:a", NULL, 0, NULL);
    struct netmap_ring *ring = NETMAP_TXRING(d->nifp, 0);
    struct netmap_slot *slot = &ring->slot[3];

    CHECK(nm_ring_next(ring, 0) == 1 && nm_ring_next(ring, PROVIDER_SLOTS - 1) == 0);
    CHECK(nm_ring_space(ring) == PROVIDER_SLOTS - 1);
    ring->head = 10;
    ring->tail = 2;
    CHECK(nm_ring_space(ring) == 8 && !nm_ring_empty(ring));
    CHECK((uint32_t)NETMAP_BUF_IDX(ring, NETMAP_BUF(ring, 17)) == 17);
    CHECK(NETMAP_RXRING(d->nifp, 0)->dir == 1 && NETMAP_TXRING(d->nifp, 1)->ringid == 1);
    NETMAP_WOFFSET(ring, slot, 5);
    CHECK(slot->ptr == 0 && NETMAP_ROFFSET(ring, slot) == 0);
    CHECK(NETMAP_BUF_OFFSET(ring, slot) == NETMAP_BUF(ring, slot->buf_idx));
    slot->flags = 3 << NS_PORT_SHIFT;
    CHECK(NS_RFRAGS(slot) == 3);
    nm_close(d);
}

static void the_loop_reads_what_was_written(void)
{
    struct nm_csb_atok atok;
    struct nm_csb_ktoa ktoa;
    uint32_t hwtail = 0, hwcur = 0;

    memset(&atok, 0, sizeof(atok));
    memset(&ktoa, 0, sizeof(ktoa));
    nm_sync_kloop_appl_write(&atok, 7, 5);
    CHECK(atok.cur == 7 && atok.head == 5);
    ktoa.hwcur = 3;
    ktoa.hwtail = 9;
    nm_sync_kloop_appl_read(&ktoa, &hwtail, &hwcur);
    CHECK(hwtail == 9 && hwcur == 3);
    nm_stld_barrier();
}

static void messages_go_to_stderr(void)
{
    char text[512];
    int pipe_fds[2], saved = dup(2), i;
    ssize_t length;

    CHECK(pipe(pipe_fds) == 0 && dup2(pipe_fds[1], 2) == 2);
    D("plain");
    D("number %d", 7);
    ND("not said %d", 8);
    for (i = 0; i < 1000; i++)
        RD(1, "seldom");
    dup2(saved, 2);
    length = read(pipe_fds[0], text, sizeof(text) - 1);
    CHECK(length > 0);
    text[length > 0 ? length : 0] = '\0';
    CHECK(strstr(text, "messages_go_to_stderr") != NULL && strstr(text, "plain\n") != NULL);
    CHECK(strstr(text, "number 7\n") != NULL && strstr(text, "not said") == NULL);
    CHECK(strstr(text, "seldom\n") != NULL);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(saved);
}

int main(void)
{
    a_port_opens_and_closes();
    failures_leave_nothing_open();
    modes_choose_rings();
    parts_come_from_a_parent();
    frames_are_injected();
    frames_are_received();
    cursors_go_round();
    the_loop_reads_what_was_written();
    messages_go_to_stderr();
    return CHECK_RESULT();
}
