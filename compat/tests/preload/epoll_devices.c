/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Epoll sets with devices: interests, both kinds at once, one shot, copies, and a device that comes while a thread waits. */
#define _GNU_SOURCE
#include <sys/epoll.h>

#include "device.h"

static int change(int set, int operation, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = 1000 + (uint64_t)fd};

    return epoll_ctl(set, operation, fd, &event);
}

static void interests(int set, struct port *a, struct port *b)
{
    struct epoll_event events[4];

    CHECK(change(set, EPOLL_CTL_MOD, b->fd, EPOLLIN) == -1 && errno == ENOENT);
    CHECK(change(set, EPOLL_CTL_DEL, b->fd, 0) == -1 && errno == ENOENT);
    CHECK(change(set, EPOLL_CTL_ADD, b->fd, EPOLLIN) == 0);
    CHECK(change(set, EPOLL_CTL_ADD, b->fd, EPOLLIN) == -1 && errno == EEXIST);
    CHECK(change(b->fd, EPOLL_CTL_ADD, a->fd, EPOLLIN) == -1 && errno == EINVAL);
    CHECK(change(900, EPOLL_CTL_ADD, a->fd, EPOLLIN) == -1 && errno == EBADF);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, a->fd, NULL) == -1 && errno == EFAULT);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    CHECK(epoll_wait(set, events, 4, 10) == 0);
    CHECK(epoll_wait(set, events, 0, 0) == -1 && errno == EINVAL);
    send_frame(a, 1);
    CHECK(epoll_wait(set, events, 4, -1) == 1);
    CHECK(events[0].events == EPOLLIN && events[0].data.u64 == 1000 + (uint64_t)b->fd);
    /* While the frame is there. */
    CHECK(epoll_wait(set, events, 4, -1) == 1);
    CHECK(take_frame(b) == 1);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    CHECK(change(set, EPOLL_CTL_MOD, b->fd, EPOLLIN | EPOLLOUT) == 0);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].events == EPOLLOUT);
    CHECK(change(set, EPOLL_CTL_MOD, b->fd, EPOLLOUT | EPOLLONESHOT) == 0);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].events == EPOLLOUT);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    CHECK(change(set, EPOLL_CTL_MOD, b->fd, EPOLLIN) == 0);
}

static void both_kinds(int set, struct port *a, struct port *b)
{
    struct epoll_event events[4];
    int pipe_ends[2], round, seen_pipe = 0, seen_device = 0;

    NEED(pipe(pipe_ends) == 0);
    CHECK(change(set, EPOLL_CTL_ADD, pipe_ends[0], EPOLLIN) == 0);
    NEED(write(pipe_ends[1], "x", 1) == 1);
    CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.u64 == 1000 + (uint64_t)pipe_ends[0]);
    send_frame(a, 2);
    CHECK(epoll_wait(set, events, 4, -1) == 2);
    /* One at a time, neither keeps the other from being reported. */
    for (round = 0; round < 4; round++) {
        CHECK(epoll_wait(set, events, 1, -1) == 1);
        seen_pipe += events[0].data.u64 == 1000 + (uint64_t)pipe_ends[0];
        seen_device += events[0].data.u64 == 1000 + (uint64_t)b->fd;
    }
    CHECK(seen_pipe > 0 && seen_device > 0 && seen_pipe + seen_device == 4);
    CHECK(take_frame(b) == 2);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void sleeps(int set, struct port *a, struct port *b)
{
    struct epoll_event events[4];
    struct late_frame late;
    int copy = dup(set);

    send_when_asleep(&late, a);
    CHECK(epoll_pwait(copy, events, 4, -1, NULL) == 1 && events[0].data.u64 == 1000 + (uint64_t)b->fd);
    pthread_join(late.thread, NULL);
    CHECK(take_frame(b) == 77);
    close(copy);
}

struct late_device {
    int set;
    int fd;
    pid_t sleeper;
};

static void *add_late(void *argument)
{
    struct late_device *late = argument;

    await_sleep(late->sleeper);
    CHECK(change(late->set, EPOLL_CTL_ADD, late->fd, EPOLLOUT) == 0);
    return NULL;
}

static void comes_late(struct port *b)
{
    struct late_device late = {.set = epoll_create1(EPOLL_CLOEXEC), .fd = b->fd, .sleeper = gettid()};
    struct epoll_event events[4];
    pthread_t thread;

    NEED(pthread_create(&thread, NULL, add_late, &late) == 0);
    CHECK(epoll_wait(late.set, events, 4, -1) == 1 && events[0].events == EPOLLOUT);
    pthread_join(thread, NULL);
    close(late.set);
}

static void goes_with_its_descriptor(int set)
{
    struct epoll_event events[4];
    struct port c = open_port("valee:c");
    int fd = c.fd;

    CHECK(change(set, EPOLL_CTL_ADD, fd, EPOLLOUT) == 0);
    CHECK(epoll_wait(set, events, 4, -1) == 1);
    close(fd);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    munmap(c.memory, c.bytes);
    await_gone("valee:c");
}

int main(void)
{
    struct port a, b;
    int set;

    be_patient();
    set = epoll_create1(0);
    a = open_port("valee:a");
    b = open_port("valee:b");
    interests(set, &a, &b);
    both_kinds(set, &a, &b);
    sleeps(set, &a, &b);
    comes_late(&b);
    goes_with_its_descriptor(set);
    return CHECK_RESULT();
}
