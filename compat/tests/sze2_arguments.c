/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* libsze2's results for invalid arguments, and without a card. */
#include <libsze2.h>
#include <errno.h>
#include <stdlib.h>

#include "check.h"

#define REFUSED(call, answer)                         \
    do {                                              \
        errno = 0;                                    \
        CHECK((call) == (answer) && errno == EINVAL); \
    } while (0)

static void null_is_refused(void)
{
    struct szedata *dummy = szedata_open_dummy();
    unsigned char segment[80], *data, *hw_data;
    unsigned int len, hw_len;
    __u32 rx = 1, tx = 0;
    short events = SZEDATA_POLLRX;
    struct szecard_frame frame;
    struct szecard_status status;
    struct szecard_ibuf ibuf;
    uint64_t number;

    memset(segment, 0, sizeof(segment));
    memset(&ibuf, 0, sizeof(ibuf));
    REFUSED(szedata_open(NULL), NULL);
    szedata_close(NULL);
    szedata_close_dummy(NULL);
    REFUSED(szedata_subscribe3(NULL, &rx, &tx), EINVAL);
    REFUSED(szedata_subscribe3(dummy, NULL, &tx), EINVAL);
    REFUSED(szedata_subscribe3(dummy, &rx, NULL), EINVAL);
    rx = 0;
    REFUSED(szedata_subscribe3(dummy, &rx, &tx), EINVAL);
    REFUSED(szedata_subscribe(dummy, &rx, &tx, 0, 0), EINVAL);
    REFUSED(szedata_start(NULL), EINVAL);
    REFUSED(szedata_ifaces_available(NULL, SZE2_DIR_RX), -1);
    REFUSED(szedata_ifaces_available(dummy, (enum sze2_dir)3), -1);
    REFUSED(szedata_poll(NULL, &events, 0), -1);
    REFUSED(szedata_poll(dummy, NULL, 0), -1);
    events = 0x40;
    REFUSED(szedata_poll(dummy, &events, 0), -1);
    REFUSED(szedata_read_next(NULL, &len), NULL);
    REFUSED(szedata_read_next(dummy, NULL), NULL);
    REFUSED(szedata_read_next_noblock(dummy, NULL), NULL);
    REFUSED(szedata_rx_lock_data(NULL, 1), NULL);
    REFUSED(szedata_rx_unlock_data(dummy, NULL), EINVAL);
    REFUSED(szedata_tx_lock_data(NULL, 8, 0), NULL);
    REFUSED(szedata_tx_lock_data(dummy, 0, 0), NULL);
    REFUSED(szedata_tx_unlock_data(dummy, NULL, 0), EINVAL);
    REFUSED(szedata_set_filter(dummy, NULL), -1);
    REFUSED(szedata_decode_packet(NULL, &data, &hw_data, &len, &hw_len), 0);
    segment[0] = 16;
    REFUSED(szedata_decode_packet(segment, NULL, &hw_data, &len, &hw_len), 0);
    REFUSED(szedata_decode_packet(segment, &data, NULL, &len, &hw_len), 0);
    REFUSED(szedata_decode_packet(segment, &data, &hw_data, NULL, &hw_len), 0);
    REFUSED(szedata_decode_packet(segment, &data, &hw_data, &len, NULL), 0);
    REFUSED(szedata_prepare_packet(NULL, NULL, 0, segment, 8, &len), NULL);
    REFUSED(szedata_prepare_packet(dummy, NULL, 1, segment, 8, &len), NULL);
    REFUSED(szedata_prepare_packet(dummy, NULL, 0, NULL, 8, &len), NULL);
    REFUSED(szedata_prepare_packet(dummy, NULL, 0, segment, 8, NULL), NULL);
    REFUSED(szedata_try_write_next(NULL, segment, 16, 0), -1);
    REFUSED(szedata_try_write_next(dummy, NULL, 16, 0), -1);
    REFUSED(szedata_try_write_next(dummy, segment, 15, 0), -2);
    REFUSED(szedata_prepare_and_try_write_next(dummy, NULL, 0, NULL, 8, 0), -1);
    REFUSED(szedata_burst_write_next(dummy, NULL, 4, segment, 8, 0), -1);
    REFUSED(szecard_take(dummy, 0, NULL, 1), -1);
    REFUSED(szecard_take(dummy, 32, &frame, 1), -1);
    REFUSED(szecard_take(NULL, 0, &frame, 1), -1);
    REFUSED(szecard_give_back(dummy, 0x10000, 1), -1);
    REFUSED(szecard_give_back_before(NULL, 0, &frame, 1), -1);
    REFUSED(szecard_give_back_before(dummy, 32, &frame, 1), -1);
    REFUSED(szecard_hold(NULL, 0), NULL);
    REFUSED(szecard_hold(dummy, 32), NULL);
    REFUSED(szecard_renew(NULL, 0), -1);
    REFUSED(szecard_renew(dummy, 32), -1);
    szecard_end_hold(NULL);
    REFUSED(szecard_get_design(NULL, NULL), -1);
    REFUSED(szecard_has_timestamps(NULL), -1);
    REFUSED(szecard_reserve(dummy, 0, NULL, &data, 1), -1);
    REFUSED(szecard_reserve(dummy, 0, &len, NULL, 1), -1);
    REFUSED(szecard_commit(NULL, 0), -1);
    REFUSED(szecard_flush(NULL), -1);
    REFUSED(szecard_get_info(NULL, NULL), -1);
    REFUSED(szecard_get_status(NULL, &status), -1);
    REFUSED(szecard_set_ibuf(dummy, NULL), -1);
    ibuf.nr_addresses = 33;
    REFUSED(szecard_set_ibuf(dummy, &ibuf), -1);
    ibuf.nr_addresses = 0;
    ibuf.address_check = 4;
    REFUSED(szecard_set_ibuf(dummy, &ibuf), -1);
    CHECK(strstr(szecard_error(), "address check 4") != NULL);
    REFUSED(szecard_check_rule(dummy, NULL), -1);
    REFUSED(szecard_check_rule(NULL, "deny if tcp"), -1);
    REFUSED(szecard_add_rule(dummy, "deny if tcp", 0, 0, NULL), -1);
    REFUSED(szecard_add_rule(dummy, NULL, 0, 0, &number), -1);
    REFUSED(szecard_add_rule(dummy, "deny if \xff", 0, 0, &number), -1);
    REFUSED(szecard_remove_rule(NULL, 0, NULL), -1);
    REFUSED(szecard_get_rule_counters(NULL, 0, NULL), -1);
    REFUSED(szecard_get_handle_counters(dummy, NULL), -1);
    szedata_close_dummy(dummy);
}

static void without_a_card_there_is_none(void)
{
    struct szedata *dummy = szedata_open_dummy();
    __u32 rx = 1, tx = 0;
    unsigned int len;

    CHECK(szedata_open("/nonexistent/szedataII0") == NULL && errno == ENOENT);
    CHECK(strstr(szecard_error(), "/nonexistent/szedataII0") != NULL);
    CHECK(szedata_open("/dev/null") == NULL && errno == ECONNREFUSED);
    CHECK(szedata_subscribe3(dummy, &rx, &tx) == ENODEV);
    CHECK(szedata_start(dummy) == ENODEV);
    CHECK(szedata_read_next(dummy, &len) == NULL && errno == ENODEV && len == 0);
    CHECK(szedata_get_area_numa_node(dummy, SZE2_DIR_RX, 0) == -1);
    CHECK(szecard_set_obuf(dummy, 1) == -1 && errno == ENODEV);
    szedata_close_dummy(dummy);
}

static void segments_are_made_and_read(void)
{
    static const struct {
        unsigned int hw_len, len, segment, occupied, offset;
    } rows[] = {{0, 60, 68, 72, 8},
                {0, 1514, 1522, 1528, 8},
                {12, 60, 76, 80, 16},
                {5, 3, 19, 24, 16},
                {0, 0, 8, 8, 8}};
    struct szedata *dummy = szedata_open_dummy();
    unsigned char hw[16], sw[1514], *segment, *data, *hw_data;
    unsigned int len, data_len, hw_data_len;
    static const unsigned char long_frame[65528] = {0};
    size_t i, pad;

    memset(hw, 0xAA, sizeof(hw));
    memset(sw, 0x55, sizeof(sw));
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        segment = szedata_prepare_packet(dummy, hw, rows[i].hw_len, sw, rows[i].len, &len);
        CHECK(segment != NULL && len == rows[i].occupied);
        CHECK(szedata_decode_packet(segment, &data, &hw_data, &data_len, &hw_data_len) == rows[i].segment);
        CHECK(data == segment + rows[i].offset && data_len == rows[i].len && memcmp(data, sw, data_len) == 0);
        CHECK(hw_data == segment + 4 && hw_data_len == rows[i].hw_len &&
              memcmp(hw_data, hw, hw_data_len) == 0);
        for (pad = rows[i].segment; pad < rows[i].occupied; pad++)
            CHECK(segment[pad] == 0);
    }
    errno = 0;
    CHECK(szedata_prepare_packet(dummy, hw, 0, long_frame, 65528, &len) == NULL && errno == EMSGSIZE &&
          len == 0);

    /* Its metadata fit, the padding behind them does not. */
    memset(sw, 0, 16);
    sw[0] = 10;
    sw[2] = 6;
    errno = 0;
    CHECK(szedata_decode_packet(sw, &data, &hw_data, &data_len, &hw_data_len) == 0 && errno == EBADMSG);
    sw[0] = 0;
    CHECK(szedata_decode_packet(sw, &data, &hw_data, &data_len, &hw_data_len) == 0);
    szedata_close_dummy(dummy);
}

int main(void)
{
    null_is_refused();
    without_a_card_there_is_none();
    segments_are_made_and_read();
    return CHECK_RESULT();
}
