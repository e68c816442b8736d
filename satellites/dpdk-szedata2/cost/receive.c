/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Receives frames of a card by DPDK, for their instructions to be counted: cost-receive CARD BURST FRAMES. The frames are
 * in the channel's buffer before the first is taken, so that no call finds less than a burst: how many such calls there
 * are depends on time. */
#include <stdio.h>
#include <stdlib.h>

#include <libsze2.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_pause.h>

/* A frame of 60 bytes in the channel's buffer, with its header, has no more bytes. */
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

static void start(const char *card)
{
    struct rte_eth_conf settings = {0};
    struct rte_mempool *pool;
    char device[256];
    /* One core, ordinary pages, and nothing that other programs could see. */
    char *arguments[] = {
        "cost-receive", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "--vdev", device,
        "-m",           "64",        "-l",          "0",        "--log-level=4",  NULL};

    snprintf(device, sizeof(device), "net_szedata20,dev_path=%s", card);
    if (rte_eal_init((int)RTE_DIM(arguments) - 1, arguments) < 0)
        fail("starting DPDK", rte_strerror(rte_errno));
    pool = rte_pktmbuf_pool_create("frames", MBUFS, MBUF_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (pool == NULL)
        fail("making mbufs", rte_strerror(rte_errno));
    if (rte_eth_dev_configure(0, 1, 0, &settings) != 0 ||
        rte_eth_rx_queue_setup(0, 0, 0, SOCKET_ID_ANY, NULL, pool) != 0 || rte_eth_dev_start(0) != 0)
        fail("starting the device", card);
}

/* Waits until the channel holds so many bytes. Nobody announces that. */
static void await_bytes(const char *card, uint64_t bytes)
{
    struct szedata *sze = szedata_open(card);
    struct szecard_info info;
    struct szecard_status status;

    if (sze == NULL || szecard_get_info(sze, &info) != 0)
        fail(card, szecard_error());
    if (info.receive_buffer < bytes + bytes / 16)
        fail(card, "the channel's buffer does not hold all frames: make it larger");
    do {
        rte_pause();
        if (szecard_get_status(sze, &status) != 0)
            fail(card, szecard_error());
    } while (status.receive[0].used < bytes);
    szedata_close(sze);
}

int main(int argc, char **argv)
{
    struct rte_mbuf *mbufs[MOST_BURST];
    unsigned long burst, frames, received = 0;

    if (argc != 4)
        fail("usage", "cost-receive CARD BURST FRAMES");
    burst = RTE_MIN(strtoul(argv[2], NULL, 10), (unsigned long)MOST_BURST);
    frames = strtoul(argv[3], NULL, 10);
    start(argv[1]);
    await_bytes(argv[1], (frames + burst) * SEGMENT_BYTES);
    while (received < frames) {
        uint16_t count = rte_eth_rx_burst(0, 0, mbufs, (uint16_t)burst);

        if (count < burst)
            fail(argv[1], "a call found less than a burst");
        rte_pktmbuf_free_bulk(mbufs, count);
        received += count;
    }
    printf("%lu\n", received);
    /* Nothing is to be closed in order: the process ends. */
    return EXIT_SUCCESS;
}
