/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Statistics: the queues' counters, and the card's, counted from the start of the port's. */
#include "szedata2.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A counter of the card. */
struct card_counter {
    const char *name;
    size_t offset;
};

#define IBUF(name, field)                                                     \
    {                                                                         \
        "rx_card_" name, offsetof(struct szecard_status, ibuf_counters.field) \
    }
#define OBUF(name, field)                                                     \
    {                                                                         \
        "tx_card_" name, offsetof(struct szecard_status, obuf_counters.field) \
    }

static const struct card_counter card_counters[] = {
    IBUF("packets", frames),      IBUF("bytes", bytes),         IBUF("disabled", disabled),
    IBUF("too_short", too_short), IBUF("too_long", too_long),   IBUF("other_address", address),
    IBUF("denied", denied),       IBUF("unclaimed", unclaimed), IBUF("overflow", overflow),
    OBUF("packets", frames),      OBUF("bytes", bytes),         OBUF("disabled", disabled),
};

/* A counter of a queue. */
static const struct card_counter rx_counters[] = {
    {"too_long", offsetof(struct szedata2_rx_queue, too_long)},
    {"discarded_at_stop", offsetof(struct szedata2_rx_queue, discarded)},
    {"faults", offsetof(struct szedata2_rx_queue, faults)},
    {"mbuf_alloc_failed", offsetof(struct szedata2_rx_queue, alloc_failed)},
    {"external_buffers", offsetof(struct szedata2_rx_queue, lent)},
    {"copied_while_held", offsetof(struct szedata2_rx_queue, copied)},
    {"renewed_buffers", offsetof(struct szedata2_rx_queue, renewals)},
};

static const struct card_counter tx_counters[] = {
    {"too_long", offsetof(struct szedata2_tx_queue, too_long)},
    {"faults", offsetof(struct szedata2_tx_queue, faults)},
};

/* 0 of a queue that was not set up. */
static uint64_t counter_at(const void *structure, size_t offset)
{
    uint64_t value = 0;

    if (structure != NULL)
        memcpy(&value, (const char *)structure + offset, sizeof(value));
    return value;
}

/* Another program may have set the card's counters to zero meanwhile. */
static uint64_t since(uint64_t base, uint64_t now)
{
    return now >= base ? now - base : now;
}

/* Queries the card; without an answer, returns its last known status. */
static const struct szecard_status *look(struct szedata2_device *device)
{
    struct szecard_status status;

    pthread_mutex_lock(&device->card_lock);
    if (szecard_get_status(device->card, &status) == 0)
        device->seen = status;
    else
        SZEDATA2_LOG(WARNING, "the card's counters are old: %s\n", szecard_error());
    pthread_mutex_unlock(&device->card_lock);
    return &device->seen;
}

static uint64_t overflow_of(const struct szedata2_device *device, unsigned int queue)
{
    uint16_t channel = device->rx.number[queue];

    return since(device->base.receive[channel].overflow, device->seen.receive[channel].overflow);
}

int szedata2_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
    struct szedata2_device *device = dev->data->dev_private;
    unsigned int i;

    look(device);
    for (i = 0; i < dev->data->nb_rx_queues; i++) {
        const struct szedata2_rx_queue *queue = dev->data->rx_queues[i];

        if (queue == NULL)
            continue;
        stats->ipackets += queue->packets;
        stats->ibytes += queue->bytes;
        stats->ierrors += queue->too_long + queue->faults;
        stats->imissed += overflow_of(device, i) + queue->discarded;
        stats->rx_nombuf += queue->alloc_failed;
        if (i < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
            stats->q_ipackets[i] = queue->packets;
            stats->q_ibytes[i] = queue->bytes;
            stats->q_errors[i] = queue->too_long + queue->faults;
        }
    }
    for (i = 0; i < dev->data->nb_tx_queues; i++) {
        const struct szedata2_tx_queue *queue = dev->data->tx_queues[i];

        if (queue == NULL)
            continue;
        stats->opackets += queue->packets;
        stats->obytes += queue->bytes;
        stats->oerrors += queue->too_long + queue->faults;
        if (i < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
            stats->q_opackets[i] = queue->packets;
            stats->q_obytes[i] = queue->bytes;
        }
    }
    return 0;
}

int szedata2_stats_reset(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;
    unsigned int i;

    device->base = *look(device);
    for (i = 0; i < dev->data->nb_rx_queues; i++) {
        struct szedata2_rx_queue *queue = dev->data->rx_queues[i];

        if (queue != NULL)
            queue->packets = queue->bytes = queue->too_long = queue->discarded = queue->faults =
                queue->alloc_failed = queue->lent = queue->copied = queue->renewals = 0;
    }
    for (i = 0; i < dev->data->nb_tx_queues; i++) {
        struct szedata2_tx_queue *queue = dev->data->tx_queues[i];

        if (queue != NULL)
            queue->packets = queue->bytes = queue->too_long = queue->faults = 0;
    }
    return 0;
}

static unsigned int count_of_xstats(const struct rte_eth_dev *dev)
{
    return (unsigned int)(RTE_DIM(card_counters) + dev->data->nb_rx_queues * (RTE_DIM(rx_counters) + 1) +
                          dev->data->nb_tx_queues * RTE_DIM(tx_counters));
}

int szedata2_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int count)
{
    struct szedata2_device *device = dev->data->dev_private;
    unsigned int at, queue, i, total = count_of_xstats(dev);

    if (xstats == NULL || count < total)
        return (int)total;
    look(device);
    for (at = 0; at < RTE_DIM(card_counters); at++)
        xstats[at].value = since(counter_at(&device->base, card_counters[at].offset),
                                 counter_at(&device->seen, card_counters[at].offset));
    for (queue = 0; queue < dev->data->nb_rx_queues; queue++) {
        xstats[at++].value = overflow_of(device, queue);
        for (i = 0; i < RTE_DIM(rx_counters); i++)
            xstats[at++].value = counter_at(dev->data->rx_queues[queue], rx_counters[i].offset);
    }
    for (queue = 0; queue < dev->data->nb_tx_queues; queue++) {
        for (i = 0; i < RTE_DIM(tx_counters); i++)
            xstats[at++].value = counter_at(dev->data->tx_queues[queue], tx_counters[i].offset);
    }
    for (i = 0; i < total; i++)
        xstats[i].id = i;
    return (int)total;
}

static void set_name(struct rte_eth_xstat_name *name, const char *direction, unsigned int queue,
                     const char *counter)
{
    snprintf(name->name, sizeof(name->name), "%s_q%u_%s", direction, queue, counter);
}

int szedata2_xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int count)
{
    unsigned int at, queue, i, total = count_of_xstats(dev);

    if (names == NULL || count < total)
        return (int)total;
    for (at = 0; at < RTE_DIM(card_counters); at++)
        snprintf(names[at].name, sizeof(names[at].name), "%s", card_counters[at].name);
    for (queue = 0; queue < dev->data->nb_rx_queues; queue++) {
        set_name(&names[at++], "rx", queue, "overflow");
        for (i = 0; i < RTE_DIM(rx_counters); i++)
            set_name(&names[at++], "rx", queue, rx_counters[i].name);
    }
    for (queue = 0; queue < dev->data->nb_tx_queues; queue++) {
        for (i = 0; i < RTE_DIM(tx_counters); i++)
            set_name(&names[at++], "tx", queue, tx_counters[i].name);
    }
    return (int)total;
}
