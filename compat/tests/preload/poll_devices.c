/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* poll and ppoll of arrays with devices, pipes, negative numbers and what is not open. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "device.h"

static void ignore(int signal)
{
    (void)signal;
}

static void ready_or_not(struct port *a, struct port *b)
{
    struct pollfd one = {.fd = b->fd, .events = POLLIN};
    struct timespec before, after;

    CHECK(poll(&one, 1, 0) == 0 && one.revents == 0);
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(poll(&one, 1, 50) == 0 && one.revents == 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    /* A timeout does not return early: programs rely on it. */
    CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 49);
    one.events = POLLIN | POLLOUT;
    CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLOUT);
    /* A poll is a sync: nothing else sends this frame. */
    put_frame(a, 5);
    one.fd = a->fd;
    one.events = POLLIN;
    CHECK(poll(&one, 1, 0) == 0);
    one.fd = b->fd;
    CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
    CHECK(take_frame(b) == 5);
    CHECK(poll(&one, 1, 0) == 0);
}

static void mixed(struct port *a, struct port *b)
{
    int pipe_ends[2];
    struct pollfd mixed[6] = {{.events = POLLIN},  {.events = POLLIN}, {.events = POLLIN, .revents = 99},
                              {.events = POLLOUT}, {.events = POLLIN}, {.events = POLLIN}};

    NEED(pipe(pipe_ends) == 0);
    NEED(write(pipe_ends[1], "x", 1) == 1);
    mixed[0].fd = b->fd;
    mixed[1].fd = pipe_ends[0];
    mixed[2].fd = -5;
    mixed[3].fd = b->fd;
    mixed[4].fd = 900;
    mixed[5].fd = a->fd;
    CHECK(poll(mixed, 6, -1) == 3);
    CHECK(mixed[0].revents == 0 && mixed[1].revents == POLLIN && mixed[2].revents == 0);
    CHECK(mixed[3].revents == POLLOUT && mixed[4].revents == POLLNVAL && mixed[5].revents == 0);
    /* Nothing but the pipe. */
    mixed[3].events = 0;
    mixed[4].fd = -1;
    CHECK(poll(mixed, 6, -1) == 1 && mixed[1].revents == POLLIN && mixed[3].revents == 0);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void sleeps(struct port *a, struct port *b)
{
    struct late_frame late;
    struct pollfd two[2] = {{.fd = -1}, {.fd = b->fd, .events = POLLIN}};

    send_when_asleep(&late, a);
    CHECK(poll(two, 2, -1) == 1 && two[1].revents == POLLIN);
    pthread_join(late.thread, NULL);
    CHECK(take_frame(b) == 77);
}

static void signals(struct port *b)
{
    struct pollfd one = {.fd = b->fd, .events = POLLIN};
    sigset_t blocked, none;

    NEED(signal(SIGUSR1, ignore) != SIG_ERR);
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    NEED(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    raise(SIGUSR1);
    CHECK(ppoll(&one, 1, NULL, &none) == -1 && errno == EINTR);
    CHECK(ppoll(&one, 1, &(struct timespec){0, 1000000}, &none) == 0);
    CHECK(ppoll(&one, 1, &(struct timespec){0, -1}, &none) == -1 && errno == EINVAL);
}

/* A ready device is found without a system call, if the array is a variable that was polled before. */
static void without_system_calls(struct port *port)
{
    struct sock_filter no_ppoll[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof(no_ppoll) / sizeof(*no_ppoll), .filter = no_ppoll};
    struct pollfd one = {.fd = port->fd, .events = POLLOUT};
    int i;

    CHECK(poll(&one, 1, -1) == 1);
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    for (i = 0; i < 100; i++) {
        one.revents = 0;
        CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLOUT);
    }
    CHECK(syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0) == -1 && errno == ENOSYS);
}

int main(void)
{
    struct port a, b;
    struct pollfd one = {.events = POLLIN};

    be_patient();
    a = open_port("valep:a");
    b = open_port("valep:b");
    one.fd = open("/dev/netmap", O_RDWR);
    CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLERR);
    close(one.fd);
    CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLNVAL);
    ready_or_not(&a, &b);
    mixed(&a, &b);
    sleeps(&a, &b);
    signals(&b);
    without_system_calls(&b);
    return CHECK_RESULT();
}
