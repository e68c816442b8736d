/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Without a daemon: the device cannot be opened, and everything else is as it would be without the object. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/stat.h>

#include "device.h"

static void files(void)
{
    struct stat status;
    char path[] = "/tmp/ringroad-untouched-XXXXXX";
    int fd = mkstemp(path);
    FILE *file;

    NEED(fd >= 0);
    CHECK(write(fd, "abc", 3) == 3);
    CHECK(fstat(fd, &status) == 0 && status.st_size == 3 && S_ISREG(status.st_mode));
    close(fd);
    CHECK(close(fd) == -1 && errno == EBADF);
    fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
    fd = open("/tmp/ringroad-untouched/no/such/file", O_RDONLY);
    CHECK(fd == -1 && errno == ENOENT);
    CHECK(open((const char *)8, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(open((const char *)8, O_RDWR | O_CREAT, 0600) == -1 && errno == EFAULT);
    CHECK(stat((const char *)8, &status) == -1 && errno == EFAULT);
    /* The mode is passed on. */
    unlink(path);
    umask(0);
    fd = open(path, O_RDWR | O_CREAT, 0640);
    CHECK(fd >= 0 && fstat(fd, &status) == 0 && (status.st_mode & 0777) == 0640);
    file = fdopen(fd, "w");
    CHECK(file != NULL && fclose(file) == 0);
    unlink(path);
    CHECK(ioctl(-1, NIOCTXSYNC) == -1 && errno == EBADF);
    CHECK(ioctl(0, NIOCTXSYNC) == -1 && errno != EOPNOTSUPP);
}

static void device(void)
{
    struct stat status;

    CHECK(stat("/dev/netmap", &status) == 0 && S_ISCHR(status.st_mode));
    CHECK(access("/dev/netmap", R_OK | W_OK) == 0);
    CHECK(access("/dev/netmap", X_OK) == -1 && errno == EACCES);
    CHECK(access("/dev/netmap0", F_OK) == -1 && errno == ENOENT);
    CHECK(open("/dev/netmap", O_RDWR) == -1 && errno == ENOENT);
    CHECK(openat(AT_FDCWD, "/dev/netmap", O_RDWR) == -1 && errno == ENOENT);
    CHECK(open("/dev/netmap", O_RDWR | O_CREAT, 0600) == -1 && errno == ENOENT);
    CHECK(creat("/dev/netmap", 0600) == -1 && errno == ENOENT);
}

static void waits(void)
{
    int pipe_ends[2], set, copy;
    struct pollfd two[2] = {{.events = POLLIN}, {.fd = -1, .revents = 7}};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5}, seen[2];
    struct timeval time = {0, 1000};
    fd_set readable;

    NEED(pipe(pipe_ends) == 0);
    two[0].fd = pipe_ends[0];
    CHECK(poll(NULL, 0, 1) == 0);
    CHECK(poll(two, 2, 1) == 0);
    set = epoll_create(1);
    copy = dup(set);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipe_ends[0], &event) == 0);
    CHECK(epoll_wait(copy, seen, 2, 1) == 0);
    CHECK(write(pipe_ends[1], "x", 1) == 1);
    CHECK(poll(two, 2, -1) == 1 && two[0].revents == POLLIN && two[1].revents == 0);
    CHECK(epoll_wait(copy, seen, 2, -1) == 1 && seen[0].data.u64 == 5);
    close(copy);
    FD_ZERO(&readable);
    FD_SET(pipe_ends[0], &readable);
    CHECK(select(pipe_ends[0] + 1, &readable, NULL, NULL, &time) == 1);
    CHECK(dup2(pipe_ends[0], set) == set);
    CHECK(epoll_wait(set, seen, 2, 0) == -1 && errno == EINVAL);
    closefrom(3);
    CHECK(fcntl(pipe_ends[0], F_GETFD) == -1 && errno == EBADF);
}

static void memory(void)
{
    char *pages = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    NEED(pages != MAP_FAILED);
    pages = mremap(pages, 16384, 65536, MREMAP_MAYMOVE);
    NEED(pages != MAP_FAILED);
    pages[65535] = 1;
    CHECK(munmap(pages, 65536) == 0);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, -1, 0) == MAP_FAILED && errno == EBADF);
}

int main(void)
{
    be_patient();
    files();
    device();
    waits();
    memory();
    return CHECK_RESULT();
}
