/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Transmitting: room for a burst is reserved, filled from the mbufs, and shown to the card at once. */
#include "szedata2.h"

#include <errno.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

/* Copies a packet from one or several mbufs. They may hold more or less than the packet's length: that many bytes
 * are written. */
static void gather(unsigned char *place, const struct rte_mbuf *mbuf, uint32_t length)
{
    for (; mbuf != NULL && length > 0; mbuf = mbuf->next) {
        uint32_t part = RTE_MIN((uint32_t)mbuf->data_len, length);

        szedata2_copy(place, rte_pktmbuf_mtod(mbuf, const void *), part);
        place += part;
        length -= part;
    }
    memset(place, 0, length);
}

/* Copies short packets, each of one mbuf, from number `i` on, up to the first that is not so. Returns its number. */
static __rte_always_inline size_t put_short(unsigned char *const *places, struct rte_mbuf *const *mbufs,
                                            const uint32_t *lengths, size_t i, size_t count, uint64_t *bytes)
{
    for (; i < count; i++) {
        const struct rte_mbuf *mbuf = mbufs[i];
        size_t length = lengths[i];

        if (unlikely(!szedata2_is_short(length) || mbuf->data_len < length))
            break;
        szedata2_copy_short(places[i], rte_pktmbuf_mtod(mbuf, const void *), length);
        *bytes += length;
    }
    return i;
}

/* Reserves room for the first packets of those given; their number, which is less where there is no room. */
static unsigned int reserve(struct szedata2_tx_queue *queue, const uint32_t *lengths, unsigned char **places,
                            unsigned int count)
{
    int reserved;

    if (queue->failed || count == 0)
        return 0;
    reserved = szecard_reserve(queue->sze, queue->channel, lengths, places, count);
    if (unlikely(reserved < 0)) {
        queue->failed = true;
        queue->faults++;
        SZEDATA2_LOG(ERR, "tx channel %u has stopped: %s\n", queue->channel, szecard_error());
        return 0;
    }
    return (unsigned int)reserved;
}

/* Sends the first of the packets, as many as there is room for; their number. */
static __rte_always_inline uint16_t transmit(struct szedata2_tx_queue *queue, struct rte_mbuf **mbufs,
                                             uint16_t count)
{
    unsigned char *places[SZEDATA2_BURST];
    uint32_t lengths[SZEDATA2_BURST];
    size_t i, reserved;
    uint64_t bytes = 0;

    for (i = 0; i < count; i++) {
        lengths[i] = mbufs[i]->pkt_len;
        rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], const void *));
    }
    reserved = reserve(queue, lengths, places, count);
    if (reserved == 0)
        return 0;
    for (i = 0;; i++) {
        if (likely(queue->copy))
            i = put_short(places, mbufs, lengths, i, reserved, &bytes);
        if (i == reserved)
            break;
        if (likely(queue->copy))
            gather(places[i], mbufs[i], lengths[i]);
        bytes += lengths[i];
    }
    szecard_commit(queue->sze, queue->channel);
    queue->packets += reserved;
    queue->bytes += bytes;
    if (queue->fast_free)
        rte_mempool_put_bulk(mbufs[0]->pool, (void **)mbufs, (unsigned int)reserved);
    else
        rte_pktmbuf_free_bulk(mbufs, (unsigned int)reserved);
    return (uint16_t)reserved;
}

/* Returns short where there is no room. */
uint16_t szedata2_tx_burst(void *tx_queue, struct rte_mbuf **mbufs, uint16_t count)
{
    struct szedata2_tx_queue *queue = tx_queue;
    uint16_t done, wanted, sent = 0;

    while (sent < count) {
        if (unlikely(mbufs[sent]->pkt_len > SZECARD_MAX_FRAME)) {
            queue->too_long++;
            rte_pktmbuf_free(mbufs[sent++]);
            continue;
        }
        wanted = (uint16_t)(count - sent);
        if (unlikely(wanted > SZEDATA2_BURST))
            wanted = SZEDATA2_BURST;
        done = transmit(queue, &mbufs[sent], wanted);
        if (done == 0)
            break;
        sent = (uint16_t)(sent + done);
    }
    return sent;
}

int szedata2_tx_queue_setup(struct rte_eth_dev *dev, uint16_t queue_id, uint16_t nb_desc, unsigned int socket,
                            const struct rte_eth_txconf *conf)
{
    const struct szedata2_device *device = dev->data->dev_private;
    const uint64_t offloads = dev->data->dev_conf.txmode.offloads;
    struct szedata2_tx_queue *queue;

    (void)nb_desc; /* the buffer of the channel is as large as it is */
    queue = rte_zmalloc_socket("szedata2_tx_queue", sizeof(*queue), RTE_CACHE_LINE_SIZE, (int)socket);
    if (queue == NULL)
        return -ENOMEM;
    queue->channel = device->tx.number[queue_id];
    queue->copy = device->args.copy;
    queue->deferred_start = conf->tx_deferred_start;
    queue->fast_free = (offloads & (RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE | RTE_ETH_TX_OFFLOAD_MULTI_SEGS)) ==
                       RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    dev->data->tx_queues[queue_id] = queue;
    return 0;
}

void szedata2_tx_queue_release(struct rte_eth_dev *dev, uint16_t queue_id)
{
    szedata2_tx_queue_stop(dev, queue_id);
    rte_free(dev->data->tx_queues[queue_id]);
    dev->data->tx_queues[queue_id] = NULL;
}

int szedata2_tx_queue_start(struct rte_eth_dev *dev, uint16_t queue_id)
{
    struct szedata2_tx_queue *queue = dev->data->tx_queues[queue_id];
    int status = 0;

    if (queue == NULL) {
        SZEDATA2_LOG(ERR, "queue %u was not set up\n", queue_id);
        return -EINVAL;
    }
    if (queue->sze == NULL)
        status = szedata2_open(dev->data->dev_private, 0, UINT32_C(1) << queue->channel, &queue->sze);
    if (status != 0)
        return status;
    queue->failed = false;
    dev->data->tx_queue_state[queue_id] = RTE_ETH_QUEUE_STATE_STARTED;
    return 0;
}

int szedata2_tx_queue_stop(struct rte_eth_dev *dev, uint16_t queue_id)
{
    struct szedata2_tx_queue *queue = dev->data->tx_queues[queue_id];

    if (queue == NULL)
        return 0;
    /* Published frames are transmitted before the channel ends. */
    szedata_close(queue->sze);
    queue->sze = NULL;
    dev->data->tx_queue_state[queue_id] = RTE_ETH_QUEUE_STATE_STOPPED;
    return 0;
}
