/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Sizes, offsets and values of <libsze2.h>, which the library counts on. */
#include <libsze2.h>
#include <stddef.h>

#include "static_check.h"

#define SAME(value, expected) STATIC_CHECK((value) == (expected))

SAME(sizeof(struct szedata_lock), 24);
SAME(offsetof(struct szedata_lock, start), 0);
SAME(offsetof(struct szedata_lock, len), 8);
SAME(offsetof(struct szedata_lock, area), 12);
SAME(offsetof(struct szedata_lock, next), 16);
SAME(SZE2_DIR_RX, 0);
SAME(SZE2_DIR_TX, 1);
SAME(SZE2_DIR_ALL, 2);
SAME(SZE2_ALL_INTERFACES, 0xFFFFFFFF);
SAME(SZE2_MAX_FRAME_SIZE, 24576);
SAME(SZEDATA_POLLRX, POLLIN);
SAME(SZEDATA_POLLTX, POLLOUT);
SAME(sizeof(struct szecard_frame), 24);
SAME(offsetof(struct szecard_frame, metadata), 8);
SAME(offsetof(struct szecard_frame, length), 16);
SAME(offsetof(struct szecard_frame, metadata_length), 20);
SAME(sizeof(struct szecard_info), 96);
SAME(offsetof(struct szecard_info, receive_buffer), 64);
SAME(offsetof(struct szecard_info, receive_channels), 80);
SAME(offsetof(struct szecard_info, address), 84);
SAME(sizeof(struct szecard_design), 64);
SAME(offsetof(struct szecard_design, version), 48);
SAME(sizeof(struct szecard_rule_counters), 16);
SAME(sizeof(struct szecard_ibuf), 212);
SAME(offsetof(struct szecard_ibuf, addresses), 20);
SAME(sizeof(struct szecard_ibuf_counters), 72);
SAME(offsetof(struct szecard_ibuf_counters, overflow), 64);
SAME(sizeof(struct szecard_obuf_counters), 24);
SAME(sizeof(struct szecard_channel), 48);
SAME(offsetof(struct szecard_channel, running), 40);
SAME(sizeof(struct szecard_status), 3384);
SAME(offsetof(struct szecard_status, obuf_enabled), 212);
SAME(offsetof(struct szecard_status, ibuf_counters), 216);
SAME(offsetof(struct szecard_status, receive), 312);
SAME(sizeof(struct szecard_handle_counters), 32);
