/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Measure how fast libsze2 reads a card's channels: sze2-multiread [-c] [-m MASK] [-n FRAMES] [-t SECONDS] CARD
 *   -c  copy each frame into a static buffer
 *   -m  mask of the channels, all by default
 *   -n  end after this many frames
 *   -t  end after this many seconds; else with ^C */
#include <libsze2.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;
static unsigned char copy[SZECARD_MAX_FRAME];

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    unsigned char *segment, *frame, *metadata;
    unsigned int len, frame_len, metadata_len;
    unsigned long long frames = 0, bytes = 0, most = ~0ULL;
    __u32 rx = SZE2_ALL_INTERFACES, tx = 0;
    struct sigaction action;
    struct szedata *sze;
    int option, copies = 0;
    unsigned int limit = 0;
    double start = 0, seconds;

    while ((option = getopt(argc, argv, "cm:n:t:")) != -1) {
        if (option == 'c')
            copies = 1;
        else if (option == 'm')
            rx = (__u32)strtoul(optarg, NULL, 0);
        else if (option == 'n')
            most = strtoull(optarg, NULL, 0);
        else if (option == 't')
            limit = (unsigned int)strtoul(optarg, NULL, 0);
        else
            optind = argc;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: %s [-c] [-m MASK] [-n FRAMES] [-t SECONDS] CARD\n", argv[0]);
        return 2;
    }
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal; /* without SA_RESTART: waiting ends */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    sze = szedata_open(argv[optind]);
    if (sze == NULL || szedata_subscribe3(sze, &rx, &tx) != 0 || rx == 0 || szedata_start(sze) != 0) {
        fprintf(stderr, "%s: channels had: %#x; %s\n", argv[optind], rx, szecard_error());
        return 1;
    }
    while (!stop && frames < most) {
        segment = szedata_read_next(sze, &len);
        if (segment == NULL && errno == EAGAIN)
            continue;
        if (segment == NULL ||
            szedata_decode_packet(segment, &frame, &metadata, &frame_len, &metadata_len) == 0) {
            if (!stop)
                fprintf(stderr, "%s\n", szecard_error());
            break;
        }
        if (frames++ == 0) {
            start = now();
            alarm(limit);
        }
        bytes += frame_len;
        if (copies) {
            memcpy(copy, frame, frame_len);
            /* The copy is made although nobody reads it. */
            __asm__ volatile("" : : "r"(copy) : "memory");
        }
    }
    seconds = frames > 0 ? now() - start : 0;
    szedata_close(sze);
    printf("%llu frames, %llu bytes", frames, bytes);
    if (seconds > 0) /* with FCS, preamble and gap, as on the wire */
        printf(", %.2f Mpps, %.2f Gbit/s", (double)frames / seconds / 1e6,
               ((double)bytes + (double)frames * 24) * 8 / seconds / 1e9);
    printf("\n");
    return stop || frames == most ? 0 : 1;
}
