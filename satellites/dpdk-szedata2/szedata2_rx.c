/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Receiving: frames are taken in place, copied into mbufs or lent to them, and given back. */
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

/* Copies a frame into an mbuf, and as many more as it needs; NULL if there are not enough. */
static struct rte_mbuf *scatter(const struct szedata2_rx_queue *queue, const struct szecard_frame *frame,
                                struct rte_mbuf *first)
{
    struct rte_mbuf *last = first;
    uint32_t done = 0;

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
    return first;
}

/* A packet with the frame; NULL if there are not enough mbufs. */
static struct rte_mbuf *packet_of(struct szedata2_rx_queue *queue, const struct szecard_frame *frame)
{
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->pool);

    if (unlikely(mbuf == NULL))
        return NULL;
    if (!queue->lends || frame->length <= SZEDATA2_COPIED) {
        mbuf = scatter(queue, frame, mbuf);
    } else if (!szedata2_lend(queue, frame, mbuf)) {
        mbuf = scatter(queue, frame, mbuf);
        queue->copied += mbuf != NULL;
    }
    return mbuf;
}

/* Notes the time that the card has for the frame. */
static void set_time(const struct szedata2_rx_queue *queue, const struct szecard_frame *frame,
                     struct rte_mbuf *mbuf)
{
    rte_le64_t time;

    if (frame->metadata_length != SZEDATA2_METADATA)
        return;
    memcpy(&time, frame->metadata, sizeof(time));
    *RTE_MBUF_DYNFIELD(mbuf, queue->time_offset, rte_mbuf_timestamp_t *) = rte_le_to_cpu_64(time);
    mbuf->ol_flags |= queue->time_flag;
}

/* Whether there is a frame to deliver. Takes frames if none is left. */
static bool has_next(struct szedata2_rx_queue *queue, unsigned int wanted)
{
    if (queue->taken_next < queue->taken_end)
        return true;
    queue->taken_next = 0;
    queue->taken_end = take(queue, queue->taken, RTE_MIN(wanted, SZEDATA2_BURST));
    if (queue->taken_end == 0)
        queue->is_renewed = false; /* the buffer before is empty, if there was one */
    return queue->taken_end > 0;
}

uint16_t szedata2_rx_burst_full(void *rx_queue, struct rte_mbuf **mbufs, uint16_t count)
{
    struct szedata2_rx_queue *queue = rx_queue;
    uint16_t received = 0;

    while (received < count && has_next(queue, count - received)) {
        const struct szecard_frame *frame = &queue->taken[queue->taken_next];

        if (unlikely(frame->length > queue->room && !queue->scatters)) {
            queue->too_long++;
        } else {
            struct rte_mbuf *mbuf = packet_of(queue, frame);

            if (unlikely(mbuf == NULL)) {
                queue->alloc_failed++; /* the frame stays */
                break;
            }
            mbuf->port = queue->port;
            if (queue->time_flag != 0)
                set_time(queue, frame, mbuf);
            queue->packets++;
            queue->bytes += mbuf->pkt_len;
            mbufs[received++] = mbuf;
        }
        queue->copies_left -= queue->copies_left > 0;
        queue->last_data = frame->data;
        queue->taken_next++;
        queue->delivered++;
    }
    szedata2_give_back(queue);
    if (queue->lends)
        szedata2_lent_manage(queue);
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
    queue->scatters = dev->data->scattered_rx;
    queue->time_flag = device->time_flag;
    queue->time_offset = device->time_offset;
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
    const struct szedata2_device *device = dev->data->dev_private;
    struct szedata2_rx_queue *queue = dev->data->rx_queues[queue_id];
    struct szecard_info info;
    int status;

    if (queue == NULL) {
        SZEDATA2_LOG(ERR, "queue %u was not set up\n", queue_id);
        return -EINVAL;
    }
    if (queue->sze == NULL) {
        status = szedata2_open(device, UINT32_C(1) << queue->channel, 0, &queue->sze);
        if (status != 0)
            return status;
        szecard_get_info(queue->sze, &info); /* cannot fail: it is known since the handle was opened */
        queue->buffer_bytes = info.receive_buffer;
        queue->lends = device->args.extbuf && !(queue->rearm.ol_flags & RTE_MBUF_F_EXTERNAL);
        szedata2_lent_start(queue);
    }
    queue->failed = false;
    dev->data->rx_queue_state[queue_id] = RTE_ETH_QUEUE_STATE_STARTED;
    return 0;
}

int szedata2_rx_queue_stop(struct rte_eth_dev *dev, uint16_t queue_id)
{
    struct szedata2_rx_queue *queue = dev->data->rx_queues[queue_id];
    struct szecard_frame frames[SZEDATA2_BURST];
    int taken, buffers;

    if (queue == NULL)
        return 0;
    if (queue->sze != NULL) {
        /* Frames that were not fetched are released with the buffer, and those in the buffer before. */
        queue->discarded += queue->taken_end - queue->taken_next;
        queue->taken_next = queue->taken_end = 0;
        for (buffers = queue->is_renewed ? 2 : 1; buffers > 0;) {
            taken = szecard_take(queue->sze, queue->channel, frames, SZEDATA2_BURST);
            if (taken > 0)
                queue->discarded += (uint64_t)taken;
            else
                buffers--;
        }
        szedata2_lent_stop(queue);
        szedata_close(queue->sze);
        queue->sze = NULL;
    }
    dev->data->rx_queue_state[queue_id] = RTE_ETH_QUEUE_STATE_STOPPED;
    return 0;
}
