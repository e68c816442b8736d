/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program with real-time priority that never sleeps, on the only processor of the daemon's worker: its frames pass.
 * Its arguments are the processor and the number of frames.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "device.h"

int main(int count, char **arguments)
{
    struct sched_param urgent = {.sched_priority = 20};
    struct port a, b;
    cpu_set_t processor;
    int number, frames;

    NEED(count == 3);
    frames = atoi(arguments[2]);
    CPU_ZERO(&processor);
    CPU_SET(atoi(arguments[1]), &processor);
    NEED(sched_setaffinity(0, sizeof(processor), &processor) == 0);
    be_patient();
    a = open_port("valeu:a");
    b = open_port("valeu:b");
    NEED(sched_setscheduler(0, SCHED_RR, &urgent) == 0);
    for (number = 0; number < frames; number++) {
        put_frame(&a, (unsigned char)number);
        /* The switch sends frames of its own to find loops. */
        do {
            NEED(ioctl(a.fd, NIOCTXSYNC, NULL) == 0 && ioctl(b.fd, NIOCRXSYNC, NULL) == 0);
        } while (take_frame(&b) != number % 256);
    }
    return CHECK_RESULT();
}
