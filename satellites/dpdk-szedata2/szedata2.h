/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * net_szedata2: a DPDK port on a SZE2 capture card.
 *
 * Queue n of a direction is the n-th channel of the mask in the device's arguments, and has its own libsze2 handle
 * while it is started; so each queue is for one thread. One more handle reads and sets the card, from the threads
 * that control the port, one at a time (`card_lock`). Everything else about cards is in libsze2.
 */
#ifndef SZEDATA2_H
#define SZEDATA2_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

#include <ethdev_driver.h>
#include <libsze2.h>
#include <rte_flow.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>

/* Frames that are taken or reserved at once. */
#define SZEDATA2_BURST 64

/* Longest frame that is copied by fixed moves. */
#define SZEDATA2_SHORT 64

/* Longest frame that is copied although the port has external buffers: no dearer than lending it. */
#define SZEDATA2_COPIED 256

/* Length of a card's metadata of a frame, bytes: the time comes first (docs/sze2.md). */
#define SZEDATA2_METADATA 12

/* Longest part that is copied without a call. */
#define SZEDATA2_INLINED 128

/* Around an MTU: Ethernet header and two VLAN tags; FCS is not in the buffers. */
#define SZEDATA2_OVERHEAD 22

extern int szedata2_logtype;
#define SZEDATA2_LOG(level, ...) \
    rte_log(RTE_LOG_##level, (uint32_t)szedata2_logtype, "net_szedata2: " __VA_ARGS__)

/* The device's arguments. */
struct szedata2_args {
    char dev_path[PATH_MAX];
    uint32_t rx_ifaces; /* masks of channels */
    uint32_t tx_ifaces;
    bool copy;   /* false leaves the copy between buffer and mbuf out, to measure what it costs */
    bool extbuf; /* received frames stay in the buffer, as external buffers of mbufs */
};

/* Channels of a mask, in the order of their numbers. */
struct szedata2_channels {
    uint16_t count;
    uint16_t number[SZECARD_MAX_CHANNELS];
};

/* The part of an mbuf from `rearm_data` on that a queue sets in all that it receives: up to and with `hash.rss`. */
struct szedata2_rearm {
    uint16_t data_off, refcnt, nb_segs, port;
    uint64_t ol_flags;
    uint32_t packet_type, pkt_len;
    uint16_t data_len, vlan_tci;
    uint32_t rss;
};

struct szedata2_lending;

struct szedata2_rx_queue {
    struct szedata *sze; /* NULL while stopped */
    struct rte_mempool *pool;
    struct szedata2_rearm rearm;
    uint32_t room; /* in an mbuf, bytes */
    uint16_t channel;
    uint16_t port;
    bool copy;
    bool copies_short; /* and every mbuf has room for a short frame */
    bool failed;       /* its buffer is out of order: nothing comes any more until it is started again */
    bool deferred_start;
    bool scatters;
    bool lends; /* frames longer than SZEDATA2_COPIED, while there is a lending */
    uint64_t packets;
    uint64_t bytes;
    uint64_t too_long;     /* frames for which an mbuf has no room */
    uint64_t discarded;    /* frames that were in the buffer when the queue was stopped */
    uint64_t faults;       /* times that the buffer was out of order */
    uint64_t alloc_failed; /* times that there was no mbuf; the frames stay in the buffer */
    uint64_t lent;         /* packets with an external buffer */
    uint64_t copied;       /* packets without, because mbufs hold too much */
    uint64_t renewals;     /* times that mbufs held half of the buffer, and the queue went on in a new one */

    /* Arrival times: place and flag in mbufs; the flag is 0 if they are not wanted. */
    uint64_t time_flag;
    int time_offset;

    /* Of szedata2_rx_burst_full and szedata2_lent.c. Numbers of frames count without end. */
    uint32_t delivered;             /* number of the next frame */
    uint32_t given_back;            /* number of the first frame that the card has not back */
    const unsigned char *last_data; /* the last frame */
    uint64_t buffer_bytes;
    struct szedata2_lending *lending; /* of the present buffer; NULL while all is copied */
    struct szedata2_lending *left;    /* of the buffer before, until all its mbufs are free */
    uint64_t copies_left;             /* frames to copy before the next lending */
    uint64_t pause;                   /* `copies_left` after the next renewal */
    bool is_blocked;                  /* a frame that is out keeps half of the buffer */
    bool is_renewed;                  /* frames are left in the buffer before */
    bool was_refused;                 /* the card gave no new buffer */
    /* Frames that are taken; those from `taken_next` on are not delivered. */
    unsigned int taken_next, taken_end;
    struct szecard_frame taken[SZEDATA2_BURST];
};

struct szedata2_tx_queue {
    struct szedata *sze; /* NULL while stopped */
    uint16_t channel;
    bool copy;
    bool failed;
    bool deferred_start;
    bool fast_free; /* each packet is one mbuf of one pool with one reference: it returns there as it is */
    uint64_t packets;
    uint64_t bytes;
    uint64_t too_long; /* packets longer than a segment can be */
    uint64_t faults;
};

/* The private data of a port (`dev_private`). */
struct szedata2_device {
    struct szedata2_args args;
    struct szedata2_channels rx, tx;
    struct szedata *card;
    pthread_mutex_t card_lock;
    bool promiscuous;
    bool all_multicast;
    bool has_times;  /* the card notes when each frame came */
    int time_offset; /* as in szedata2_rx_queue */
    uint64_t time_flag;
    TAILQ_HEAD(, rte_flow) flows; /* the flow rules, in the order in which they were created */
    unsigned int nr_flows;
    char refusal[512]; /* why the card refused the last one */
    /* The card's counters when the port's began, and as they were seen last. */
    struct szecard_status base, seen;
};

/* Whether a frame is short, but not shorter than a half of the longest short one. */
static inline bool szedata2_is_short(size_t length)
{
    return length - SZEDATA2_SHORT / 2 <= SZEDATA2_SHORT / 2;
}

/* Copies a short frame as two halves, which overlap. */
static inline void szedata2_copy_short(void *to, const void *from, size_t length)
{
    rte_mov16((uint8_t *)to, (const uint8_t *)from);
    rte_mov16((uint8_t *)to + 16, (const uint8_t *)from + 16);
    rte_mov16((uint8_t *)to + length - 32, (const uint8_t *)from + length - 32);
    rte_mov16((uint8_t *)to + length - 16, (const uint8_t *)from + length - 16);
}

/* Copies a part of a frame. Of long ones a call of the C library costs less than DPDK's inlined copy: it has the
 * instructions of this processor, not those of all for which DPDK was built. */
static inline void szedata2_copy(void *to, const void *from, uint32_t length)
{
    if (likely(szedata2_is_short(length)))
        szedata2_copy_short(to, from, length);
    else if (length <= SZEDATA2_INLINED)
        rte_memcpy(to, from, length);
    else
        memcpy(to, from, length);
}

/* szedata2_args.c */

/* Reads the device's arguments; those that are not given name all channels. 0 or -EINVAL, reported in the log. */
int szedata2_args_parse(const char *text, struct szedata2_args *args);

/* The channels of a mask, of which the card has `available`. 0 or -EINVAL, reported in the log. */
int szedata2_channels_of(const char *name, uint32_t mask, unsigned int available,
                         struct szedata2_channels *channels);

/* szedata2_ethdev.c */

/* Opens the card and has the channels; 0 or a negative errno, reported in the log. */
int szedata2_open(const struct szedata2_device *device, uint32_t rx, uint32_t tx, struct szedata **sze);

/* szedata2_rx.c */
int szedata2_rx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t nb_desc, unsigned int socket,
                            const struct rte_eth_rxconf *conf, struct rte_mempool *pool);
void szedata2_rx_queue_release(struct rte_eth_dev *dev, uint16_t queue);
int szedata2_rx_queue_start(struct rte_eth_dev *dev, uint16_t queue);
int szedata2_rx_queue_stop(struct rte_eth_dev *dev, uint16_t queue);
uint16_t szedata2_rx_burst(void *queue, struct rte_mbuf **mbufs, uint16_t count);
/* As szedata2_rx_burst, and with whatever the port was configured for: chains, external buffers, times. */
uint16_t szedata2_rx_burst_full(void *queue, struct rte_mbuf **mbufs, uint16_t count);

/* szedata2_lent.c. All but the freeing of mbufs is of the queue's thread. */

/* The queue has a new buffer, with its start; or has no more, before its handle is closed. */
void szedata2_lent_start(struct szedata2_rx_queue *queue);
void szedata2_lent_stop(struct szedata2_rx_queue *queue);

/* Makes the next frame the external buffer of a new mbuf. False if it has to be copied instead. */
bool szedata2_lend(struct szedata2_rx_queue *queue, const struct szecard_frame *frame, struct rte_mbuf *mbuf);

/* Gives the card what is delivered and not out any more. */
void szedata2_give_back(struct szedata2_rx_queue *queue);

/* Begins and leaves lendings, after a burst. */
void szedata2_lent_manage(struct szedata2_rx_queue *queue);

/* szedata2_tx.c */
int szedata2_tx_queue_setup(struct rte_eth_dev *dev, uint16_t queue, uint16_t nb_desc, unsigned int socket,
                            const struct rte_eth_txconf *conf);
void szedata2_tx_queue_release(struct rte_eth_dev *dev, uint16_t queue);
int szedata2_tx_queue_start(struct rte_eth_dev *dev, uint16_t queue);
int szedata2_tx_queue_stop(struct rte_eth_dev *dev, uint16_t queue);
uint16_t szedata2_tx_burst(void *queue, struct rte_mbuf **mbufs, uint16_t count);

/* szedata2_flow.c */
struct rte_flow_ops;
int szedata2_flow_ops_get(struct rte_eth_dev *dev, const struct rte_flow_ops **ops);

/* Whether all queues that flow rules name are there. 0 or -EBUSY, reported in the log. */
int szedata2_flow_configure(const struct rte_eth_dev *dev);

/* Has the card apply all flow rules, and no longer. The start is 0 or a negative errno, reported in the log. */
int szedata2_flow_start(struct rte_eth_dev *dev);
void szedata2_flow_stop(struct rte_eth_dev *dev);

/* Frees all flow rules; those at the card go with its handle. */
void szedata2_flow_close(struct szedata2_device *device);

/* szedata2_stats.c */
int szedata2_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats);
int szedata2_stats_reset(struct rte_eth_dev *dev);
int szedata2_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *xstats, unsigned int count);
int szedata2_xstats_get_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int count);

#endif
