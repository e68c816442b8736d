/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The device: probe and remove, configuration, start and stop; settings of the card. */
#include "szedata2.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <bus_vdev_driver.h>
#include <ethdev_vdev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_malloc.h>
#include <rte_mbuf_dyn.h>

RTE_LOG_REGISTER(szedata2_logtype, pmd.net.szedata2, NOTICE);

static int error_said(const char *what)
{
    int error = errno != 0 ? errno : EIO;

    SZEDATA2_LOG(ERR, "%s: %s\n", what, szecard_error());
    return -error;
}

int szedata2_open(const struct szedata2_device *device, uint32_t rx, uint32_t tx, struct szedata **sze)
{
    uint32_t got_rx = rx, got_tx = tx;
    struct szedata *opened = szedata_open(device->args.dev_path);
    int status;

    if (opened == NULL)
        return error_said(device->args.dev_path);
    status = szedata_subscribe3(opened, &got_rx, &got_tx);
    if (status == 0 && (got_rx != rx || got_tx != tx)) {
        SZEDATA2_LOG(ERR, "%s: another program has channel mask rx %#x, tx %#x\n", device->args.dev_path,
                     rx & ~got_rx, tx & ~got_tx);
        szedata_close(opened);
        return -EBUSY;
    }
    if (status == 0)
        status = szedata_start(opened);
    if (status != 0) {
        SZEDATA2_LOG(ERR, "%s: %s\n", device->args.dev_path, szecard_error());
        szedata_close(opened);
        return -status;
    }
    *sze = opened;
    return 0;
}

/* Changes the input buffer's settings as `change` does; no other thread of this port does at the same time. */
static int set_ibuf(struct rte_eth_dev *dev, void (*change)(struct szecard_ibuf *ibuf, const void *with),
                    const void *with)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct szecard_status status;
    int result = 0;

    pthread_mutex_lock(&device->card_lock);
    if (szecard_get_status(device->card, &status) == 0) {
        change(&status.ibuf, with);
        if (szecard_set_ibuf(device->card, &status.ibuf) != 0)
            result = error_said("setting the input buffer");
    } else {
        result = error_said("querying the card");
    }
    pthread_mutex_unlock(&device->card_lock);
    return result;
}

/* Both requests are kept, and the check follows from them. */
static void change_check(struct szecard_ibuf *ibuf, const void *with)
{
    const struct szedata2_device *device = with;

    if (device->promiscuous)
        ibuf->address_check = SZECARD_CHECK_PROMISCUOUS;
    else if (device->all_multicast)
        ibuf->address_check = SZECARD_CHECK_MULTICAST;
    else
        ibuf->address_check = SZECARD_CHECK_BROADCAST;
}

static int set_check(struct rte_eth_dev *dev, bool *wish, bool value)
{
    bool before = *wish;
    int status;

    *wish = value;
    status = set_ibuf(dev, change_check, dev->data->dev_private);
    if (status != 0)
        *wish = before;
    return status;
}

static int promiscuous_enable(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;

    return set_check(dev, &device->promiscuous, true);
}

static int promiscuous_disable(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;

    return set_check(dev, &device->promiscuous, false);
}

static int allmulticast_enable(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;

    return set_check(dev, &device->all_multicast, true);
}

static int allmulticast_disable(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;

    return set_check(dev, &device->all_multicast, false);
}

/* The port's addresses as they will be: that at `index` is about to change. */
struct addresses {
    const struct rte_ether_addr *are;
    uint32_t index;
    struct rte_ether_addr address; /* zero where it is about to go */
};

static void change_addresses(struct szecard_ibuf *ibuf, const void *with)
{
    const struct addresses *addresses = with;
    uint32_t i;

    ibuf->nr_addresses = 0;
    for (i = 0; i < SZECARD_MAX_ADDRESSES; i++) {
        const struct rte_ether_addr *address =
            i == addresses->index ? &addresses->address : &addresses->are[i];

        if (!rte_is_zero_ether_addr(address))
            memcpy(ibuf->addresses[ibuf->nr_addresses++], address->addr_bytes, RTE_ETHER_ADDR_LEN);
    }
}

static int set_address(struct rte_eth_dev *dev, uint32_t index, const struct rte_ether_addr *address)
{
    struct addresses addresses = {.are = dev->data->mac_addrs, .index = index};

    if (index >= SZECARD_MAX_ADDRESSES)
        return -EINVAL;
    if (address != NULL)
        addresses.address = *address;
    return set_ibuf(dev, change_addresses, &addresses);
}

static int mac_addr_set(struct rte_eth_dev *dev, struct rte_ether_addr *address)
{
    return set_address(dev, 0, address);
}

static int mac_addr_add(struct rte_eth_dev *dev, struct rte_ether_addr *address, uint32_t index,
                        uint32_t pool)
{
    (void)pool;
    return set_address(dev, index, address);
}

static void mac_addr_remove(struct rte_eth_dev *dev, uint32_t index)
{
    (void)set_address(dev, index, NULL); /* the failure is in the log; it cannot be returned */
}

static void change_max_length(struct szecard_ibuf *ibuf, const void *with)
{
    const uint16_t *mtu = with;

    ibuf->max_length = (uint32_t)*mtu + SZEDATA2_OVERHEAD;
    if (ibuf->min_length > ibuf->max_length)
        ibuf->min_length = ibuf->max_length;
}

/* Whether frames of an MTU fit: into one mbuf each, or they may be scattered. */
static int check_mtu(const struct rte_eth_dev *dev, uint16_t mtu)
{
    uint32_t length = (uint32_t)mtu + RTE_ETHER_HDR_LEN;
    uint16_t i;

    if (dev->data->dev_conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_SCATTER)
        return 0;
    for (i = 0; i < dev->data->nb_rx_queues; i++) {
        const struct szedata2_rx_queue *queue = dev->data->rx_queues[i];

        if (queue != NULL && length > queue->room) {
            SZEDATA2_LOG(ERR, "MTU %u: mbufs have room for %u bytes; enable RTE_ETH_RX_OFFLOAD_SCATTER\n",
                         mtu, queue->room);
            return -EINVAL;
        }
    }
    return 0;
}

static int mtu_set(struct rte_eth_dev *dev, uint16_t mtu)
{
    int status = check_mtu(dev, mtu);

    return status != 0 ? status : set_ibuf(dev, change_max_length, &mtu);
}

static void change_enabled(struct szecard_ibuf *ibuf, const void *with)
{
    ibuf->enabled = *(const int *)with != 0;
}

/* Input and output buffer both: up or down. */
static int set_link(struct rte_eth_dev *dev, int up)
{
    struct szedata2_device *device = dev->data->dev_private;
    int status = set_ibuf(dev, change_enabled, &up);

    if (status != 0)
        return status;
    pthread_mutex_lock(&device->card_lock);
    if (szecard_set_obuf(device->card, up) != 0)
        status = error_said("setting the output buffer");
    pthread_mutex_unlock(&device->card_lock);
    return status;
}

static int link_update(struct rte_eth_dev *dev, int wait_to_complete)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct rte_eth_link link = {
        .link_speed = RTE_ETH_SPEED_NUM_100G,
        .link_duplex = RTE_ETH_LINK_FULL_DUPLEX,
        .link_autoneg = RTE_ETH_LINK_FIXED,
        .link_status = RTE_ETH_LINK_DOWN,
    };
    struct szecard_status status;

    (void)wait_to_complete;
    pthread_mutex_lock(&device->card_lock);
    if (szecard_get_status(device->card, &status) == 0 && status.ibuf.enabled && status.obuf_enabled)
        link.link_status = RTE_ETH_LINK_UP;
    pthread_mutex_unlock(&device->card_lock);
    return rte_eth_linkstatus_set(dev, &link);
}

static int dev_set_link_up(struct rte_eth_dev *dev)
{
    int status = set_link(dev, 1);

    return status != 0 ? status : (link_update(dev, 0), 0);
}

static int dev_set_link_down(struct rte_eth_dev *dev)
{
    int status = set_link(dev, 0);

    return status != 0 ? status : (link_update(dev, 0), 0);
}

static int dev_infos_get(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
    const struct szedata2_device *device = dev->data->dev_private;

    info->max_rx_queues = device->rx.count;
    info->max_tx_queues = device->tx.count;
    info->max_mac_addrs = SZECARD_MAX_ADDRESSES;
    info->min_rx_bufsize = 1;
    info->max_rx_pktlen = SZECARD_MAX_FRAME;
    info->min_mtu = RTE_ETHER_MIN_MTU;
    info->max_mtu = SZECARD_MAX_FRAME - SZEDATA2_OVERHEAD;
    info->speed_capa = RTE_ETH_LINK_SPEED_100G;
    info->dev_capa |= RTE_ETH_DEV_CAPA_FLOW_RULE_KEEP;
    info->rx_offload_capa =
        RTE_ETH_RX_OFFLOAD_SCATTER | (device->has_times ? RTE_ETH_RX_OFFLOAD_TIMESTAMP : 0);
    info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    info->default_rxportconf.burst_size = SZEDATA2_BURST;
    info->default_txportconf.burst_size = SZEDATA2_BURST;
    return 0;
}

static int fw_version_get(struct rte_eth_dev *dev, char *version, size_t size)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct szecard_design design;
    int length = 0;

    pthread_mutex_lock(&device->card_lock);
    if (szecard_get_design(device->card, &design) != 0)
        length = error_said("querying the card's design");
    pthread_mutex_unlock(&device->card_lock);
    if (length < 0)
        return length;
    length =
        snprintf(version, size, "%s%s%s", design.name, *design.version != '\0' ? " " : "", design.version);
    /* With the NUL, if it does not fit. */
    return length < 0 ? -EINVAL : (size_t)length < size ? 0 : length + 1;
}

static int dev_configure(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;
    const uint64_t offloads = dev->data->dev_conf.rxmode.offloads;
    int status = szedata2_flow_configure(dev);

    if (status != 0)
        return status;
    device->time_flag = 0;
    if (offloads & RTE_ETH_RX_OFFLOAD_TIMESTAMP &&
        rte_mbuf_dyn_rx_timestamp_register(&device->time_offset, &device->time_flag) != 0) {
        SZEDATA2_LOG(ERR, "mbufs have no room for the time of arrival: %s\n", rte_strerror(rte_errno));
        return -rte_errno;
    }
    dev->data->scattered_rx = (offloads & RTE_ETH_RX_OFFLOAD_SCATTER) != 0;
    dev->rx_pkt_burst = offloads != 0 || device->args.extbuf ? szedata2_rx_burst_full : szedata2_rx_burst;
    dev->tx_pkt_burst = szedata2_tx_burst;
    return 0;
}

/* The clock of arrival times: ns since 1970. */
static int read_clock(struct rte_eth_dev *dev, uint64_t *time)
{
    const struct szedata2_device *device = dev->data->dev_private;
    struct timespec now;

    if (!device->has_times)
        return -ENOTSUP;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    return 0;
}

static int dev_stop(struct rte_eth_dev *dev)
{
    uint16_t i;

    /* Nothing comes any more before the last is sent. */
    for (i = 0; i < dev->data->nb_rx_queues; i++)
        szedata2_rx_queue_stop(dev, i);
    for (i = 0; i < dev->data->nb_tx_queues; i++)
        szedata2_tx_queue_stop(dev, i);
    szedata2_flow_stop(dev);
    return 0;
}

/* The card may have been created again since. All functions return an error for a NULL handle. */
static int reconnect(struct szedata2_device *device)
{
    struct szecard_status status;
    int result = 0;

    pthread_mutex_lock(&device->card_lock);
    if (szecard_get_status(device->card, &status) != 0) {
        szedata_close(device->card);
        device->card = szedata_open(device->args.dev_path);
        if (device->card == NULL)
            result = error_said(device->args.dev_path);
    }
    pthread_mutex_unlock(&device->card_lock);
    return result;
}

static int dev_start(struct rte_eth_dev *dev)
{
    int status = check_mtu(dev, dev->data->mtu);
    uint16_t i;

    if (status == 0)
        status = reconnect(dev->data->dev_private);
    if (status == 0)
        status = szedata2_flow_start(dev);
    for (i = 0; status == 0 && i < dev->data->nb_rx_queues; i++) {
        const struct szedata2_rx_queue *queue = dev->data->rx_queues[i];

        if (queue == NULL || !queue->deferred_start)
            status = szedata2_rx_queue_start(dev, i);
    }
    for (i = 0; status == 0 && i < dev->data->nb_tx_queues; i++) {
        const struct szedata2_tx_queue *queue = dev->data->tx_queues[i];

        if (queue == NULL || !queue->deferred_start)
            status = szedata2_tx_queue_start(dev, i);
    }
    if (status != 0)
        dev_stop(dev);
    return status;
}

static int dev_close(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;
    uint16_t i;

    if (rte_eal_process_type() != RTE_PROC_PRIMARY)
        return 0;
    for (i = 0; i < dev->data->nb_rx_queues; i++)
        szedata2_rx_queue_release(dev, i);
    for (i = 0; i < dev->data->nb_tx_queues; i++)
        szedata2_tx_queue_release(dev, i);
    szedata2_flow_close(device);
    szedata_close(device->card);
    device->card = NULL;
    pthread_mutex_destroy(&device->card_lock);
    return 0;
}

static const struct eth_dev_ops ops = {
    .dev_configure = dev_configure,
    .dev_start = dev_start,
    .dev_stop = dev_stop,
    .dev_close = dev_close,
    .dev_set_link_up = dev_set_link_up,
    .dev_set_link_down = dev_set_link_down,
    .link_update = link_update,
    .dev_infos_get = dev_infos_get,
    .fw_version_get = fw_version_get,
    .promiscuous_enable = promiscuous_enable,
    .promiscuous_disable = promiscuous_disable,
    .allmulticast_enable = allmulticast_enable,
    .allmulticast_disable = allmulticast_disable,
    .mac_addr_set = mac_addr_set,
    .mac_addr_add = mac_addr_add,
    .mac_addr_remove = mac_addr_remove,
    .mtu_set = mtu_set,
    .read_clock = read_clock,
    .rx_queue_setup = szedata2_rx_queue_setup,
    .rx_queue_release = szedata2_rx_queue_release,
    .rx_queue_start = szedata2_rx_queue_start,
    .rx_queue_stop = szedata2_rx_queue_stop,
    .tx_queue_setup = szedata2_tx_queue_setup,
    .tx_queue_release = szedata2_tx_queue_release,
    .tx_queue_start = szedata2_tx_queue_start,
    .tx_queue_stop = szedata2_tx_queue_stop,
    .stats_get = szedata2_stats_get,
    .stats_reset = szedata2_stats_reset,
    .xstats_get = szedata2_xstats_get,
    .xstats_get_names = szedata2_xstats_get_names,
    .xstats_reset = szedata2_stats_reset,
    .flow_ops_get = szedata2_flow_ops_get,
};

/* Opens the card and finds the channels; the first counters seen are where the port's begin. */
static int open_card(struct szedata2_device *device, struct szecard_info *info)
{
    struct szecard_design design;
    int status;

    device->card = szedata_open(device->args.dev_path);
    if (device->card == NULL)
        return error_said(device->args.dev_path);
    if (device->args.extbuf && szecard_get_design(device->card, &design) != 0)
        return error_said("extbuf=1 needs a card of this version or newer");
    if (szecard_get_info(device->card, info) != 0 || szecard_get_status(device->card, &device->base) != 0)
        return error_said(device->args.dev_path);
    device->has_times = szecard_has_timestamps(device->card) == 1;
    device->seen = device->base;
    device->promiscuous = device->base.ibuf.address_check == SZECARD_CHECK_PROMISCUOUS;
    device->all_multicast = device->base.ibuf.address_check == SZECARD_CHECK_MULTICAST;
    status = szedata2_channels_of("rx_ifaces", device->args.rx_ifaces, info->receive_channels, &device->rx);
    if (status == 0)
        status =
            szedata2_channels_of("tx_ifaces", device->args.tx_ifaces, info->transmit_channels, &device->tx);
    return status;
}

static int probe(struct rte_vdev_device *vdev)
{
    struct szedata2_device *device;
    struct szecard_info info;
    struct rte_eth_dev *dev;
    int status;

    if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
        SZEDATA2_LOG(ERR, "%s: only a primary process can use a card\n", rte_vdev_device_name(vdev));
        return -ENOTSUP;
    }
    dev = rte_eth_vdev_allocate(vdev, sizeof(*device));
    if (dev == NULL)
        return -ENOMEM;
    device = dev->data->dev_private;
    status = szedata2_args_parse(rte_vdev_device_args(vdev), &device->args);
    if (status == 0)
        status = open_card(device, &info);
    if (status == 0) {
        dev->data->mac_addrs =
            rte_zmalloc("szedata2_addresses", SZECARD_MAX_ADDRESSES * sizeof(struct rte_ether_addr), 0);
        if (dev->data->mac_addrs == NULL)
            status = -ENOMEM;
    }
    if (status != 0) {
        szedata_close(device->card);
        rte_eth_dev_release_port(dev);
        return status;
    }
    memcpy(dev->data->mac_addrs[0].addr_bytes, info.address, RTE_ETHER_ADDR_LEN);
    pthread_mutex_init(&device->card_lock, NULL);
    TAILQ_INIT(&device->flows);
    dev->dev_ops = &ops;
    dev->rx_pkt_burst = szedata2_rx_burst;
    dev->tx_pkt_burst = szedata2_tx_burst;
    dev->data->promiscuous = device->promiscuous;
    dev->data->all_multicast = device->all_multicast;
    dev->data->dev_flags |= RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS;
    if (!device->args.copy)
        SZEDATA2_LOG(WARNING, "%s: copy=0: packets have no content; this is for measuring only\n",
                     rte_vdev_device_name(vdev));
    rte_eth_dev_probing_finish(dev);
    return 0;
}

static int remove_device(struct rte_vdev_device *vdev)
{
    struct rte_eth_dev *dev = rte_eth_dev_allocated(rte_vdev_device_name(vdev));

    if (dev == NULL)
        return 0; /* closed before */
    dev_close(dev);
    return rte_eth_dev_release_port(dev);
}

static struct rte_vdev_driver driver = {
    .probe = probe,
    .remove = remove_device,
};

RTE_PMD_REGISTER_VDEV(net_szedata2, driver);
RTE_PMD_REGISTER_ALIAS(net_szedata2, eth_szedata2);
RTE_PMD_REGISTER_PARAM_STRING(net_szedata2, "dev_path=<path> "
                                            "rx_ifaces=<mask> "
                                            "tx_ifaces=<mask> "
                                            "copy=<0|1> "
                                            "extbuf=<0|1>");
