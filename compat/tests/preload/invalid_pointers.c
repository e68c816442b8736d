/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Calls on devices with invalid pointers fail with EFAULT, as system calls do. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/stat.h>

#include "device.h"

static char *closed_page, *constant_page;

/* The compiler does not know the pointers. */
static void *volatile unreadable[4];
static void *volatile unwritable[5];
static volatile nfds_t too_many = 1 << 30;

#define FAULT(call) CHECK((errno = 0, (call) == -1) && errno == EFAULT)

static void make_pointers(void)
{
    int page = getpagesize(), flags = MAP_PRIVATE | MAP_ANONYMOUS, i;

    closed_page = (char *)mmap(NULL, (size_t)page * 3, PROT_READ | PROT_WRITE, flags, -1, 0) + page;
    constant_page = closed_page + page;
    NEED(mprotect(closed_page, (size_t)page, PROT_NONE) == 0);
    NEED(mprotect(constant_page, (size_t)page, PROT_READ) == 0);
    /* Nothing, an address without memory, a page without access, and the end of a page before it. */
    unreadable[1] = (void *)8;
    unreadable[2] = closed_page;
    unreadable[3] = closed_page - 4;
    for (i = 0; i < 4; i++)
        unwritable[i] = unreadable[i];
    unwritable[4] = constant_page;
}

static void polls(struct port *port)
{
    struct pollfd entry = {.fd = port->fd, .events = POLLOUT};
    struct timespec now = {0, 0};
    int i;

    for (i = 0; i < 5; i++) {
        FAULT(poll(unwritable[i], 1, 0));
        FAULT(poll(unwritable[i], 1, -1));
        FAULT(ppoll(unwritable[i], 1, &now, NULL));
    }
    CHECK(poll(&entry, too_many, 0) == -1 && errno == EINVAL);
    for (i = 1; i < 4; i++)
        FAULT(ppoll(&entry, 1, unreadable[i], NULL));
    FAULT(ppoll(&entry, 1, &now, unreadable[1]));
    CHECK(poll(&entry, 1, -1) == 1 && entry.revents == POLLOUT);
}

static void selects(struct port *port)
{
    struct timespec now = {0, 0};
    fd_set writable;
    int i;

    for (i = 1; i < 4; i++) {
        FD_ZERO(&writable);
        FD_SET(port->fd, &writable);
        FAULT(select(FD_SETSIZE, unreadable[i], &writable, NULL, NULL));
        FAULT(pselect(FD_SETSIZE, NULL, &writable, unreadable[i], &now, NULL));
        FAULT(select(FD_SETSIZE, NULL, &writable, NULL, unreadable[i]));
        FAULT(pselect(FD_SETSIZE, NULL, &writable, NULL, unreadable[i], NULL));
    }
    /* A set that can be read, with the device in it, but not written. */
    NEED(mprotect(constant_page, sizeof(fd_set), PROT_READ | PROT_WRITE) == 0);
    FD_SET(port->fd, (fd_set *)constant_page);
    NEED(mprotect(constant_page, sizeof(fd_set), PROT_READ) == 0);
    FAULT(select(FD_SETSIZE, NULL, (fd_set *)constant_page, NULL, NULL));
    CHECK(select(FD_SETSIZE, NULL, &writable, NULL, NULL) == 1 && FD_ISSET(port->fd, &writable));
}

static void epoll_sets(struct port *port)
{
    struct epoll_event event = {.events = EPOLLOUT | EPOLLONESHOT, .data = {.u64 = 7}};
    int set = epoll_create1(0), i;

    NEED(set >= 0);
    for (i = 0; i < 4; i++)
        FAULT(epoll_ctl(set, EPOLL_CTL_ADD, port->fd, unreadable[i]));
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, port->fd, &event) == 0);
    for (i = 0; i < 4; i++)
        FAULT(epoll_ctl(set, EPOLL_CTL_MOD, port->fd, unreadable[i]));
    /* The device is ready; its event is not lost. */
    for (i = 1; i < 5; i++)
        FAULT(epoll_wait(set, unwritable[i], 1, -1));
    event.data.u64 = 0;
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.events == EPOLLOUT && event.data.u64 == 7);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, port->fd, unreadable[1]) == 0);
    close(set);
}

static void requests(struct port *port)
{
    int fd = open("/dev/netmap", O_RDWR), i;

    NEED(fd >= 0);
    for (i = 1; i < 4; i++) {
        FAULT(ioctl(fd, NIOCREGIF, unreadable[i]));
        FAULT(ioctl(fd, NIOCGINFO, unreadable[i]));
        FAULT(ioctl(fd, NIOCCTRL, unreadable[i]));
        FAULT(ioctl(port->fd, NIOCGINFO, unreadable[i]));
    }
    close(fd);
    for (i = 0; i < 5; i++) {
        FAULT(fstat(port->fd, unwritable[i]));
        FAULT(stat("/dev/netmap", unwritable[i]));
        FAULT(statx(AT_FDCWD, "/dev/netmap", 0, STATX_ALL, unwritable[i]));
    }
}

int main(void)
{
    struct port port;

    be_patient();
    make_pointers();
    port = open_port("valei:a");
    polls(&port);
    selects(&port);
    epoll_sets(&port);
    requests(&port);
    return CHECK_RESULT();
}
