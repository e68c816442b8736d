/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* libsze2 with a card whose socket SZE2_CARD names. It sends back on receive channel n what is written to transmit
 * channel n, with the metadata "from the plug"; frames that begin with "garble" it garbles. Without one the test is
 * skipped. */
#include <libsze2.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define METADATA "from the plug"

static const char *card;

static struct szedata *open_channels(__u32 rx, __u32 tx)
{
    struct szedata *sze = szedata_open(card);
    __u32 had_rx = rx, had_tx = tx;

    CHECK(sze != NULL);
    if (sze == NULL) {
        fprintf(stderr, "%s\n", szecard_error());
        exit(1);
    }
    CHECK(szedata_subscribe3(sze, &had_rx, &had_tx) == 0 && had_rx == rx && had_tx == tx);
    CHECK(szedata_start(sze) == 0);
    return sze;
}

/* Bytes that differ by number, length and place. */
static void fill(unsigned char *frame, unsigned int len, unsigned int number)
{
    unsigned int i;

    for (i = 0; i < len; i++)
        frame[i] = (unsigned char)(number * 7 + i * 3 + len);
}

static unsigned char *await_next(struct szedata *sze, unsigned int *len)
{
    unsigned char *segment;
    short events = SZEDATA_POLLRX;

    while ((segment = szedata_read_next(sze, len)) == NULL && errno == EAGAIN) {
        CHECK(szedata_poll(sze, &events, 30000) == 1 && events == SZEDATA_POLLRX);
        if (failures)
            exit(1);
    }
    return segment;
}

static int is_frame(unsigned char *segment, unsigned int len, unsigned int number, unsigned int frame_len)
{
    static unsigned char expected[65536];
    unsigned char *data, *hw_data;
    unsigned int data_len, hw_data_len;

    if (szedata_decode_packet(segment, &data, &hw_data, &data_len, &hw_data_len) != len)
        return 0;
    fill(expected, frame_len, number);
    return data_len == frame_len && memcmp(data, expected, frame_len) == 0 &&
           hw_data_len == sizeof(METADATA) - 1 && memcmp(hw_data, METADATA, hw_data_len) == 0;
}

/* Many times around the buffers, so that segments of every length lie across their ends. */
static void frames_come_back(void)
{
    static const unsigned int lengths[] = {60, 61, 1514, 9000, 64, 20000};
    struct szedata *sze = open_channels(1, 1);
    static unsigned char frame[20000];
    struct szecard_handle_counters counters;
    unsigned int number, len;

    for (number = 0; number < 600; number++) {
        unsigned int frame_len = lengths[number % 6];
        unsigned char *segment;

        fill(frame, frame_len, number);
        CHECK(szedata_prepare_and_try_write_next(sze, NULL, 0, frame, frame_len, 0) == 0);
        segment = await_next(sze, &len);
        CHECK(segment != NULL && is_frame(segment, len, number, frame_len));
        if (failures)
            exit(1);
    }
    CHECK(szedata_read_next_noblock(sze, &len) == NULL && errno == EAGAIN && len == 0);
    CHECK(szecard_get_handle_counters(sze, &counters) == 0);
    CHECK(counters.received == 600 && counters.transmitted == 600 && counters.faults == 0);
    szedata_close(sze);
}

static void channels_are_had_once(void)
{
    struct szedata *one = open_channels(3, 0), *other = szedata_open(card);
    __u32 rx = 2, tx = 0, size = 0;

    CHECK(szedata_subscribe3(other, &rx, &tx) == 0 && rx == 0 && tx == 0);
    rx = SZE2_ALL_INTERFACES;
    CHECK(szedata_subscribe3(other, &rx, &tx) == 0 && rx == 12);
    CHECK(szedata_ifaces_available(one, SZE2_DIR_RX) == 4 &&
          szedata_ifaces_available(one, SZE2_DIR_ALL) == 8);
    CHECK(szedata_get_area_size(one, SZE2_DIR_RX, 3, &size) == 0 && size == 131072);
    CHECK(szedata_get_area_size(one, SZE2_DIR_RX, 4, &size) == EINVAL);
    CHECK(szedata_get_area_numa_node(one, SZE2_DIR_RX, 0) >= 0 || errno != EINVAL);
    CHECK(szedata_get_area_numa_node(one, SZE2_DIR_RX, 2) == -1 && errno == EINVAL);
    szedata_close(one);
    rx = 2;
    CHECK(szedata_subscribe3(other, &rx, &tx) == 0 && rx == 2);
    szedata_close(other);
}

/* Reads all that is locked, over both parts. */
static unsigned int count_locked(const struct szedata_lock *lock)
{
    static unsigned char copy[131072];
    unsigned char *data, *hw_data;
    unsigned int at = 0, len = 0, data_len, hw_data_len, frames = 0;

    for (; lock != NULL; lock = lock->next) {
        memcpy(copy + len, lock->start, lock->len);
        len += lock->len;
    }
    while (at < len) {
        unsigned int segment = szedata_decode_packet(copy + at, &data, &hw_data, &data_len, &hw_data_len);

        CHECK(segment != 0 && data_len == 1001);
        if (segment == 0)
            exit(1);
        at += (segment + 7) / 8 * 8;
        frames++;
    }
    CHECK(at == len);
    return frames;
}

static void areas_are_locked(void)
{
    struct szedata *sze = open_channels(1, 1);
    const struct szedata_lock *lock, *other;
    unsigned char frame[1001], *segment;
    unsigned int i, len, two_parts_rx = 0, two_parts_tx = 0;
    short events;

    fill(frame, sizeof(frame), 0);
    CHECK(szedata_rx_lock_data(sze, 1) == NULL && errno == EAGAIN);
    for (i = 0; i < 400; i++) {
        unsigned int first;

        /* Room for two segments; one is written, over both parts. */
        segment = szedata_prepare_packet(sze, NULL, 0, frame, sizeof(frame), &len);
        lock = szedata_tx_lock_data(sze, 2 * len, 0);
        CHECK(lock != NULL && lock->area == 0);
        CHECK(lock->len + (lock->next ? lock->next->len : 0) == 2 * len);
        CHECK(szedata_tx_lock_data(sze, len, 0) == NULL && errno == EBUSY);
        CHECK(szedata_try_write_next(sze, segment, len, 0) == -1 && errno == EBUSY);
        CHECK(szedata_tx_unlock_data(sze, lock, 2 * len + 8) == EINVAL);
        CHECK(szedata_tx_unlock_data(sze, lock, 4) == EINVAL);
        two_parts_tx += lock->next != NULL;
        first = lock->len < len ? lock->len : len;
        memcpy(lock->start, segment, first);
        if (first < len)
            memcpy(lock->next->start, segment + first, len - first);
        CHECK(szedata_tx_unlock_data(sze, lock, len) == 0);
        CHECK(szedata_tx_unlock_data(sze, lock, len) == EINVAL);

        events = SZEDATA_POLLRX;
        CHECK(szedata_poll(sze, &events, 30000) == 1);
        lock = szedata_rx_lock_data(sze, SZE2_ALL_INTERFACES);
        CHECK(lock != NULL && lock->area == 0);
        if (failures)
            exit(1);
        other = szedata_rx_lock_data(sze, SZE2_ALL_INTERFACES);
        CHECK(other == NULL && errno == EBUSY);
        CHECK(szedata_read_next(sze, &len) == NULL && errno == EBUSY);
        two_parts_rx += lock->next != NULL;
        CHECK(count_locked(lock) == 1);
        CHECK(szedata_rx_unlock_data(sze, lock + 1) == EINVAL);
        CHECK(szedata_rx_unlock_data(sze, lock) == 0);
        CHECK(szedata_rx_unlock_data(sze, lock) == EINVAL);
    }
    CHECK(two_parts_rx > 0 && two_parts_tx > 0);
    CHECK(szedata_tx_lock_data(sze, 8, 1) == NULL && errno == EINVAL);
    lock = szedata_tx_lock_data(sze, 64, 0);
    CHECK(lock != NULL && szedata_tx_unlock_data(sze, lock, 0) == 0);
    szedata_close(sze);
}

/* Two channels of one handle at once, which the original mixes up. */
static void bursts_are_collected_by_channel(void)
{
    struct szedata *sze = open_channels(3, 3);
    unsigned char frame[500], *segment;
    unsigned int i, len, before = SZE2_BURST_WRITE_SIZE;

    SZE2_BURST_WRITE_SIZE = 16 * 512;
    for (i = 0; i < 15; i++) {
        fill(frame, sizeof(frame), i);
        CHECK(szedata_burst_write_next(sze, NULL, 0, frame, sizeof(frame), 0) == 0);
        CHECK(szedata_burst_write_next(sze, NULL, 0, frame, sizeof(frame), 1) == 0);
    }
    CHECK(szedata_read_next(sze, &len) == NULL && errno == EAGAIN);
    fill(frame, sizeof(frame), 15);
    CHECK(szedata_burst_write_next(sze, NULL, 0, frame, sizeof(frame), 1) == 0);
    for (i = 0; i < 16; i++) {
        segment = await_next(sze, &len);
        CHECK(segment != NULL && is_frame(segment, len, i, sizeof(frame)));
    }
    CHECK(szedata_read_next(sze, &len) == NULL && errno == EAGAIN);
    CHECK(szecard_flush(sze) == 0);
    for (i = 0; i < 15; i++) {
        segment = await_next(sze, &len);
        CHECK(segment != NULL && is_frame(segment, len, i, sizeof(frame)));
    }
    SZE2_BURST_WRITE_SIZE = before;
    szedata_close(sze);
}

static int is_odd(uint16_t len, unsigned char *metadata)
{
    static int calls;

    CHECK(len == sizeof(METADATA) - 1 && memcmp(metadata, METADATA, len) == 0);
    return calls++ % 2;
}

static void filters_skip(void)
{
    struct szedata *sze = open_channels(1, 1);
    struct szecard_handle_counters counters;
    unsigned char frame[100], *segment;
    unsigned int i, len;

    CHECK(szedata_set_filter(sze, is_odd) == 0);
    for (i = 0; i < 10; i++) {
        fill(frame, sizeof(frame), i);
        CHECK(szedata_burst_write_next(sze, NULL, 0, frame, sizeof(frame), 0) == 0);
    }
    CHECK(szecard_flush(sze) == 0);
    for (i = 0; i < 10; i += 2) {
        segment = await_next(sze, &len);
        CHECK(segment != NULL && is_frame(segment, len, i, sizeof(frame)));
    }
    CHECK(szedata_read_next(sze, &len) == NULL && errno == EAGAIN);
    CHECK(szecard_get_handle_counters(sze, &counters) == 0 && counters.filtered == 5 &&
          counters.received == 5);
    szedata_close(sze);
}

/* A full channel takes nothing, and everything again once it is read; nothing is lost. */
static void full_is_reported_and_passes(void)
{
    struct szedata *sze = open_channels(1, 1);
    unsigned char frame[1000], *segment;
    unsigned int written = 0, read = 0, len;
    short events = SZEDATA_POLLTX;
    int status;

    /* Both buffers are filled: the plug sends nothing back without room. */
    for (;;) {
        fill(frame, sizeof(frame), written);
        status = szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 0);
        if (status != 0) {
            CHECK(status == 1 && errno == EAGAIN);
            events = SZEDATA_POLLTX;
            if (szedata_poll(sze, &events, 300) == 0)
                break;
            continue;
        }
        written++;
    }
    CHECK(written > 131072 / 1024);
    for (; read < written; read++) {
        segment = await_next(sze, &len);
        CHECK(segment != NULL && is_frame(segment, len, read, sizeof(frame)));
    }
    events = SZEDATA_POLLTX;
    CHECK(szedata_poll(sze, &events, 30000) == 1 && events == SZEDATA_POLLTX);
    CHECK(szedata_try_write_next(sze, frame, 131072, 0) == -1);
    szedata_close(sze);
}

static void bursts_need_no_copy(void)
{
    struct szedata *sze = open_channels(1, 1);
    struct szecard_frame frames[8];
    uint32_t lengths[8];
    unsigned char *places[8], expected[1514];
    struct szecard_handle_counters counters;
    unsigned int round, i;
    short events;

    for (round = 0; round < 300; round++) {
        unsigned int taken = 0;

        for (i = 0; i < 8; i++)
            lengths[i] = 60 + (round * 8 + i) * 13 % 1455;
        CHECK(szecard_reserve(sze, 0, lengths, places, 8) == 8);
        for (i = 0; i < 8; i++)
            fill(places[i], lengths[i], round + i);
        CHECK(szedata_tx_lock_data(sze, 64, 0) == NULL && errno == EBUSY);
        CHECK(szecard_commit(sze, 0) == 0);
        while (taken < 8) {
            int got;

            events = SZEDATA_POLLRX;
            CHECK(szedata_poll(sze, &events, 30000) == 1);
            got = szecard_take(sze, 0, frames, 8 - taken);
            CHECK(got > 0);
            if (failures)
                exit(1);
            /* All but the last are given back, and that is taken again. */
            if (got > 1) {
                unsigned char *last = frames[got - 1].data;

                CHECK(szecard_give_back(sze, 0, (unsigned int)got - 1) == 0);
                CHECK(szecard_take(sze, 0, frames + got - 1, 1) == 1 && frames[got - 1].data == last);
            }
            for (i = 0; i < (unsigned int)got; i++) {
                fill(expected, lengths[taken + i], round + taken + i);
                CHECK(frames[i].length == lengths[taken + i]);
                /* Returned frames may be overwritten, but not before more is sent. */
                CHECK(memcmp(frames[i].data, expected, frames[i].length) == 0);
                CHECK(frames[i].metadata_length == sizeof(METADATA) - 1);
            }
            CHECK(szecard_give_back(sze, 0, 1) == 0);
            taken += (unsigned int)got;
        }
    }
    /* Collected frames go before reserved ones; other channels are not affected. */
    fill(expected, 100, 7);
    CHECK(szedata_burst_write_next(sze, NULL, 0, expected, 100, 0) == 0);
    lengths[0] = 200;
    CHECK(szecard_reserve(sze, 0, lengths, places, 1) == 1 && szecard_flush(sze) == 0);
    CHECK(szedata_burst_write_next(sze, NULL, 0, expected, 100, 0) == -1 && errno == EBUSY);
    events = SZEDATA_POLLRX;
    CHECK(szedata_poll(sze, &events, 30000) == 1 && szecard_take(sze, 0, frames, 8) == 1);
    CHECK(frames[0].length == 100 && memcmp(frames[0].data, expected, 100) == 0);
    CHECK(szecard_give_back(sze, 0, 1) == 0);
    fill(places[0], 200, 8);
    CHECK(szecard_commit(sze, 0) == 0);
    events = SZEDATA_POLLRX;
    CHECK(szedata_poll(sze, &events, 30000) == 1 && szecard_take(sze, 0, frames, 8) == 1);
    fill(expected, 200, 8);
    CHECK(frames[0].length == 200 && memcmp(frames[0].data, expected, 200) == 0);
    CHECK(szecard_give_back(sze, 0, 1) == 0);
    lengths[0] = SZECARD_MAX_FRAME + 1;
    CHECK(szecard_reserve(sze, 0, lengths, places, 1) == -1 && errno == EMSGSIZE);
    for (i = 0; i < 8; i++)
        lengths[i] = 60000;
    CHECK(szecard_reserve(sze, 0, lengths, places, 8) == 2 && szecard_commit(sze, 0) == 0);
    CHECK(szecard_get_handle_counters(sze, &counters) == 0);
    CHECK(counters.received == 2402 && counters.transmitted == 2404);
    szedata_close(sze);
}

/* Sends frames of 1000 bytes from number `first` on, and takes them. */
static void exchange(struct szedata *sze, struct szecard_frame *frames, unsigned int first,
                     unsigned int count)
{
    unsigned char frame[1000];
    unsigned int i, taken;
    short events;

    for (i = 0; i < count; i++) {
        fill(frame, sizeof(frame), first + i);
        CHECK(szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 0) == 0);
    }
    for (taken = 0; taken < count;) {
        int got = szecard_take(sze, 0, frames + taken, count - taken);

        if (got == 0) {
            events = SZEDATA_POLLRX;
            CHECK(szedata_poll(sze, &events, 30000) == 1);
        }
        CHECK(got >= 0);
        if (failures)
            exit(1);
        taken += (unsigned int)got;
    }
}

static int is_taken(const struct szecard_frame *frame, unsigned int number)
{
    unsigned char expected[1000];

    fill(expected, sizeof(expected), number);
    return frame->length == sizeof(expected) && memcmp(frame->data, expected, sizeof(expected)) == 0;
}

/* Frames stay where they are while later ones come, in a new buffer, and after the handle is closed. */
static void frames_are_held(void)
{
    struct szedata *sze = open_channels(1, 1);
    const struct szecard_buffer *hold, *second;
    struct szecard_frame frames[40], later[40], other = {NULL, NULL, 0, 0};
    unsigned int round;

    exchange(sze, frames, 0, 40);
    CHECK(szecard_give_back_before(sze, 0, &frames[30], 41) == -1 && errno == EINVAL);
    CHECK(szecard_give_back_before(sze, 0, &other, 10) == -1 && errno == EINVAL);
    CHECK(szecard_give_back_before(sze, 0, &frames[30], 10) == 0);
    CHECK(szecard_give_back_before(sze, 0, &frames[29], 10) == -1 && errno == EINVAL);
    CHECK(is_taken(&frames[30], 30) && is_taken(&frames[39], 39));
    hold = szecard_hold(sze, 0);
    CHECK(hold != NULL && szecard_renew(sze, 0) == 0);
    CHECK(szecard_renew(sze, 0) == -1 && errno == EBUSY);
    CHECK(szecard_take(sze, 0, later, 1) == 0);
    /* Several buffers full, with frames that stay in the new one as well. */
    for (round = 0; round < 20; round++) {
        exchange(sze, later, round, 40);
        CHECK(is_taken(&frames[35], 35) && is_taken(&later[39], round + 39));
        CHECK(szecard_give_back_before(sze, 0, round == 19 ? &later[38] : NULL, round == 19 ? 2 : 0) == 0);
    }
    second = szecard_hold(sze, 0);
    CHECK(second != NULL);
    szedata_close(sze);
    CHECK(is_taken(&frames[30], 30) && is_taken(&frames[39], 39) && is_taken(&later[38], 57));
    szecard_end_hold(hold);
    CHECK(is_taken(&later[39], 58));
    szecard_end_hold(second);
}

/* An invalid segment is reported and counted; other channels continue. */
static void a_garbled_buffer_is_reported(void)
{
    struct szedata *sze = open_channels(3, 3);
    struct szecard_handle_counters counters;
    unsigned char frame[100], *segment;
    unsigned int len;

    memset(frame, 'x', sizeof(frame));
    memcpy(frame, "garble", 6);
    CHECK(szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 0) == 0);
    segment = await_next(sze, &len);
    CHECK(segment == NULL && errno == EBADMSG && strstr(szecard_error(), "channel 0") != NULL);
    fill(frame, sizeof(frame), 5);
    CHECK(szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 1) == 0);
    segment = await_next(sze, &len);
    CHECK(segment != NULL && is_frame(segment, len, 5, sizeof(frame)));
    CHECK(szecard_get_handle_counters(sze, &counters) == 0 && counters.faults == 1);
    szedata_close(sze);

    sze = open_channels(1, 1);
    memcpy(frame, "garble", 6);
    CHECK(szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 0) == 0);
    CHECK(await_next(sze, &len) == NULL && errno == EBADMSG);
    CHECK(szedata_read_next(sze, &len) == NULL && errno == EBADMSG);
    szedata_close(sze);
}

/* The card stops a channel in which there are no segments; the library reports that instead of waiting. */
static void written_garbage_is_reported(void)
{
    struct szedata *sze = open_channels(0, 1);
    unsigned char frame[64];
    const struct szedata_lock *lock = szedata_tx_lock_data(sze, 64, 0);
    short events = SZEDATA_POLLTX;
    int status = 0;

    memset(frame, 0, sizeof(frame));
    CHECK(szedata_try_write_next(sze, frame, 16, 0) == -1);
    memset(lock->start, 0, 64);
    CHECK(szedata_tx_unlock_data(sze, lock, 64) == 0);
    while (status != -1)
        status = szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 0);
    CHECK(errno == EBADMSG);
    CHECK(szedata_poll(sze, &events, -1) == -1 && errno == EBADMSG);
    szedata_close(sze);
}

static void rules_are_added_and_removed(void)
{
    struct szedata *sze = szedata_open(card), *other = szedata_open(card);
    struct szecard_rule_counters counters = {1, 1};
    uint64_t first = 9, second = 9;

    CHECK(szecard_check_rule(sze, "allow 3 if tcp dport 80") == 0);
    errno = 0;
    CHECK(szecard_check_rule(sze, "allow 4 if tcp") == -1 && errno == EPERM);
    CHECK(strstr(szecard_error(), "channel 4") != NULL);
    CHECK(szecard_add_rule(sze, "allow 3 if tcp dport 80", 1, 1, &first) == 0);
    CHECK(szecard_add_rule(sze, "deny if tcp", 2, 0, &second) == 0 && second != first);
    CHECK(szecard_get_rule_counters(sze, first, &counters) == 0);
    CHECK(counters.frames == 0 && counters.bytes == 0);
    /* It is another handle's. */
    CHECK(szecard_remove_rule(other, first, NULL) == -1 && errno == EPERM);
    CHECK(szecard_remove_rule(sze, first, &counters) == 0 && szecard_remove_rule(sze, second, NULL) == 0);
    CHECK(szecard_get_rule_counters(sze, first, &counters) == -1 && errno == EPERM);
    szedata_close(other);
    szedata_close(sze);
}

static void settings_are_read_and_set(void)
{
    struct szedata *sze = szedata_open(card);
    struct szecard_status status;
    struct szecard_design design;
    struct szecard_info info;

    CHECK(szecard_get_design(sze, &design) == 0);
    CHECK(strcmp(design.name, "HANIC_100G1_LR4") == 0 && strcmp(design.version, "4.1") == 0);
    CHECK(szecard_has_timestamps(sze) == 0);
    CHECK(szecard_get_info(sze, &info) == 0 && strcmp(info.name, "plug") == 0);
    CHECK(info.receive_channels == 4 && info.transmit_buffer == 131072 && info.address[5] == 1);
    CHECK(szecard_get_status(sze, &status) == 0 && status.ibuf.enabled && status.obuf_enabled);
    CHECK(status.ibuf.nr_addresses == 1 && status.ibuf.addresses[0][0] == 2);
    CHECK(status.ibuf_counters.frames > 600 && status.receive[0].frames > 0 && !status.receive[0].running);
    CHECK(status.transmit[0].faults > 0);
    status.ibuf.address_check = SZECARD_CHECK_MULTICAST;
    status.ibuf.max_length = 1514;
    status.ibuf.nr_addresses = 2;
    memset(status.ibuf.addresses[1], 4, 6);
    CHECK(szecard_set_ibuf(sze, &status.ibuf) == 0 && szecard_set_obuf(sze, 0) == 0);
    memset(&status, 0xEE, sizeof(status));
    CHECK(szecard_get_status(sze, &status) == 0 && !status.obuf_enabled);
    CHECK(status.ibuf.address_check == SZECARD_CHECK_MULTICAST && status.ibuf.max_length == 1514);
    CHECK(status.ibuf.nr_addresses == 2 && status.ibuf.addresses[1][5] == 4);
    status.ibuf.addresses[1][0] = 1;
    CHECK(szecard_set_ibuf(sze, &status.ibuf) == -1 && errno == EINVAL);
    CHECK(szecard_clear_counters(sze) == 0 && szecard_get_status(sze, &status) == 0);
    CHECK(status.ibuf_counters.frames == 0);
    szedata_close(sze);
}

static int has_succeeded(pid_t child)
{
    int status;

    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* What a child of fork() finds of its parent's handle. */
static int use_of_parents_handle(struct szedata *sze)
{
    unsigned char frame[60] = {0};
    unsigned int len;
    short events = SZEDATA_POLLRX | SZEDATA_POLLTX;
    __u32 rx = 4, tx = 0;

    failures = 0;
    alarm(60);
    CHECK(szedata_read_next(sze, &len) == NULL && errno == EBADF);
    CHECK(strstr(szecard_error(), "a child of that process") != NULL);
    CHECK(szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 0) == -1 && errno == EBADF);
    CHECK(szedata_poll(sze, &events, -1) == -1 && errno == EBADF);
    CHECK(szedata_rx_lock_data(sze, 1) == NULL && errno == EBADF);
    CHECK(szedata_tx_lock_data(sze, 60, 0) == NULL && errno == EBADF);
    CHECK(szedata_subscribe3(sze, &rx, &tx) == EBADF);
    CHECK(szedata_start(sze) == EBADF);
    szedata_close(sze);
    szedata_close(open_channels(2, 2));
    return CHECK_RESULT();
}

static void handles_are_their_processs(void)
{
    struct szedata *sze = open_channels(1, 1), *other;
    unsigned char frame[100], *segment;
    unsigned int number, len;
    __u32 rx, tx = 0;
    int ends[2];
    pid_t child;

    /* The child finds a segment half read, and collected ones. */
    for (number = 0; number < 3; number++) {
        fill(frame, sizeof(frame), number);
        CHECK(szedata_prepare_and_try_write_next(sze, NULL, 0, frame, sizeof(frame), 0) == 0);
    }
    segment = await_next(sze, &len);
    child = fork();
    if (child == 0)
        _exit(use_of_parents_handle(sze));
    CHECK(has_succeeded(child));
    CHECK(segment != NULL && is_frame(segment, len, 0, sizeof(frame)));
    for (number = 1; number < 3; number++) {
        segment = await_next(sze, &len);
        CHECK(segment != NULL && is_frame(segment, len, number, sizeof(frame)));
    }
    child = fork();
    if (child == 0)
        execlp("true", "true", (char *)NULL);
    CHECK(has_succeeded(child));
    szedata_close(sze);

    /* A process that ends without szedata_close(), and whose child lives on. */
    if (pipe(ends) != 0)
        exit(1);
    child = fork();
    if (child == 0) {
        sze = open_channels(1, 0);
        if (fork() == 0) {
            close(ends[1]);
            _exit(read(ends[0], frame, 1) == 0 ? 0 : 1);
        }
        _exit(CHECK_RESULT());
    }
    CHECK(has_succeeded(child));
    other = szedata_open(card);
    do {
        sched_yield();
        rx = 1;
        CHECK(szedata_subscribe3(other, &rx, &tx) == 0);
    } while (rx == 0 && failures == 0);
    szedata_close(other);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    card = getenv("SZE2_CARD");
    if (card == NULL) {
        fprintf(stderr, "skipped: SZE2_CARD names no card\n");
        return 77;
    }
    frames_come_back();
    channels_are_had_once();
    areas_are_locked();
    bursts_are_collected_by_channel();
    filters_skip();
    full_is_reported_and_passes();
    bursts_need_no_copy();
    frames_are_held();
    a_garbled_buffer_is_reported();
    written_garbage_is_reported();
    rules_are_added_and_removed();
    settings_are_read_and_set();
    handles_are_their_processs();
    return CHECK_RESULT();
}
