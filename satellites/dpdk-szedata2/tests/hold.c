/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A DPDK program that keeps frames as long as it is told to: hold DEVICE_ARGUMENTS [times]. It reads commands, one a
 * line, and answers each with a line:
 *
 *   take N      receives N frames and keeps them, as numbers 0 and up
 *   pass N      receives N frames and frees them at once
 *   relay N     receives N frames, which another thread frees some time later
 *   show I      the frame of a number: its length, whether its buffer is external, its time, its bytes
 *   free I      frees the mbuf of a number
 *   drop PORT   drops UDP packets to a port by a flow rule, which counts them
 *   dropped     the number of those
 *   count NAME  an extended statistic
 *   clock       the device's clock
 *   features    each feature of the device, with the name that DPDK's feature matrix has for it
 *   stop, start the port
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ethdev_driver.h>
#include <rte_eal.h>
#include <rte_flow.h>
#include <rte_mbuf_dyn.h>
#include <rte_pause.h>
#include <rte_ring.h>

#define MBUFS      8191
#define MBUF_CACHE 250
#define MOST_HELD  4096
#define MOST_STATS 256

static struct rte_mbuf *held[MOST_HELD];
static unsigned int nr_held;
static struct rte_ring *relayed;
static cpu_set_t all_cpus; /* before DPDK chose one for the main thread */
static int time_offset = -1;
static uint64_t time_flag;
static struct rte_flow *drop_rule;
static const struct rte_flow_action drop_actions[] = {
    {RTE_FLOW_ACTION_TYPE_COUNT, NULL}, {RTE_FLOW_ACTION_TYPE_DROP, NULL}, {RTE_FLOW_ACTION_TYPE_END, NULL}};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void start(const char *device_arguments, int wants_times)
{
    struct rte_eth_conf settings = {.rxmode.offloads = wants_times ? RTE_ETH_RX_OFFLOAD_TIMESTAMP : 0};
    struct rte_mempool *pool;
    char device[512];
    char *arguments[] = {"hold",
                         "--no-huge",
                         "--no-shconf",
                         "--no-pci",
                         "--no-telemetry",
                         "--vdev",
                         device,
                         "--log-level=4",
                         "-m",
                         "64",
                         "-l",
                         "0",
                         NULL};

    snprintf(device, sizeof(device), "net_szedata20,%s", device_arguments);
    if (rte_eal_init((int)RTE_DIM(arguments) - 1, arguments) < 0)
        fail("starting DPDK", rte_strerror(rte_errno));
    pool = rte_pktmbuf_pool_create("frames", MBUFS, MBUF_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (pool == NULL)
        fail("making mbufs", rte_strerror(rte_errno));
    if (rte_eth_dev_configure(0, 1, 0, &settings) != 0 ||
        rte_eth_rx_queue_setup(0, 0, 0, SOCKET_ID_ANY, NULL, pool) != 0 || rte_eth_dev_start(0) != 0)
        fail("starting the device", device);
    if (wants_times) {
        time_offset = rte_mbuf_dynfield_lookup(RTE_MBUF_DYNFIELD_TIMESTAMP_NAME, NULL);
        time_flag = RTE_BIT64(rte_mbuf_dynflag_lookup(RTE_MBUF_DYNFLAG_RX_TIMESTAMP_NAME, NULL));
    }
}

/* Frees what comes, beside the thread that receives. */
static void *free_relayed(void *ring)
{
    void *mbufs[8];

    pthread_setaffinity_np(pthread_self(), sizeof(all_cpus), &all_cpus);
    for (;;) {
        unsigned int got = rte_ring_sc_dequeue_burst(ring, mbufs, RTE_DIM(mbufs), NULL);

        rte_pktmbuf_free_bulk((struct rte_mbuf **)mbufs, got);
        if (got == 0)
            usleep(100); /* leaves the processor to the thread that receives */
    }
    return NULL;
}

static void start_relay(void)
{
    pthread_t thread;

    relayed = rte_ring_create("relayed", MBUFS + 1, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (relayed == NULL || pthread_create(&thread, NULL, free_relayed, relayed) != 0)
        fail("starting the second thread", rte_strerror(rte_errno));
    pthread_detach(thread);
}

static void receive(unsigned int wanted, char what)
{
    struct rte_mbuf *mbufs[32];
    unsigned int received = 0;

    if (what == 't' && wanted > MOST_HELD - nr_held)
        fail("take", "so many frames cannot be kept");
    while (received < wanted) {
        uint16_t got = rte_eth_rx_burst(0, 0, mbufs, (uint16_t)RTE_MIN(wanted - received, RTE_DIM(mbufs)));

        if (what == 't') {
            memcpy(&held[nr_held], mbufs, got * sizeof(*mbufs));
            nr_held += got;
        } else if (what == 'r') {
            /* There is room for every mbuf. */
            rte_ring_sp_enqueue_bulk(relayed, (void **)mbufs, got, NULL);
        } else {
            rte_pktmbuf_free_bulk(mbufs, got);
        }
        received += got;
        rte_pause();
    }
}

static void show(const struct rte_mbuf *mbuf)
{
    uint64_t time = 0;
    uint32_t i;

    if (time_offset >= 0 && mbuf->ol_flags & time_flag)
        time = *RTE_MBUF_DYNFIELD(mbuf, time_offset, const rte_mbuf_timestamp_t *);
    printf("frame %u %s %" PRIu64 " ", mbuf->pkt_len, RTE_MBUF_HAS_EXTBUF(mbuf) ? "external" : "copied",
           time);
    for (i = 0; i < mbuf->data_len; i++)
        printf("%02x", rte_pktmbuf_mtod(mbuf, const uint8_t *)[i]);
    printf("\n");
}

static void count(const char *name)
{
    struct rte_eth_xstat_name names[MOST_STATS];
    struct rte_eth_xstat values[MOST_STATS];
    int i, nr = rte_eth_xstats_get_names(0, names, MOST_STATS);

    if (nr > MOST_STATS || rte_eth_xstats_get(0, values, MOST_STATS) != nr)
        fail("count", "the statistics cannot be read");
    for (i = 0; i < nr; i++) {
        if (strcmp(names[i].name, name) == 0)
            printf("%s %" PRIu64 "\n", name, values[i].value);
    }
}

static void drop_udp(uint16_t port)
{
    const struct rte_flow_attr attr = {.ingress = 1};
    const struct rte_flow_item_udp spec = {.hdr.dst_port = rte_cpu_to_be_16(port)};
    const struct rte_flow_item_udp mask = {.hdr.dst_port = UINT16_MAX};
    const struct rte_flow_item pattern[] = {{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask},
                                            {.type = RTE_FLOW_ITEM_TYPE_END}};
    struct rte_flow_error error;

    drop_rule = rte_flow_create(0, &attr, pattern, drop_actions, &error);
    if (drop_rule == NULL)
        fail("drop", error.message);
}

static uint64_t dropped(void)
{
    struct rte_flow_query_count counters = {.reset = 0};
    struct rte_flow_error error;

    if (rte_flow_query(0, drop_rule, &drop_actions[0], &counters, &error) != 0)
        fail("dropped", error.message);
    return counters.hits;
}

static bool can_flow(const struct rte_flow_item *pattern, const struct rte_flow_action *actions)
{
    const struct rte_flow_attr attr = {.ingress = 1};
    struct rte_flow_error error;

    return rte_flow_validate(0, &attr, pattern, actions, &error) == 0;
}

/* Items and actions of flow rules, by what the driver accepts. */
static void flow_features(void)
{
    static const uint16_t queue = 0;
    static const struct rte_flow_action_queue to_queue = {.index = 0};
    static const struct rte_flow_action_rss to_queues = {.queue_num = 1, .queue = &queue};
    static const struct {
        const char *name;
        enum rte_flow_item_type type;
    } items[] = {
        {"any", RTE_FLOW_ITEM_TYPE_ANY},           {"arp_eth_ipv4", RTE_FLOW_ITEM_TYPE_ARP_ETH_IPV4},
        {"esp", RTE_FLOW_ITEM_TYPE_ESP},           {"eth", RTE_FLOW_ITEM_TYPE_ETH},
        {"geneve", RTE_FLOW_ITEM_TYPE_GENEVE},     {"gre", RTE_FLOW_ITEM_TYPE_GRE},
        {"gtpu", RTE_FLOW_ITEM_TYPE_GTPU},         {"icmp", RTE_FLOW_ITEM_TYPE_ICMP},
        {"icmp6", RTE_FLOW_ITEM_TYPE_ICMP6},       {"invert", RTE_FLOW_ITEM_TYPE_INVERT},
        {"ipv4", RTE_FLOW_ITEM_TYPE_IPV4},         {"ipv6", RTE_FLOW_ITEM_TYPE_IPV6},
        {"ipv6_ext", RTE_FLOW_ITEM_TYPE_IPV6_EXT}, {"mark", RTE_FLOW_ITEM_TYPE_MARK},
        {"mpls", RTE_FLOW_ITEM_TYPE_MPLS},         {"raw", RTE_FLOW_ITEM_TYPE_RAW},
        {"sctp", RTE_FLOW_ITEM_TYPE_SCTP},         {"tcp", RTE_FLOW_ITEM_TYPE_TCP},
        {"udp", RTE_FLOW_ITEM_TYPE_UDP},           {"vlan", RTE_FLOW_ITEM_TYPE_VLAN},
        {"vxlan", RTE_FLOW_ITEM_TYPE_VXLAN},
    };
    static const struct {
        const char *name;
        struct rte_flow_action action;
    } actions[] = {
        {"count", {RTE_FLOW_ACTION_TYPE_COUNT, NULL}},
        {"drop", {RTE_FLOW_ACTION_TYPE_DROP, NULL}},
        {"flag", {RTE_FLOW_ACTION_TYPE_FLAG, NULL}},
        {"of_pop_vlan", {RTE_FLOW_ACTION_TYPE_OF_POP_VLAN, NULL}},
        {"passthru", {RTE_FLOW_ACTION_TYPE_PASSTHRU, NULL}},
        {"queue", {RTE_FLOW_ACTION_TYPE_QUEUE, &to_queue}},
        {"rss", {RTE_FLOW_ACTION_TYPE_RSS, &to_queues}},
    };
    const struct rte_flow_action drop[] = {{RTE_FLOW_ACTION_TYPE_DROP, NULL},
                                           {RTE_FLOW_ACTION_TYPE_END, NULL}};
    const struct rte_flow_item all[] = {{.type = RTE_FLOW_ITEM_TYPE_END}};

    for (size_t i = 0; i < RTE_DIM(items); i++) {
        const struct rte_flow_item pattern[] = {{.type = items[i].type}, {.type = RTE_FLOW_ITEM_TYPE_END}};

        if (can_flow(pattern, drop))
            printf("feature rte_flow items: %s\n", items[i].name);
    }
    for (size_t i = 0; i < RTE_DIM(actions); i++) {
        /* A counter does not decide on a frame. */
        const bool counts = actions[i].action.type == RTE_FLOW_ACTION_TYPE_COUNT;
        const struct rte_flow_action list[] = {actions[i].action, drop[counts ? 0 : 1], drop[1]};

        if (can_flow(all, list))
            printf("feature rte_flow actions: %s\n", actions[i].name);
    }
}

/* Features are defined in DPDK's "Features Overview": by an operation of the driver, or by what it reports. */
static void features(void)
{
    const struct rte_eth_dev *dev = &rte_eth_devices[0];
    const struct eth_dev_ops *ops = dev->dev_ops;
    struct rte_eth_dev_info info;

    if (rte_eth_dev_info_get(0, &info) != 0)
        fail("features", "the device does not report them");

    const struct {
        const char *name;
        bool is_there;
    } all[] = {
        {"Speed capabilities", info.speed_capa != 0},
        {"Link status", ops->link_update != NULL},
        {"Link status event", dev->data->dev_flags & RTE_ETH_DEV_INTR_LSC},
        {"Removal event", dev->data->dev_flags & RTE_ETH_DEV_INTR_RMV},
        {"Rx interrupt", ops->rx_queue_intr_enable != NULL},
        {"Lock-free Tx queue", info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MT_LOCKFREE},
        {"Fast mbuf free", info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE},
        {"Free Tx mbuf on demand", ops->tx_done_cleanup != NULL},
        {"Queue start/stop", ops->rx_queue_start != NULL && ops->tx_queue_start != NULL},
        {"Runtime Rx queue setup", info.dev_capa & RTE_ETH_DEV_CAPA_RUNTIME_RX_QUEUE_SETUP},
        {"Runtime Tx queue setup", info.dev_capa & RTE_ETH_DEV_CAPA_RUNTIME_TX_QUEUE_SETUP},
        {"Shared Rx queue", info.dev_capa & RTE_ETH_DEV_CAPA_RXQ_SHARE},
        {"Burst mode info", ops->rx_burst_mode_get != NULL},
        {"Power mgmt address monitor", ops->get_monitor_addr != NULL},
        {"MTU update", ops->mtu_set != NULL},
        {"Buffer split on Rx", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT},
        {"Scattered Rx", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER},
        {"LRO", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TCP_LRO},
        {"TSO", info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_TSO},
        {"Promiscuous mode", ops->promiscuous_enable != NULL},
        {"Allmulticast mode", ops->allmulticast_enable != NULL},
        {"Unicast MAC filter", ops->mac_addr_add != NULL},
        {"Multicast MAC filter", ops->set_mc_addr_list != NULL},
        {"RSS hash", info.flow_type_rss_offloads != 0},
        {"RSS key update", ops->rss_hash_update != NULL},
        {"RSS reta update", ops->reta_update != NULL},
        {"VLAN filter", ops->vlan_filter_set != NULL},
        {"Flow control", ops->flow_ctrl_set != NULL},
        {"CRC offload", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_KEEP_CRC},
        {"VLAN offload", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP},
        {"FEC", ops->fec_set != NULL},
        {"L3 checksum offload", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM},
        {"L4 checksum offload", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM},
        {"Timestamp offload", info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP},
        {"Packet type parsing", ops->dev_supported_ptypes_get != NULL},
        {"Timesync", ops->timesync_enable != NULL},
        {"Rx descriptor status", dev->rx_descriptor_status != NULL},
        {"Tx descriptor status", dev->tx_descriptor_status != NULL},
        {"Basic stats", ops->stats_get != NULL},
        {"Extended stats", ops->xstats_get != NULL},
        {"Stats per queue", dev->data->dev_flags & RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS},
        {"FW version", ops->fw_version_get != NULL},
        {"EEPROM dump", ops->get_eeprom != NULL},
        {"Module EEPROM dump", ops->get_module_eeprom != NULL},
        {"Registers dump", ops->get_reg != NULL},
        {"LED", ops->dev_led_on != NULL},
    };
    for (size_t i = 0; i < RTE_DIM(all); i++) {
        if (all[i].is_there)
            printf("feature %s\n", all[i].name);
    }
    flow_features();
    printf("done\n");
}

static void carry_out(const char *command, const char *argument)
{
    unsigned long number = strtoul(argument, NULL, 10);
    uint64_t time = 0;

    if (strcmp(command, "take") == 0 || strcmp(command, "pass") == 0 || strcmp(command, "relay") == 0) {
        receive((unsigned int)number, *command);
        printf("done\n");
    } else if (strcmp(command, "show") == 0 && number < nr_held && held[number] != NULL) {
        show(held[number]);
    } else if (strcmp(command, "free") == 0 && number < nr_held) {
        rte_pktmbuf_free(held[number]);
        held[number] = NULL;
        printf("done\n");
    } else if (strcmp(command, "features") == 0) {
        features();
    } else if (strcmp(command, "drop") == 0) {
        drop_udp((uint16_t)number);
        printf("done\n");
    } else if (strcmp(command, "dropped") == 0 && drop_rule != NULL) {
        printf("dropped %" PRIu64 "\n", dropped());
    } else if (strcmp(command, "count") == 0) {
        count(argument);
    } else if (strcmp(command, "clock") == 0 && rte_eth_read_clock(0, &time) == 0) {
        printf("clock %" PRIu64 "\n", time);
    } else if (strcmp(command, "stop") == 0 && rte_eth_dev_stop(0) == 0) {
        printf("done\n");
    } else if (strcmp(command, "start") == 0 && rte_eth_dev_start(0) == 0) {
        printf("done\n");
    } else {
        fail(command, "this cannot be done");
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[256], command[16], argument[128];

    if (argc < 2)
        fail("usage", "hold DEVICE_ARGUMENTS [times]");
    if (sched_getaffinity(0, sizeof(all_cpus), &all_cpus) != 0)
        fail("finding the processors", strerror(errno));
    start(argv[1], argc > 2 && strcmp(argv[2], "times") == 0);
    start_relay();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        *argument = '\0';
        if (sscanf(line, "%15s %127s", command, argument) >= 1)
            carry_out(command, argument);
    }
    return EXIT_SUCCESS;
}
