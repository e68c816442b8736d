/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Send broadcast frames through a card: sze2-send CARD FRAMES [LENGTH [CHANNEL]]. */
#include <libsze2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    unsigned char frame[SZE2_MAX_FRAME_SIZE] = {0};
    long long i, frames = argc > 2 ? atoll(argv[2]) : 0;
    unsigned int len = argc > 3 ? (unsigned int)atoi(argv[3]) : 60;
    unsigned short channel = argc > 4 ? (unsigned short)(atoi(argv[4]) & 31) : 0;
    __u32 rx = 0, tx = 1U << channel;
    struct szedata *sze;
    int status = 0;

    if (argc < 3 || len < 18 || len > sizeof(frame)) {
        fprintf(stderr, "usage: %s CARD FRAMES [LENGTH [CHANNEL]]\n", argv[0]);
        return 2;
    }
    sze = szedata_open(argv[1]);
    if (sze == NULL || szedata_subscribe3(sze, &rx, &tx) != 0 || szedata_start(sze) != 0) {
        fprintf(stderr, "%s\n", szecard_error());
        return 1;
    }
    if (tx == 0) {
        fprintf(stderr, "%s: channel %u is not available\n", argv[1], channel);
        return 1;
    }
    memset(frame, 0xFF, 6);
    memcpy(frame + 6, "\x02\0\0\0\0\x01\x88\xb5", 8); /* a local experiment's EtherType */
    for (i = 0; i < frames; i += status == 0) {
        short events = SZEDATA_POLLTX;

        memcpy(frame + 14, &i, 4);
        status = szedata_burst_write_next(sze, NULL, 0, frame, len, channel);
        /* 1: no room yet; the collected frames are sent, which makes room. */
        if (status < 0 || (status > 0 && szedata_poll(sze, &events, -1) < 0)) {
            fprintf(stderr, "%s\n", szecard_error());
            break;
        }
    }
    szedata_close(sze); /* what was collected goes now */
    printf("%lld frames\n", i);
    return i == frames ? 0 : 1;
}
