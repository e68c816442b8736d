/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Threads that open, poll, copy and close devices under each other's hands. */
#define _GNU_SOURCE
#include <poll.h>

#include "device.h"

enum { ROUNDS = 300 };

static void *open_and_close(void *argument)
{
    int round;

    for (round = 0; round < ROUNDS; round++) {
        int fd = open("/dev/netmap", O_RDWR), copy;

        NEED(fd >= 0);
        copy = dup(fd);
        CHECK(ioctl(fd, NIOCTXSYNC) == -1 && errno == ENXIO);
        close(fd);
        CHECK(ioctl(copy, NIOCRXSYNC) == -1 && errno == ENXIO);
        close(copy);
    }
    return argument;
}

static void *poll_all(void *argument)
{
    struct port *port = argument;
    int round;

    for (round = 0; round < ROUNDS; round++) {
        struct pollfd all[16];
        int fd;

        /* Numbers that the others open and close meanwhile. */
        for (fd = 0; fd < 16; fd++) {
            all[fd] = (struct pollfd){.fd = fd, .events = POLLOUT};
        }
        all[0].fd = port->fd;
        CHECK(poll(all, 16, -1) >= 1);
        CHECK(all[0].revents == POLLOUT);
    }
    return NULL;
}

static void *forks(void *argument)
{
    int round;

    for (round = 0; round < ROUNDS / 10; round++) {
        pid_t child = fork();

        NEED(child >= 0);
        if (child == 0) {
            struct port *port = argument;

            be_patient();
            CHECK(ioctl(port->fd, NIOCTXSYNC) == 0);
            close(port->fd);
            munmap(port->memory, port->bytes);
            _exit(CHECK_RESULT());
        }
        await_success(child);
    }
    return NULL;
}

int main(void)
{
    struct port port;
    pthread_t threads[5];
    int index;

    be_patient();
    port = open_port("valet:a");
    NEED(pthread_create(&threads[0], NULL, open_and_close, NULL) == 0);
    NEED(pthread_create(&threads[1], NULL, open_and_close, NULL) == 0);
    NEED(pthread_create(&threads[2], NULL, poll_all, &port) == 0);
    NEED(pthread_create(&threads[3], NULL, poll_all, &port) == 0);
    NEED(pthread_create(&threads[4], NULL, forks, &port) == 0);
    for (index = 0; index < 5; index++) {
        pthread_join(threads[index], NULL);
    }
    CHECK(is_there("valet:a"));
    return CHECK_RESULT();
}
