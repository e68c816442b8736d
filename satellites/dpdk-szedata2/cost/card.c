/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Moves frames of a card by DPDK, for their instructions to be counted: cost-card receive|transmit CARD BURST FRAMES.
 * No call finds less than a burst, since how many such calls there are depends on time: received frames are in the
 * channel's buffer before the first is taken, and all transmitted ones have room there, as no reader takes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libsze2.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_pause.h>

#define FRAME_BYTES   60
/* A frame in the channel's buffer, with its header, has no more bytes. */
#define SEGMENT_BYTES 80
/* More than a burst and the pool's cache hold; a power of two less one wastes none. */
#define MBUFS         4095
#define MBUF_CACHE    250
#define MOST_BURST    256

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static struct rte_mempool *start(const char *card)
{
    struct rte_eth_conf settings = {.txmode.offloads = RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE};
    struct rte_mempool *pool;
    char device[256];
    /* One core, ordinary pages, and nothing that other programs could see. */
    char *arguments[] = {"cost-card", "--no-huge",     "--no-shconf", "--no-pci", "--no-telemetry",
                         "--vdev",    device,          "-m",          "64",       "-l",
                         "0",         "--log-level=4", NULL};

    snprintf(device, sizeof(device), "net_szedata20,dev_path=%s", card);
    if (rte_eal_init((int)RTE_DIM(arguments) - 1, arguments) < 0)
        fail("starting DPDK", rte_strerror(rte_errno));
    pool = rte_pktmbuf_pool_create("frames", MBUFS, MBUF_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (pool == NULL)
        fail("making mbufs", rte_strerror(rte_errno));
    if (rte_eth_dev_configure(0, 1, 1, &settings) != 0 ||
        rte_eth_rx_queue_setup(0, 0, 0, SOCKET_ID_ANY, NULL, pool) != 0 ||
        rte_eth_tx_queue_setup(0, 0, 0, SOCKET_ID_ANY, NULL) != 0 || rte_eth_dev_start(0) != 0)
        fail("starting the device", card);
    return pool;
}

/* Opens the card a second time, to read its state. Its buffers must hold this many bytes. */
static struct szedata *look_at(const char *card, uint64_t bytes)
{
    struct szedata *sze = szedata_open(card);
    struct szecard_info info;

    if (sze == NULL || szecard_get_info(sze, &info) != 0)
        fail(card, szecard_error());
    if (RTE_MIN(info.receive_buffer, info.transmit_buffer) < bytes + bytes / 16)
        fail(card, "a channel's buffer does not hold all frames: make it larger");
    return sze;
}

/* Waits until the channel holds this many bytes. That is not announced. */
static void await_bytes(struct szedata *sze, uint64_t bytes)
{
    struct szecard_status status;

    do {
        rte_pause();
        if (szecard_get_status(sze, &status) != 0)
            fail("waiting for frames", szecard_error());
    } while (status.receive[0].used < bytes);
}

static void receive(struct rte_mbuf **mbufs, uint16_t burst)
{
    if (rte_eth_rx_burst(0, 0, mbufs, burst) < burst)
        fail("receiving", "a call found less than a burst");
    rte_pktmbuf_free_bulk(mbufs, burst);
}

static void transmit(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t burst)
{
    uint16_t i;

    if (rte_pktmbuf_alloc_bulk(pool, mbufs, burst) != 0)
        fail("transmitting", "there is no mbuf");
    for (i = 0; i < burst; i++)
        mbufs[i]->pkt_len = mbufs[i]->data_len = FRAME_BYTES;
    if (rte_eth_tx_burst(0, 0, mbufs, burst) < burst)
        fail("transmitting", "a call found no room for a burst");
}

int main(int argc, char **argv)
{
    struct rte_mbuf *mbufs[MOST_BURST];
    unsigned long burst, frames, moved;
    struct rte_mempool *pool;
    struct szedata *sze;
    bool receives;

    if (argc != 5)
        fail("usage", "cost-card receive|transmit CARD BURST FRAMES");
    receives = strcmp(argv[1], "receive") == 0;
    burst = RTE_MIN(strtoul(argv[3], NULL, 10), (unsigned long)MOST_BURST);
    frames = strtoul(argv[4], NULL, 10);
    sze = look_at(argv[2], (frames + burst) * SEGMENT_BYTES);
    pool = start(argv[2]);
    if (receives)
        await_bytes(sze, (frames + burst) * SEGMENT_BYTES);
    for (moved = 0; moved < frames; moved += burst) {
        if (receives)
            receive(mbufs, (uint16_t)burst);
        else
            transmit(pool, mbufs, (uint16_t)burst);
    }
    printf("%lu\n", moved);
    /* An orderly close is not needed: the process ends. */
    return EXIT_SUCCESS;
}
