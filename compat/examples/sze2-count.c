/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Count what a card receives: sze2-count CARD [CHANNEL]. Prints the first bytes of each frame; ends with ^C. */
#include <libsze2.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

int main(int argc, char **argv)
{
    unsigned char *segment, *frame, *metadata;
    unsigned int len, frame_len, metadata_len, i;
    unsigned long long frames = 0, bytes = 0;
    __u32 rx = argc > 2 ? 1U << (atoi(argv[2]) & 31) : SZE2_ALL_INTERFACES, tx = 0;
    struct sigaction action;
    struct szedata *sze;

    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal; /* without SA_RESTART: waiting ends */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sze = argc > 1 ? szedata_open(argv[1]) : NULL;
    if (sze == NULL || szedata_subscribe3(sze, &rx, &tx) != 0 || rx == 0 || szedata_start(sze) != 0) {
        fprintf(stderr, "usage: %s CARD [CHANNEL]; channels had: %#x; %s\n", argv[0], rx, szecard_error());
        return 1;
    }
    while (!stop) {
        segment = szedata_read_next(sze, &len);
        if (segment == NULL && errno == EAGAIN)
            continue;
        if (segment == NULL ||
            szedata_decode_packet(segment, &frame, &metadata, &frame_len, &metadata_len) == 0) {
            fprintf(stderr, "%s\n", szecard_error());
            break;
        }
        frames++;
        bytes += frame_len;
        printf("%5u", frame_len);
        for (i = 0; i < frame_len && i < 24; i++)
            printf(" %02x", frame[i]);
        putchar('\n');
        fflush(stdout);
    }
    szedata_close(sze);
    printf("%llu frames, %llu bytes\n", frames, bytes);
    return stop ? 0 : 1;
}
