/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* How long a binding lasts: copies, mappings, forks, exec, kill, and programs that close everything. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "device.h"

static void copies(void)
{
    struct port a = open_port("valel:a");
    int copies[3] = {dup(a.fd), fcntl(a.fd, F_DUPFD, 100), dup2(a.fd, 200)}, index;
    struct nmreq_register body;

    CHECK(copies[1] >= 100 && copies[2] == 200);
    munmap(a.memory, a.bytes);
    close(a.fd);
    for (index = 0; index < 3; index++) {
        struct pollfd one = {.fd = copies[index], .events = POLLOUT};

        CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLOUT);
        CHECK(ioctl(copies[index], NIOCTXSYNC) == 0);
        CHECK(bind_port(copies[index], "valel:b", &body) == -1 && errno == EBUSY);
        CHECK(is_there("valel:a"));
        close(copies[index]);
    }
    await_gone("valel:a");
}

static void mappings(void)
{
    struct port a = open_port("valel:m");

    close(a.fd);
    CHECK(is_there("valel:m"));
    put_frame(&a, 1);
    munmap(a.memory, 4096);
    CHECK(is_there("valel:m"));
    /* Another mapping takes the place of the middle. */
    NEED(mmap(a.memory + 8192, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
         MAP_FAILED);
    munmap(a.memory + 4096, 4096);
    CHECK(is_there("valel:m"));
    munmap(a.memory, a.bytes);
    await_gone("valel:m");
}

/* The kernel takes long to end a process with a context for asynchronous I/O. It maps each. */
static void ends_soon(void)
{
    struct port a = open_port("valel:s"), b = open_port("valel:t"), master = open_port("valel:s{1"),
                slave = open_port("valel:s}1");
    struct pollfd one = {.fd = b.fd, .events = POLLIN};
    char line[512];
    FILE *maps;

    send_frame(&a, 3);
    CHECK(poll(&one, 1, -1) == 1 && take_frame(&b) == 3);
    put_frame(&master, 4);
    NEED(ioctl(master.fd, NIOCTXSYNC, NULL) == 0);
    one.fd = slave.fd;
    CHECK(poll(&one, 1, -1) == 1 && take_frame(&slave) == 4);
    maps = fopen("/proc/self/maps", "r");
    NEED(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL)
        CHECK(strstr(line, "[aio]") == NULL);
    fclose(maps);
    close_port(&slave);
    close_port(&master);
    close_port(&a);
    close_port(&b);
}

static void forks(void)
{
    struct port a = open_port("valel:f"), b = open_port("valel:g");
    struct pollfd one = {.fd = b.fd, .events = POLLIN};
    pid_t child = fork();

    NEED(child >= 0);
    if (child == 0) {
        be_patient();
        send_frame(&a, 9);
        _exit(CHECK_RESULT());
    }
    munmap(a.memory, a.bytes);
    close(a.fd);
    CHECK(poll(&one, 1, -1) == 1 && take_frame(&b) == 9);
    await_success(child);
    await_gone("valel:f");
    munmap(b.memory, b.bytes);
    close(b.fd);
}

static void killed(void)
{
    int ends[2];
    char byte;
    pid_t child;

    NEED(pipe(ends) == 0);
    child = fork();
    NEED(child >= 0);
    if (child == 0) {
        open_port("valel:k");
        NEED(write(ends[1], "x", 1) == 1);
        pause();
    }
    NEED(read(ends[0], &byte, 1) == 1);
    CHECK(is_there("valel:k"));
    kill(child, SIGKILL);
    NEED(waitpid(child, NULL, 0) == child);
    await_gone("valel:k");
    close(ends[0]);
    close(ends[1]);
}

/* Does with a device what a process can that did not open it. The sizes came in band. */
static void use_foreign(int fd, uint64_t bytes, uint64_t offset)
{
    struct port port = {.fd = fd};
    struct pollfd one = {.fd = fd, .events = POLLOUT};

    CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLOUT);
    map_port(&port, bytes, offset);
    send_frame(&port, 33);
}

static void executed(const char *program)
{
    struct nmreq_register body;
    struct port b = open_port("valel:y");
    struct pollfd one = {.fd = b.fd, .events = POLLIN};
    int fd = open("/dev/netmap", O_RDWR), private = open("/dev/netmap", O_RDWR | O_CLOEXEC);
    char arguments[4][32];
    pid_t child;

    CHECK(fcntl(fd, F_GETFD) == 0 && fcntl(private, F_GETFD) == FD_CLOEXEC);
    NEED(bind_port(fd, "valel:x", &body) == 0);
    snprintf(arguments[0], sizeof(arguments[0]), "%d", fd);
    snprintf(arguments[1], sizeof(arguments[1]), "%llu", (unsigned long long)body.nr_memsize);
    snprintf(arguments[2], sizeof(arguments[2]), "%llu", (unsigned long long)body.nr_offset);
    snprintf(arguments[3], sizeof(arguments[3]), "%d", private);
    child = vfork();
    if (child == 0) {
        /* A descriptor that a vfork child closes stays open in its parent. */
        close(b.fd);
        execl(program, program, arguments[0], arguments[1], arguments[2], arguments[3], NULL);
        _exit(1);
    }
    CHECK(poll(&one, 1, -1) == 1 && take_frame(&b) == 33);
    await_success(child);
    close(fd);
    close(private);
    await_gone("valel:x");
    munmap(b.memory, b.bytes);
    close(b.fd);
}

static void passed(void)
{
    char room[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct nmreq_register body;
    struct iovec text = {.iov_base = &body, .iov_len = sizeof(body)};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *header;
    struct port b = open_port("valel:q");
    struct pollfd one = {.fd = b.fd, .events = POLLIN};
    int ends[2], fd;
    pid_t child;

    NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    child = fork();
    NEED(child >= 0);
    if (child == 0) {
        be_patient();
        NEED(recvmsg(ends[1], &message, 0) == sizeof(body));
        header = CMSG_FIRSTHDR(&message);
        NEED(header != NULL && header->cmsg_type == SCM_RIGHTS);
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        use_foreign(fd, body.nr_memsize, body.nr_offset);
        _exit(CHECK_RESULT());
    }
    /* Opened when the child was there already: it can only come through the socket. */
    fd = open("/dev/netmap", O_RDWR);
    NEED(bind_port(fd, "valel:p", &body) == 0);
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    NEED(sendmsg(ends[0], &message, 0) == sizeof(body));
    close(fd);
    CHECK(poll(&one, 1, -1) == 1 && take_frame(&b) == 33);
    await_success(child);
    await_gone("valel:p");
    munmap(b.memory, b.bytes);
    close(b.fd);
    close(ends[0]);
    close(ends[1]);
}

static void close_everything(void)
{
    struct port a = open_port("valel:c");
    struct nmreq_register body;
    int kept = dup2(a.fd, 3), fd;

    NEED(kept == 3);
    for (fd = 4; fd < 1024; fd++) {
        close(fd);
    }
    send_frame(&a, 1);
    a.fd = kept;
    send_frame(&a, 2);
    CHECK(close_range(4, ~0U, 0) == 0);
    send_frame(&a, 3);
    closefrom(4);
    send_frame(&a, 4);
    fd = open("/dev/netmap", O_RDWR);
    CHECK(fd == 4);
    CHECK(bind_port(fd, "valel:d", &body) == 0);
    closefrom(3);
    await_gone("valel:d");
    CHECK(is_there("valel:c"));
    munmap(a.memory, a.bytes);
    await_gone("valel:c");
}

/* The behaviour of a character device. */
static void is_a_device(void)
{
    struct stat status;
    char byte = 0;
    int fd;

    close(2);
    fd = open("/dev/netmap", O_RDWR);
    NEED(fd == 2);
    CHECK(fstat(fd, &status) == 0 && S_ISCHR(status.st_mode));
    CHECK(read(fd, &byte, 1) == -1 && errno == EINVAL);
    CHECK(write(fd, &byte, 1) == -1 && errno == EINVAL);
    CHECK(ioctl(fd, 0x5401, &byte) == -1 && errno == EOPNOTSUPP);
    CHECK(ioctl(fd, NIOCTXSYNC) == -1 && errno == ENXIO);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    NEED(dup2(1, 2) == 2);
}

/* daemon() puts something else on the standard descriptors without a call that could be seen. */
static void replaced(void)
{
    struct stat null, status;
    int ends[2];
    char same = 0;
    pid_t child;

    NEED(pipe(ends) == 0);
    child = fork();
    NEED(child >= 0);
    if (child == 0) {
        close(0);
        NEED(open("/dev/netmap", O_RDWR) == 0);
        NEED(daemon(1, 0) == 0);
        be_patient();
        same = stat("/dev/null", &null) == 0 && fstat(0, &status) == 0 && null.st_rdev == status.st_rdev;
        NEED(write(ends[1], &same, 1) == 1);
        _exit(0);
    }
    CHECK(read(ends[0], &same, 1) == 1 && same);
    await_success(child);
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **arguments)
{
    be_patient();
    if (count == 5) {
        use_foreign(atoi(arguments[1]), strtoull(arguments[2], NULL, 10), strtoull(arguments[3], NULL, 10));
        CHECK(fcntl(atoi(arguments[4]), F_GETFD) == -1 && errno == EBADF);
        return CHECK_RESULT();
    }
    is_a_device();
    copies();
    mappings();
    ends_soon();
    forks();
    killed();
    executed("/proc/self/exe");
    passed();
    replaced();
    close_everything();
    return CHECK_RESULT();
}
