/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Receiving: frames are taken in place, copied into mbufs, and given back together. */
#include "szedata2.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_mempool.h>
#include <rte_vect.h>

#define SAME_PLACE(own, field)               \
    (offsetof(struct szedata2_rearm, own) == \
     offsetof(struct rte_mbuf, field) - offsetof(struct rte_mbuf, rearm_data))
_Static_assert(SAME_PLACE(data_off, data_off) && SAME_PLACE(refcnt, refcnt) && SAME_PLACE(nb_segs, nb_segs) &&
                   SAME_PLACE(port, port) && SAME_PLACE(ol_flags, ol_flags) &&
                   SAME_PLACE(packet_type, packet_type) && SAME_PLACE(pkt_len, pkt_len) &&
                   SAME_PLACE(data_len, data_len) && SAME_PLACE(vlan_tci, vlan_tci) &&
                   SAME_PLACE(rss, hash.rss),
               "this DPDK lays mbufs out in another way");

/* Takes frames; 0 where there are none, or the buffer is out of order, which is reported once. */
static unsigned int take(struct szedata2_rx_queue *queue, struct szecard_frame *frames, unsigned int count)
{
    int taken;

    if (queue->failed)
        return 0;
    taken = szecard_take(queue->sze, queue->channel, frames, count);
    if (unlikely(taken < 0)) {
        queue->failed = true;
        queue->faults++;
        SZEDATA2_LOG(ERR, "port %u, rx channel %u has stopped: %s\n", queue->port, queue->channel,
                     szecard_error());
        return 0;
    }
    return (unsigned int)taken;
}

/* Allocates `count` mbufs, or as many as there are, as they lie in the pool: szedata2_rearm makes them new. */
static unsigned int allocate(struct szedata2_rx_queue *queue, struct rte_mbuf **mbufs, unsigned int count)
{
    unsigned int got = 0;

    if (likely(rte_mempool_get_bulk(queue->pool, (void **)mbufs, count) == 0))
        return count;
    queue->alloc_failed++;
    while (got < count && rte_mempool_get(queue->pool, (void **)&mbufs[got]) == 0)
        got++;
    return got;
}

/* Fills mbufs with short frames, one with one, up to the first that is not short. Returns where that is. */
static __rte_always_inline const struct szecard_frame *
fill_short(const struct szedata2_rx_queue *queue, struct rte_mbuf ***mbufs, const struct szecard_frame *frame,
           const struct szecard_frame *end, uint64_t *bytes)
{
    struct rte_mbuf **next = *mbufs;
    xmm_t first, second;

    memcpy(&first, &queue->rearm, sizeof(first));
    memcpy(&second, (const uint8_t *)&queue->rearm + sizeof(first), sizeof(second));
    for (; frame != end; frame++) {
        struct rte_mbuf *mbuf = *next;
        size_t length = frame->length;

        if (unlikely(!szedata2_is_short(length)))
            break;
        szedata2_copy_short(RTE_PTR_ADD(mbuf->buf_addr, RTE_PKTMBUF_HEADROOM), frame->data, length);
        memcpy(&mbuf->rearm_data, &first, sizeof(first));
        memcpy((uint8_t *)&mbuf->rearm_data + sizeof(first), &second, sizeof(second));
        mbuf->pkt_len = (uint32_t)length;
        mbuf->data_len = (uint16_t)length;
        *bytes += length;
        next++;
    }
    *mbufs = next;
    return frame;
}

/* Copies frames into mbufs, one into one. Returns how many mbufs are filled: not all where frames are too long. */
static unsigned int fill(struct szedata2_rx_queue *queue, struct rte_mbuf **mbufs,
                         const struct szecard_frame *frames, unsigned int count)
{
    const struct szecard_frame *frame, *end = frames + count;
    struct rte_mbuf **next = mbufs;
    uint64_t bytes = 0;

    for (frame = frames;; frame++) {
        struct rte_mbuf *mbuf;

        if (likely(queue->copies_short))
            frame = fill_short(queue, &next, frame, end, &bytes);
        if (frame == end)
            break;
        if (unlikely(frame->length > queue->room)) {
            queue->too_long++;
            continue;
        }
        mbuf = *next++;
        if (likely(queue->copy))
            szedata2_copy(RTE_PTR_ADD(mbuf->buf_addr, RTE_PKTMBUF_HEADROOM), frame->data, frame->length);
        memcpy(&mbuf->rearm_data, &queue->rearm, sizeof(queue->rearm));
        mbuf->pkt_len = frame->length;
        mbuf->data_len = (uint16_t)frame->length;
        bytes += frame->length;
    }
    queue->packets += (uint64_t)(next - mbufs);
    queue->bytes += bytes;
    return (unsigned int)(next - mbufs);
}

/* Frames that are there, each in one mbuf, SZEDATA2_BURST at most. */
static __rte_always_inline uint16_t receive(struct szedata2_rx_queue *queue, struct rte_mbuf **mbufs,
                                            uint16_t count)
{
    struct szecard_frame frames[SZEDATA2_BURST];
    unsigned int filled, taken = take(queue, frames, count);

    if (taken == 0)
        return 0;
    /* Frames for which there is no mbuf stay. */
    taken = allocate(queue, mbufs, taken);
    filled = fill(queue, mbufs, frames, taken);
    if (unlikely(filled < taken))
        rte_mempool_put_bulk(queue->pool, (void **)&mbufs[filled], taken - filled);
    szecard_give_back(queue->sze, queue->channel, taken);
    return (uint16_t)filled;
}

/* Each frame in one mbuf. */
uint16_t szedata2_rx_burst(void *rx_queue, struct rte_mbuf **mbufs, uint16_t count)
{
    uint16_t filled, wanted, received = 0;

    do {
        wanted = (uint16_t)(count - received);
        if (unlikely(wanted > SZEDATA2_BURST))
            wanted = SZEDATA2_BURST;
        filled = receive(rx_queue, &mbufs[received], wanted);
        received = (uint16_t)(received + filled);
    } while (unlikely(filled == SZEDATA2_BURST && received < count));
    return received;
}

/* A frame in as many mbufs as it needs; NULL if there are not enough. */
static struct rte_mbuf *scatter(const struct szedata2_rx_queue *queue, const struct szecard_frame *frame)
{
    struct rte_mbuf *first = rte_pktmbuf_alloc(queue->pool), *last = first;
    uint32_t done = 0;

    if (unlikely(first == NULL))
        return NULL;
    for (;;) {
        uint32_t part = RTE_MIN(frame->length - done, queue->room);

        if (likely(queue->copy))
            szedata2_copy(rte_pktmbuf_mtod(last, void *), frame->data + done, part);
        last->data_len = (uint16_t)part;
        done += part;
        if (done == frame->length)
            break;
        last->next = rte_pktmbuf_alloc(queue->pool);
        last = last->next;
        if (unlikely(last == NULL)) {
            rte_pktmbuf_free(first);
            return NULL;
        }
        first->nb_segs++;
    }
    first->pkt_len = frame->length;
    first->port = queue->port;
    return first;
}

/* Each frame in one mbuf, or in several. */
uint16_t szedata2_rx_burst_scattered(void *rx_queue, struct rte_mbuf **mbufs, uint16_t count)
{
    struct szedata2_rx_queue *queue = rx_queue;
    struct szecard_frame frames[SZEDATA2_BURST];
    uint16_t received = 0;

    while (received < count) {
        unsigned int wanted = RTE_MIN(count - received, SZEDATA2_BURST);
        unsigned int i, taken = take(queue, frames, wanted);

        for (i = 0; i < taken; i++) {
            struct rte_mbuf *mbuf = scatter(queue, &frames[i]);

            if (unlikely(mbuf == NULL)) {
                queue->alloc_failed++;
                break;
            }
            queue->packets++;
            queue->bytes += mbuf->pkt_len;
            mbufs[received++] = mbuf;
        }
        if (taken > 0)
            szecard_give_back(queue->sze, queue->channel, i);
        if (i < wanted)
            break;
    }
    return received;
}

/* A new mbuf of the queue. Those of a pool with memory of its own keep the flag for that. */
static struct szedata2_rearm rearm_of(struct rte_mempool *pool, uint16_t port)
{
    bool is_pinned = (rte_pktmbuf_priv_flags(pool) & RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF) != 0;

    return (struct szedata2_rearm){
        .data_off = RTE_PKTMBUF_HEADROOM,
        .refcnt = 1,
        .nb_segs = 1,
        .port = port,
        .ol_flags = is_pinned ? RTE_MBUF_F_EXTERNAL : 0,
    };
}

int szedata2_rx_queue_setup(struct rte_eth_dev *dev, uint16_t queue_id, uint16_t nb_desc, unsigned int socket,
                            const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
    const struct szedata2_device *device = dev->data->dev_private;
    struct szedata2_rx_queue *queue;
    uint16_t room = rte_pktmbuf_data_room_size(pool);

    (void)nb_desc; /* the buffer of the channel is as large as it is */
    if (room <= RTE_PKTMBUF_HEADROOM) {
        SZEDATA2_LOG(ERR, "mbufs of pool %s have no room behind their headroom\n", pool->name);
        return -EINVAL;
    }
    queue = rte_zmalloc_socket("szedata2_rx_queue", sizeof(*queue), RTE_CACHE_LINE_SIZE, (int)socket);
    if (queue == NULL)
        return -ENOMEM;
    queue->pool = pool;
    queue->room = (uint32_t)room - RTE_PKTMBUF_HEADROOM;
    queue->channel = device->rx.number[queue_id];
    queue->port = dev->data->port_id;
    queue->rearm = rearm_of(pool, queue->port);
    queue->copy = device->args.copy;
    queue->copies_short = queue->copy && queue->room >= SZEDATA2_SHORT;
    queue->deferred_start = conf->rx_deferred_start;
    dev->data->rx_queues[queue_id] = queue;
    return 0;
}

void szedata2_rx_queue_release(struct rte_eth_dev *dev, uint16_t queue_id)
{
    szedata2_rx_queue_stop(dev, queue_id);
    rte_free(dev->data->rx_queues[queue_id]);
    dev->data->rx_queues[queue_id] = NULL;
}

int szedata2_rx_queue_start(struct rte_eth_dev *dev, uint16_t queue_id)
{
    struct szedata2_rx_queue *queue = dev->data->rx_queues[queue_id];
    int status = 0;

    if (queue == NULL) {
        SZEDATA2_LOG(ERR, "queue %u was not set up\n", queue_id);
        return -EINVAL;
    }
    if (queue->sze == NULL)
        status = szedata2_open(dev->data->dev_private, UINT32_C(1) << queue->channel, 0, &queue->sze);
    if (status != 0)
        return status;
    queue->failed = false;
    dev->data->rx_queue_state[queue_id] = RTE_ETH_QUEUE_STATE_STARTED;
    return 0;
}

int szedata2_rx_queue_stop(struct rte_eth_dev *dev, uint16_t queue_id)
{
    struct szedata2_rx_queue *queue = dev->data->rx_queues[queue_id];
    struct szecard_frame frames[SZEDATA2_BURST];
    int taken;

    if (queue == NULL)
        return 0;
    if (queue->sze != NULL) {
        /* Frames that were not fetched are released with the buffer. */
        while ((taken = szecard_take(queue->sze, queue->channel, frames, SZEDATA2_BURST)) > 0)
            queue->discarded += (uint64_t)taken;
        szedata_close(queue->sze);
        queue->sze = NULL;
    }
    dev->data->rx_queue_state[queue_id] = RTE_ETH_QUEUE_STATE_STOPPED;
    return 0;
}
