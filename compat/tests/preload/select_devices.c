/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* select and pselect of sets with devices. */
#define _GNU_SOURCE
#include <sys/select.h>

#include "device.h"

int main(void)
{
    struct port a, b;
    struct timeval time = {0, 20000};
    struct late_frame late;
    int pipe_ends[2];
    fd_set readable, writable, exceptional;

    be_patient();
    a = open_port("vales:a");
    b = open_port("vales:b");
    NEED(pipe(pipe_ends) == 0);
    FD_ZERO(&readable);
    FD_SET(b.fd, &readable);
    FD_SET(pipe_ends[0], &readable);
    CHECK(select(FD_SETSIZE, &readable, NULL, NULL, &time) == 0);
    CHECK(time.tv_sec == 0 && time.tv_usec == 0);
    CHECK(!FD_ISSET(b.fd, &readable) && !FD_ISSET(pipe_ends[0], &readable));

    NEED(write(pipe_ends[1], "x", 1) == 1);
    FD_ZERO(&writable);
    FD_ZERO(&exceptional);
    FD_SET(b.fd, &readable);
    FD_SET(pipe_ends[0], &readable);
    FD_SET(a.fd, &writable);
    FD_SET(pipe_ends[1], &writable);
    FD_SET(b.fd, &exceptional);
    CHECK(select(FD_SETSIZE, &readable, &writable, &exceptional, NULL) == 3);
    CHECK(!FD_ISSET(b.fd, &readable) && FD_ISSET(pipe_ends[0], &readable));
    CHECK(FD_ISSET(a.fd, &writable) && FD_ISSET(pipe_ends[1], &writable));
    CHECK(!FD_ISSET(b.fd, &exceptional));

    FD_ZERO(&readable);
    FD_SET(b.fd, &readable);
    send_when_asleep(&late, &a);
    CHECK(pselect(b.fd + 1, &readable, NULL, NULL, NULL, NULL) == 1 && FD_ISSET(b.fd, &readable));
    pthread_join(late.thread, NULL);
    CHECK(take_frame(&b) == 77);

    close(pipe_ends[0]);
    FD_SET(pipe_ends[0], &readable);
    time.tv_sec = 1;
    CHECK(select(FD_SETSIZE, &readable, NULL, NULL, &time) == -1 && errno == EBADF);
    time.tv_sec = -1;
    CHECK(select(FD_SETSIZE, &readable, NULL, NULL, &time) == -1 && errno == EINVAL);
    return CHECK_RESULT();
}
