/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Frames lent to the application: mbufs whose external buffers are frames in the channel's buffer.
 *
 * A lending is the memory of one buffer of a channel, with a slot for each frame that is out. Threads that free mbufs
 * mark the slots, in any order. The queue's thread gives the room before the oldest frame that is still out back to
 * the card. When such a frame keeps half of the buffer, the queue leaves that buffer and gets a new one; the mbufs that
 * are still out keep the memory of the old one until the last of them is free.
 */
#include "szedata2.h"

#include <stdatomic.h>

#include <rte_malloc.h>

/* Bytes of a buffer for each slot, and limits of the number of slots. */
#define SLOT_SHARE 2048
#define MIN_SLOTS  64
#define MAX_SLOTS  16384

/* Frames that are copied after a first renewal, before frames are lent again; doubled by each further one. */
#define MIN_PAUSE UINT64_C(65536)
#define MAX_PAUSE (UINT64_C(1) << 40)

enum slot_state {
    SLOT_OUT,
    SLOT_BACK, /* no mbuf refers to the frame any more */
    SLOT_LEFT, /* as SLOT_OUT, but the queue has left the lending */
};

/* A lent frame. */
struct slot {
    struct rte_mbuf_ext_shared_info shared;
    struct szedata2_lending *lending;
    struct szecard_frame frame;
    uint32_t number; /* among all frames that the queue has delivered */
    _Atomic uint32_t state;
} __rte_cache_aligned;

struct szedata2_lending {
    const struct szecard_buffer *memory;
    /* The queue, and each frame that is out since the queue left. */
    _Atomic uint32_t users;
    /* The slots from `oldest` up to `next` are in use; both count without end. Of the queue's thread. */
    uint32_t oldest, next;
    uint32_t slot_mask;
    struct slot slots[];
};

static struct slot *slot_at(struct szedata2_lending *lending, uint32_t number)
{
    return &lending->slots[number & lending->slot_mask];
}

static void leave(struct szedata2_lending *lending)
{
    if (atomic_fetch_sub_explicit(&lending->users, 1, memory_order_acq_rel) != 1)
        return;
    szecard_end_hold(lending->memory);
    rte_free(lending);
}

/* The last mbuf of a frame is free: called by any thread. */
static void frame_is_back(void *address, void *opaque)
{
    struct slot *slot = opaque;
    struct szedata2_lending *lending = slot->lending;

    (void)address;
    if (atomic_exchange_explicit(&slot->state, SLOT_BACK, memory_order_acq_rel) == SLOT_LEFT)
        leave(lending);
}

/* Begins to lend frames of the present buffer. Without memory for this, the queue copies. */
static void start_lending(struct szedata2_rx_queue *queue)
{
    uint32_t slots = (uint32_t)RTE_MIN(queue->buffer_bytes / SLOT_SHARE, (uint64_t)MAX_SLOTS);
    struct szedata2_lending *lending;

    slots = rte_align32prevpow2(RTE_MAX(slots, (uint32_t)MIN_SLOTS));
    lending =
        rte_zmalloc("szedata2_lending", sizeof(*lending) + slots * sizeof(struct slot), RTE_CACHE_LINE_SIZE);
    if (lending != NULL)
        lending->memory = szecard_hold(queue->sze, queue->channel);
    if (lending == NULL || lending->memory == NULL) {
        SZEDATA2_LOG(ERR, "port %u, rx channel %u: no memory for external buffers; frames are copied\n",
                     queue->port, queue->channel);
        rte_free(lending);
        queue->lends = false;
        return;
    }
    lending->slot_mask = slots - 1;
    atomic_init(&lending->users, 1);
    queue->lending = lending;
}

/* Leaves a lending: frames that are out keep its memory. */
static void stop_lending(struct szedata2_lending *lending)
{
    uint32_t number;

    /* Counted first, since any of them may come back meanwhile. */
    atomic_fetch_add_explicit(&lending->users, lending->next - lending->oldest, memory_order_relaxed);
    for (number = lending->oldest; number != lending->next; number++) {
        if (atomic_exchange_explicit(&slot_at(lending, number)->state, SLOT_LEFT, memory_order_acq_rel) ==
            SLOT_BACK)
            leave(lending);
    }
}

void szedata2_lent_start(struct szedata2_rx_queue *queue)
{
    queue->pause = MIN_PAUSE;
    queue->copies_left = 0;
    queue->is_blocked = queue->is_renewed = queue->was_refused = false;
    queue->delivered = queue->given_back = 0;
    if (queue->lends)
        start_lending(queue);
}

void szedata2_lent_stop(struct szedata2_rx_queue *queue)
{
    if (queue->lending != NULL) {
        stop_lending(queue->lending);
        leave(queue->lending);
    }
    if (queue->left != NULL)
        leave(queue->left);
    queue->lending = queue->left = NULL;
}

bool szedata2_lend(struct szedata2_rx_queue *queue, const struct szecard_frame *frame, struct rte_mbuf *mbuf)
{
    struct szedata2_lending *lending = queue->lending;
    struct slot *slot;

    if (lending == NULL || queue->is_blocked || lending->next - lending->oldest > lending->slot_mask)
        return false;
    slot = slot_at(lending, lending->next++);
    slot->shared.free_cb = frame_is_back;
    slot->shared.fcb_opaque = slot;
    rte_mbuf_ext_refcnt_set(&slot->shared, 1);
    slot->lending = lending;
    slot->frame = *frame;
    slot->number = queue->delivered;
    atomic_store_explicit(&slot->state, SLOT_OUT, memory_order_relaxed);
    /* Devices cannot reach this memory. */
    rte_pktmbuf_attach_extbuf(mbuf, frame->data, RTE_BAD_IOVA, (uint16_t)frame->length, &slot->shared);
    mbuf->data_len = (uint16_t)frame->length;
    mbuf->pkt_len = frame->length;
    queue->lent++;
    return true;
}

/* Goes on in a new buffer, and leaves the blocked one to the frames that are out. They are no more than one buffer's:
 * while some of them are out, everything is copied. */
static void renew(struct szedata2_rx_queue *queue)
{
    if (queue->left != NULL || queue->was_refused)
        return;
    if (szecard_renew(queue->sze, queue->channel) != 0) {
        /* Frames are copied, and wait in the buffer for the frame that blocks it. */
        queue->was_refused = true;
        SZEDATA2_LOG(WARNING,
                     "port %u, rx channel %u: mbufs hold half of the buffer, and there is no new one: %s\n",
                     queue->port, queue->channel, szecard_error());
        return;
    }
    stop_lending(queue->lending);
    queue->left = queue->lending;
    queue->lending = NULL;
    queue->given_back = queue->delivered;
    queue->is_blocked = false;
    queue->is_renewed = true;
    queue->renewals++;
    queue->copies_left = queue->pause;
    queue->pause = RTE_MIN(2 * queue->pause, MAX_PAUSE);
}

void szedata2_give_back(struct szedata2_rx_queue *queue)
{
    unsigned int waiting = queue->taken_end - queue->taken_next;
    struct szedata2_lending *lending = queue->lending;
    const struct szecard_frame *first = waiting > 0 ? &queue->taken[queue->taken_next] : NULL;
    uint32_t kept_from = queue->delivered;

    if (lending != NULL) {
        while (lending->oldest != lending->next &&
               atomic_load_explicit(&slot_at(lending, lending->oldest)->state, memory_order_acquire) ==
                   SLOT_BACK)
            lending->oldest++;
        queue->is_blocked = false;
        if (lending->oldest != lending->next) {
            const struct slot *slot = slot_at(lending, lending->oldest);

            first = &slot->frame;
            kept_from = slot->number;
            queue->is_blocked = (((uintptr_t)queue->last_data - (uintptr_t)first->data) &
                                 (queue->buffer_bytes - 1)) >= queue->buffer_bytes / 2;
        }
    }
    if (kept_from != queue->given_back) {
        szecard_give_back_before(queue->sze, queue->channel, first, queue->delivered - kept_from + waiting);
        queue->given_back = kept_from;
    }
}

void szedata2_lent_manage(struct szedata2_rx_queue *queue)
{
    if (queue->failed || queue->taken_next != queue->taken_end)
        return;
    if (queue->lending != NULL) {
        if (queue->is_blocked)
            renew(queue);
        else
            queue->was_refused = false;
        return;
    }
    if (queue->left != NULL && atomic_load_explicit(&queue->left->users, memory_order_acquire) == 1) {
        leave(queue->left);
        queue->left = NULL;
    }
    if (queue->left == NULL && !queue->is_renewed && queue->copies_left == 0)
        start_lending(queue);
}
