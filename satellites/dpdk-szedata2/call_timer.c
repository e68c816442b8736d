/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Times the calls into a port's driver, in programs that are not changed for it: --vdev ringroad_call_timer,port=NAME,
 * behind the --vdev of the port, whichever driver that has. The counts are read from DPDK's telemetry, as /call_timer.
 * testpmd's own cycles contain its work around the calls: it makes and frees mbufs, and writes headers.
 */
#include "szedata2.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <bus_vdev_driver.h>
#include <rte_cycles.h>
#include <rte_kvargs.h>
#include <rte_lcore.h>
#include <rte_telemetry.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#    define rte_tel_data_add_dict_uint rte_tel_data_add_dict_u64
#endif

/* Cycles of a call for each of its frames are told apart by halves, up to 4096; more count as that many. */
#define STEPS_PER_CYCLE 2
#define STEPS           (4096 * STEPS_PER_CYCLE)

/* Calls of one direction, by one thread: those that returned frames, or took all that they were given. */
struct calls {
    uint64_t calls, frames;
    uint64_t frames_by_step[STEPS + 1];
};

struct thread_counts {
    struct calls receive, transmit;
    uint64_t offered, refused; /* frames given to the driver, and those of them that it did not take */
} __rte_cache_aligned;

static struct thread_counts counts[RTE_MAX_LCORE];

/* The timed port: its own operations and burst functions. */
static struct {
    const struct eth_dev_ops *ops;
    struct eth_dev_ops with_timer;
    eth_rx_burst_t receive;
    eth_tx_burst_t transmit;
} timed;

/* Counts of this thread. Threads without a number, which run no forwarding, share the last. */
static inline struct thread_counts *own_counts(void)
{
    return &counts[RTE_MIN(rte_lcore_id(), (unsigned int)RTE_MAX_LCORE - 1)];
}

static inline void count(struct calls *calls, uint64_t cycles, uint16_t frames)
{
    uint64_t step = cycles * STEPS_PER_CYCLE / frames;

    calls->calls++;
    calls->frames += frames;
    calls->frames_by_step[RTE_MIN(step, (uint64_t)STEPS)] += frames;
}

static uint16_t timed_receive(void *queue, struct rte_mbuf **mbufs, uint16_t wanted)
{
    uint64_t start = rte_rdtsc();
    uint16_t received = timed.receive(queue, mbufs, wanted);
    uint64_t cycles = rte_rdtsc() - start;

    if (received > 0)
        count(&own_counts()->receive, cycles, received);
    return received;
}

static uint16_t timed_transmit(void *queue, struct rte_mbuf **mbufs, uint16_t offered)
{
    uint64_t start = rte_rdtsc();
    uint16_t taken = timed.transmit(queue, mbufs, offered);
    uint64_t cycles = rte_rdtsc() - start;
    struct thread_counts *own = own_counts();

    own->offered += offered;
    own->refused += (uint64_t)(offered - taken);
    /* A call that found no room for all did work for frames that it did not take. */
    if (taken == offered)
        count(&own->transmit, cycles, taken);
    return taken;
}

/* The driver chooses its burst functions before or at the start. */
static int start_timed(struct rte_eth_dev *dev)
{
    int status = timed.ops->dev_start(dev);

    if (status != 0)
        return status;
    if (dev->rx_pkt_burst != timed_receive)
        timed.receive = dev->rx_pkt_burst;
    if (dev->tx_pkt_burst != timed_transmit)
        timed.transmit = dev->tx_pkt_burst;
    dev->rx_pkt_burst = timed_receive;
    dev->tx_pkt_burst = timed_transmit;
    return 0;
}

/* Adds up the calls of all threads. Returns the median cycles for a frame, since this was asked the last time: a call
 * in which another program had the processor, or the hypervisor, does not count for more than any other. */
static uint64_t sum_up(struct calls *sum, uint64_t *before, size_t direction)
{
    uint64_t frames = 0, half, step;
    unsigned int thread;

    memset(sum, 0, sizeof(*sum));
    for (thread = 0; thread < RTE_MAX_LCORE; thread++) {
        const struct calls *calls = RTE_PTR_ADD(&counts[thread], direction);

        sum->calls += calls->calls;
        sum->frames += calls->frames;
        for (step = 0; calls->calls > 0 && step <= STEPS; step++)
            sum->frames_by_step[step] += calls->frames_by_step[step];
    }
    for (step = 0; step <= STEPS; step++) {
        uint64_t now = sum->frames_by_step[step];

        sum->frames_by_step[step] -= before[step];
        before[step] = now;
        frames += sum->frames_by_step[step];
    }
    for (half = 0, step = 0; step < STEPS && half + sum->frames_by_step[step] < (frames + 1) / 2; step++)
        half += sum->frames_by_step[step];
    return step;
}

static int tell(const char *command, const char *parameters, struct rte_tel_data *answer)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t received_before[STEPS + 1], transmitted_before[STEPS + 1];
    static struct calls receive, transmit;
    uint64_t receive_steps, transmit_steps, offered = 0, refused = 0;
    unsigned int thread;

    (void)command;
    (void)parameters;
    pthread_mutex_lock(&one_at_a_time);
    receive_steps = sum_up(&receive, received_before, offsetof(struct thread_counts, receive));
    transmit_steps = sum_up(&transmit, transmitted_before, offsetof(struct thread_counts, transmit));
    for (thread = 0; thread < RTE_MAX_LCORE; thread++) {
        offered += counts[thread].offered;
        refused += counts[thread].refused;
    }
    rte_tel_data_start_dict(answer);
    rte_tel_data_add_dict_uint(answer, "rx_calls", receive.calls);
    rte_tel_data_add_dict_uint(answer, "rx_frames", receive.frames);
    rte_tel_data_add_dict_uint(answer, "rx_half_cycles", receive_steps);
    rte_tel_data_add_dict_uint(answer, "tx_calls", transmit.calls);
    rte_tel_data_add_dict_uint(answer, "tx_frames", transmit.frames);
    rte_tel_data_add_dict_uint(answer, "tx_half_cycles", transmit_steps);
    rte_tel_data_add_dict_uint(answer, "tx_offered", offered);
    rte_tel_data_add_dict_uint(answer, "tx_refused", refused);
    pthread_mutex_unlock(&one_at_a_time);
    return 0;
}

/* Finds the port of this name. */
static int find_port(const char *key, const char *name, void *place)
{
    struct rte_eth_dev **dev = place;

    (void)key;
    *dev = name == NULL ? NULL : rte_eth_dev_allocated(name);
    return 0;
}

static int probe(struct rte_vdev_device *vdev)
{
    static const char *const keys[] = {"port", NULL};
    struct rte_kvargs *given = rte_kvargs_parse(rte_vdev_device_args(vdev), keys);
    struct rte_eth_dev *dev = NULL;

    if (given != NULL)
        rte_kvargs_process(given, "port", find_port, &dev);
    rte_kvargs_free(given);
    if (dev == NULL) {
        SZEDATA2_LOG(ERR, "%s: port=NAME must name a device that was given before\n",
                     rte_vdev_device_name(vdev));
        return -EINVAL;
    }
    if (timed.ops != NULL) {
        SZEDATA2_LOG(ERR, "%s: another port is timed already\n", rte_vdev_device_name(vdev));
        return -EBUSY;
    }
    timed.ops = dev->dev_ops;
    timed.with_timer = *timed.ops;
    timed.with_timer.dev_start = start_timed;
    dev->dev_ops = &timed.with_timer;
    return rte_telemetry_register_cmd("/call_timer", tell,
                                      "Calls into the driver of the timed port, their frames and cycles");
}

/* The port stays timed as long as it lives: its burst functions may be running. */
static int leave(struct rte_vdev_device *vdev)
{
    (void)vdev;
    return 0;
}

static struct rte_vdev_driver call_timer = {.probe = probe, .remove = leave};

RTE_PMD_REGISTER_VDEV(ringroad_call_timer, call_timer);
RTE_PMD_REGISTER_PARAM_STRING(ringroad_call_timer, "port=<name>");
