/*
 * A program over libpcap that uses what tcpdump, dumpcap and Scapy leave alone. It does not depend on Ringroad.
 *
 *   pcap_device replay FILE DEVICE     sends a capture's frames with pcap_inject and closes the device at once
 *   pcap_device check NAME A B         one of the checks at the end; A and B are joined, so that each gets what the other sends
 *
 * Exits with status 0, or reports the error and exits with 1.
 */
#include <errno.h>
#include <limits.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REQUIRE(condition)                                                                              \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

/* Only a failure waits this long: a busy machine may take its time. */
#define PATIENCE_MS 120000

static const char *device_a, *device_b;

static pcap_t *open_device(const char *name, int timeout_ms)
{
    char error[PCAP_ERRBUF_SIZE] = "";
    pcap_t *device = pcap_open_live(name, 262144, 1, timeout_ms, error);
    if (!device) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
    return device;
}

/* A broadcast frame with a number behind its header. */
static const unsigned char *frame(unsigned number, int length)
{
    static unsigned char bytes[65536];
    memset(bytes, 0x5A, (size_t)length);
    memset(bytes, 0xFF, 6);
    memcpy(bytes + 6, "\x02\x00\x00\x00\x77\x01\x88\xb5", 8);
    memcpy(bytes + 14, &number, sizeof number);
    return bytes;
}

static unsigned number_of(const unsigned char *bytes)
{
    unsigned number;
    memcpy(&number, bytes + 14, sizeof number);
    return number;
}

static void send_frames(pcap_t *device, unsigned first, unsigned count)
{
    for (unsigned number = first; number < first + count; number++)
        REQUIRE(pcap_inject(device, frame(number, 60), 60) == 60);
}

/* Waits for the next frame. */
static const unsigned char *receive(pcap_t *device, struct pcap_pkthdr **header)
{
    const unsigned char *bytes;
    int status;
    while ((status = pcap_next_ex(device, header, &bytes)) == 0) {
    }
    REQUIRE(status == 1);
    return bytes;
}

/* Those of the events for which a descriptor is ready in time. */
static int ready_for(int descriptor, short events, int timeout_ms)
{
    struct pollfd set = {.fd = descriptor, .events = events};
    REQUIRE(poll(&set, 1, timeout_ms) >= 0);
    return set.revents;
}

static int is_readable(int descriptor, int timeout_ms)
{
    return ready_for(descriptor, POLLIN, timeout_ms) == POLLIN;
}

static int is_writable(int descriptor, int timeout_ms)
{
    return ready_for(descriptor, POLLOUT, timeout_ms) == POLLOUT;
}

/* ---- breakloop ---- */

static pcap_t *to_break;
static unsigned seen, break_after;

static void count_and_break(unsigned char *user, const struct pcap_pkthdr *header, const unsigned char *bytes)
{
    (void)user;
    REQUIRE(header->caplen == 60 && number_of(bytes) == seen);
    if (++seen == break_after)
        pcap_breakloop(to_break);
}

static void break_on_signal(int signal)
{
    (void)signal;
    pcap_breakloop(to_break);
}

static void *break_in_thread(void *unused)
{
    (void)unused;
    pcap_breakloop(to_break);
    return NULL;
}

static void check_breakloop(void)
{
    pcap_t *a = open_device(device_a, 0), *b = open_device(device_b, 0);
    to_break = a;
    /* In a callback: what is left stays for later. */
    send_frames(b, 0, 10);
    break_after = 3;
    REQUIRE(pcap_loop(a, 10, count_and_break, NULL) == PCAP_ERROR_BREAK && seen == 3);
    REQUIRE(pcap_loop(a, 7, count_and_break, NULL) == 0 && seen == 10);
    /* While there are frames a dispatch returns their number, and the break afterwards. */
    send_frames(b, 10, 4);
    break_after = 11;
    REQUIRE(pcap_dispatch(a, -1, count_and_break, NULL) == 1 && seen == 11);
    REQUIRE(pcap_dispatch(a, -1, count_and_break, NULL) == PCAP_ERROR_BREAK && seen == 11);
    REQUIRE(pcap_loop(a, 3, count_and_break, NULL) == 0 && seen == 14);
    /* In a signal handler, while the loop sleeps or is about to; the handler restarts system calls. */
    struct sigaction action = {.sa_handler = break_on_signal, .sa_flags = SA_RESTART};
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    REQUIRE(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    REQUIRE(pcap_loop(a, -1, count_and_break, NULL) == PCAP_ERROR_BREAK && seen == 14);
    /* In another thread, a hundred times, before the loop sleeps or then. */
    for (int round = 0; round < 100; round++) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, break_in_thread, NULL) == 0);
        REQUIRE(pcap_loop(a, -1, count_and_break, NULL) == PCAP_ERROR_BREAK);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
    pcap_close(a);
    pcap_close(b);
}

/* ---- descriptors ---- */

static void check_descriptor(void)
{
    pcap_t *a = open_device(device_a, 0), *b = open_device(device_b, 0);
    struct pcap_pkthdr *header;
    char error[PCAP_ERRBUF_SIZE];
    int descriptor = pcap_get_selectable_fd(a);
    REQUIRE(descriptor >= 0 && pcap_get_required_select_timeout(a) == NULL);
    REQUIRE(!is_readable(descriptor, 0));
    REQUIRE(pcap_setnonblock(a, 1, error) == 0 && pcap_getnonblock(a, error) == 1);
    for (unsigned round = 0; round < 50; round++) {
        send_frames(b, 3 * round, 3);
        for (unsigned number = 3 * round; number < 3 * round + 3; number++) {
            /* While a frame is unread the descriptor is readable; then it is not, though the last frame is in use. */
            REQUIRE(is_readable(descriptor, PATIENCE_MS));
            const unsigned char *bytes = receive(a, &header);
            REQUIRE(labs(time(NULL) - header->ts.tv_sec) <= 60);
            while (number == 3 * round + 2 && is_readable(descriptor, 0)) {
                const unsigned char *more;
                REQUIRE(pcap_next_ex(a, &header, &more) == 0);
            }
            REQUIRE(number_of(bytes) == number);
        }
        /* A wake-up for what was read already may come late. */
        while (is_readable(descriptor, 0)) {
            const unsigned char *more;
            REQUIRE(pcap_next_ex(a, &header, &more) == 0);
        }
    }
    /* select and epoll see the same. */
    fd_set set;
    FD_ZERO(&set);
    FD_SET(descriptor, &set);
    struct timeval none = {0};
    REQUIRE(select(descriptor + 1, &set, NULL, NULL, &none) == 0);
    int events = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    REQUIRE(events >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &event) == 0);
    REQUIRE(epoll_wait(events, &event, 1, 0) == 0);
    send_frames(b, 0, 1);
    REQUIRE(epoll_wait(events, &event, 1, PATIENCE_MS) == 1);
    FD_SET(descriptor, &set);
    REQUIRE(select(descriptor + 1, &set, NULL, NULL, NULL) == 1);
    seen = 0;
    to_break = NULL;
    break_after = 0;
    REQUIRE(pcap_dispatch(a, -1, count_and_break, NULL) == 1);
    REQUIRE(epoll_wait(events, &event, 1, 0) == 0);
    /* Nothing to read: nothing is waited for. */
    REQUIRE(pcap_dispatch(a, -1, count_and_break, NULL) == 0);
    close(events);
    pcap_close(a);
    pcap_close(b);
}

static void check_timeout(void)
{
    pcap_t *a = open_device(device_a, 30);
    struct pcap_pkthdr *header;
    const unsigned char *bytes;
    struct pcap_pkthdr copy;
    REQUIRE(pcap_next_ex(a, &header, &bytes) == 0);
    REQUIRE(pcap_next(a, &copy) == NULL);
    REQUIRE(pcap_dispatch(a, -1, count_and_break, NULL) == 0);
    /* Frames that a filter rejects end no wait. */
    struct bpf_program program;
    REQUIRE(pcap_compile(a, &program, "ether proto 0x1234", 1, PCAP_NETMASK_UNKNOWN) == 0);
    REQUIRE(pcap_setfilter(a, &program) == 0);
    pcap_freecode(&program);
    pcap_t *b = open_device(device_b, 0);
    send_frames(b, 0, 5);
    REQUIRE(pcap_next_ex(a, &header, &bytes) == 0);
    struct pcap_stat counts;
    REQUIRE(pcap_stats(a, &counts) == 0 && counts.ps_recv == 0);
    pcap_close(a);
    pcap_close(b);
}

/* ---- sending ---- */

enum { MANY_FRAMES = 20000 };

static void *drain(void *device)
{
    struct pcap_pkthdr *header;
    for (unsigned number = 0; number < MANY_FRAMES; number++)
        REQUIRE(number_of(receive(device, &header)) == number);
    return NULL;
}

/* A and B are the ends of a pipe, which holds the sender back. */
static void check_full(void)
{
    pcap_t *a = open_device(device_a, 0), *b = open_device(device_b, 0);
    char error[PCAP_ERRBUF_SIZE];
    REQUIRE(pcap_setnonblock(b, 1, error) == 0);
    unsigned sent = 0;
    while (pcap_inject(b, frame(sent, 60), 60) == 60)
        sent++;
    REQUIRE(errno == EAGAIN && sent > 0 && strstr(pcap_geterr(b), "full"));
    errno = 0;
    REQUIRE(pcap_sendpacket(b, frame(sent, 60), 60) == PCAP_ERROR && errno == EAGAIN);
    /* A blocking one waits: all arrive, in their order. */
    REQUIRE(pcap_setnonblock(b, 0, error) == 0);
    pthread_t reader;
    REQUIRE(pthread_create(&reader, NULL, drain, a) == 0);
    while (sent < MANY_FRAMES) {
        REQUIRE(pcap_sendpacket(b, frame(sent, 60), 60) == 0);
        sent++;
    }
    REQUIRE(pthread_join(reader, NULL) == 0);
    /* No ring takes it, however long one waits. */
    REQUIRE(pcap_inject(b, frame(0, 60), 1 << 20) == PCAP_ERROR && errno == EMSGSIZE);
    REQUIRE(pcap_inject(b, frame(0, 60), 0) == PCAP_ERROR && errno == EINVAL);
    pcap_close(a);
    pcap_close(b);
}

/* Fills B's ring: as long as its descriptor is writable it takes a frame, and then none. Returns the next frame. */
static unsigned fill(pcap_t *b, int descriptor, unsigned number, int length)
{
    while (is_writable(descriptor, 0))
        if (pcap_inject(b, frame(number, length), (size_t)length) == length)
            number++;
    REQUIRE(pcap_inject(b, frame(number, length), (size_t)length) == PCAP_ERROR && errno == EAGAIN);
    return number;
}

/* Waits for room, in each way that there is in turn. */
static void await_room(int descriptor, int events, unsigned way)
{
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    struct epoll_event event;
    fd_set set;
    switch (way % 3) {
    case 0:
        REQUIRE(is_writable(descriptor, PATIENCE_MS));
        return;
    case 1:
        FD_ZERO(&set);
        FD_SET(descriptor, &set);
        REQUIRE(select(descriptor + 1, NULL, &set, NULL, &patience) == 1);
        return;
    default:
        REQUIRE(epoll_wait(events, &event, 1, PATIENCE_MS) == 1 && event.events == EPOLLOUT);
    }
}

static void *read_until_break(void *device)
{
    REQUIRE(pcap_loop(device, -1, count_and_break, NULL) == PCAP_ERROR_BREAK);
    return NULL;
}

/* A and B are the ends of a pipe, which holds the sender back. */
static void check_room(void)
{
    pcap_t *a = open_device(device_a, 0), *b = open_device(device_b, 0);
    char error[PCAP_ERRBUF_SIZE];
    struct pcap_pkthdr *header;
    int descriptor = pcap_get_selectable_fd(b), events = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLOUT};
    REQUIRE(descriptor >= 0 && events >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &event) == 0);
    REQUIRE(pcap_setnonblock(b, 1, error) == 0);
    REQUIRE(ready_for(descriptor, POLLIN | POLLOUT, 0) == POLLOUT);
    unsigned sent = fill(b, descriptor, 0, 60), got = 0;
    REQUIRE(ready_for(descriptor, POLLIN | POLLOUT, 0) == 0 && epoll_wait(events, &event, 1, 0) == 0);
    /* Frames and no room, frames and room, room alone. */
    send_frames(a, 0, 1);
    REQUIRE(ready_for(descriptor, POLLIN | POLLOUT, PATIENCE_MS) == POLLIN);
    for (; got < sent; got++)
        REQUIRE(number_of(receive(a, &header)) == got);
    await_room(descriptor, events, 0);
    REQUIRE(ready_for(descriptor, POLLIN | POLLOUT, 0) == (POLLIN | POLLOUT));
    REQUIRE(number_of(receive(b, &header)) == 0);
    REQUIRE(pcap_dispatch(b, -1, count_and_break, NULL) == 0);
    REQUIRE(ready_for(descriptor, POLLIN | POLLOUT, 0) == POLLOUT);
    /* A frame of several slots waits until all of them are free. */
    sent = fill(b, descriptor, 0, 5000);
    for (got = 0; got < sent; got++)
        REQUIRE(number_of(receive(a, &header)) == got);
    await_room(descriptor, events, 0);
    REQUIRE(pcap_inject(b, frame(sent, 5000), 5000) == 5000 && number_of(receive(a, &header)) == sent);
    /* Many times, while one thread reads A, and another one sleeps until B has frames. */
    pthread_t reader, sleeper;
    break_after = UINT_MAX;
    to_break = b;
    REQUIRE(pthread_create(&reader, NULL, drain, a) == 0);
    REQUIRE(pthread_create(&sleeper, NULL, read_until_break, b) == 0);
    for (unsigned waits = sent = 0; sent < MANY_FRAMES;) {
        if (pcap_inject(b, frame(sent, 60), 60) == 60) {
            sent++;
        } else {
            REQUIRE(errno == EAGAIN);
            await_room(descriptor, events, waits++);
        }
    }
    REQUIRE(pthread_join(reader, NULL) == 0);
    pcap_breakloop(b);
    REQUIRE(pthread_join(sleeper, NULL) == 0);
    close(events);
    pcap_close(b);
    pcap_close(a);
}

static void echo(unsigned char *user, const struct pcap_pkthdr *header, const unsigned char *bytes)
{
    REQUIRE(pcap_inject((pcap_t *)user, bytes, header->caplen) == (int)header->caplen);
}

static void *echo_frames(void *device)
{
    REQUIRE(pcap_loop(device, 3000, echo, device) == 0);
    return NULL;
}

/* A handle sends in the callback of its own loop. */
static void check_both_ways(void)
{
    pcap_t *a = open_device(device_a, 0), *b = open_device(device_b, 0);
    pthread_t echoing;
    REQUIRE(pthread_create(&echoing, NULL, echo_frames, b) == 0);
    struct pcap_pkthdr *header;
    for (unsigned number = 0; number < 3000; number += 100) {
        send_frames(a, number, 100);
        for (unsigned at = number; at < number + 100; at++)
            REQUIRE(number_of(receive(a, &header)) == at);
    }
    REQUIRE(pthread_join(echoing, NULL) == 0);
    pcap_close(a);
    pcap_close(b);
}

/* ---- what frames look like ---- */

static void check_frames(void)
{
    pcap_t *b = open_device(device_b, 0);
    char error[PCAP_ERRBUF_SIZE];
    pcap_t *a = pcap_create(device_a, error);
    REQUIRE(a != NULL);
    REQUIRE(pcap_datalink(a) == PCAP_ERROR_NOT_ACTIVATED && pcap_fileno(a) < 0);
    error[0] = 0;
    REQUIRE(pcap_setnonblock(a, 1, error) == 0);
    REQUIRE(pcap_getnonblock(a, error) == PCAP_ERROR_NOT_ACTIVATED && strstr(error, "activate"));
    REQUIRE(pcap_set_snaplen(a, 3000) == 0 && pcap_set_promisc(a, 1) == 0 && pcap_set_timeout(a, 0) == 0);
    REQUIRE(pcap_can_set_rfmon(a) == 0 && pcap_set_buffer_size(a, 4 << 20) == 0);
    REQUIRE(pcap_set_immediate_mode(a, 1) == 0 && pcap_set_tstamp_type(a, PCAP_TSTAMP_HOST) == 0);
    REQUIRE(pcap_set_tstamp_precision(a, PCAP_TSTAMP_PRECISION_NANO) == 0);
    int *list;
    REQUIRE(pcap_list_tstamp_types(a, &list) == 1 && list[0] == PCAP_TSTAMP_HOST);
    pcap_free_tstamp_types(list);
    REQUIRE(pcap_activate(a) == 0);
    REQUIRE(pcap_getnonblock(a, error) == 1 && pcap_setnonblock(a, 0, error) == 0);
    REQUIRE(pcap_activate(a) == PCAP_ERROR_ACTIVATED && pcap_set_snaplen(a, 1) == PCAP_ERROR_ACTIVATED);
    REQUIRE(pcap_datalink(a) == DLT_EN10MB && pcap_snapshot(a) == 3000 && !pcap_is_swapped(a));
    REQUIRE(pcap_list_datalinks(a, &list) == 1 && list[0] == DLT_EN10MB);
    pcap_free_datalinks(list);
    REQUIRE(pcap_set_datalink(a, DLT_EN10MB) == 0 && pcap_set_datalink(a, DLT_RAW) < 0);
    REQUIRE(pcap_get_tstamp_precision(a) == PCAP_TSTAMP_PRECISION_NANO && pcap_file(a) == NULL);
    REQUIRE(pcap_bufsize(a) >= 2048 * 2048 && pcap_major_version(a) == 2 && pcap_minor_version(a) == 4);
    REQUIRE(pcap_setdirection(a, PCAP_D_IN) == 0 && pcap_setdirection(a, PCAP_D_INOUT) == 0);
    REQUIRE(pcap_setdirection(a, PCAP_D_OUT) == PCAP_ERROR && strlen(pcap_geterr(a)) > 0);
    /* A filter sees the whole of a frame that lies in several slots; the program gets no more than it requested. */
    struct bpf_program program;
    REQUIRE(pcap_compile(a, &program, "no such filter", 1, 0) == PCAP_ERROR && strlen(pcap_geterr(a)) > 0);
    REQUIRE(pcap_compile(a, &program, "greater 4000 and ether[4990] = 0x5a", 1, 0) == 0);
    REQUIRE(pcap_setfilter(a, &program) == 0);
    pcap_freecode(&program);
    for (unsigned number = 0; number < 20; number++) {
        int length = number % 2 ? 5000 : 1000;
        REQUIRE(pcap_inject(b, frame(number, length), (size_t)length) == length);
    }
    struct timeval now;
    char name[] = "/tmp/pcap_device-XXXXXX";
    int file = mkstemp(name);
    REQUIRE(file >= 0);
    pcap_dumper_t *dumper = pcap_dump_open(a, name);
    REQUIRE(dumper != NULL);
    struct pcap_pkthdr *header, first = {0};
    for (unsigned number = 1; number < 20; number += 2) {
        const unsigned char *bytes = receive(a, &header);
        REQUIRE(header->len == 5000 && header->caplen == 3000);
        REQUIRE(memcmp(bytes, frame(number, 5000), 3000) == 0);
        gettimeofday(&now, NULL);
        REQUIRE(header->ts.tv_usec < 1000000000 && labs(now.tv_sec - header->ts.tv_sec) <= 60);
        if (number == 1)
            first = *header;
        pcap_dump((unsigned char *)dumper, header, bytes);
    }
    pcap_dump_close(dumper);
    /* The file is one of nanoseconds, as the device was; it is read past us. */
    pcap_t *offline = pcap_open_offline_with_tstamp_precision(name, PCAP_TSTAMP_PRECISION_NANO, error);
    REQUIRE(offline != NULL && pcap_snapshot(offline) == 3000);
    for (unsigned number = 1; number < 20; number += 2) {
        const unsigned char *bytes = receive(offline, &header);
        REQUIRE(header->len == 5000 && memcmp(bytes, frame(number, 5000), 3000) == 0);
        REQUIRE(number != 1 ||
                (header->ts.tv_sec == first.ts.tv_sec && header->ts.tv_usec == first.ts.tv_usec));
    }
    const unsigned char *bytes;
    REQUIRE(pcap_next_ex(offline, &header, &bytes) == PCAP_ERROR_BREAK);
    pcap_close(offline);
    close(file);
    unlink(name);
    pcap_close(a);
    pcap_close(b);
    /* A handle that was closed is known for that. */
    REQUIRE(pcap_next_ex(a, &header, &bytes) == PCAP_ERROR && pcap_inject(a, frame(0, 60), 60) == PCAP_ERROR);
}

/* A and B are on a switch, which drops what A has no room for. */
static void check_drops(void)
{
    pcap_t *a = open_device(device_a, 0), *b = open_device(device_b, 0);
    send_frames(b, 0, 5000);
    struct pcap_stat counts;
    unsigned slots = (unsigned)pcap_bufsize(a) / 2112, dropped = 5000 - (slots - 1);
    do {
        REQUIRE(pcap_stats(a, &counts) == 0 && counts.ps_drop <= dropped);
    } while (counts.ps_drop < dropped);
    REQUIRE(counts.ps_recv == 0 && counts.ps_ifdrop == 0);
    struct pcap_pkthdr *header;
    for (unsigned number = 0; number < slots - 1; number++)
        REQUIRE(number_of(receive(a, &header)) == number);
    REQUIRE(pcap_stats(a, &counts) == 0 && counts.ps_recv == slots - 1 && counts.ps_drop == dropped);
    pcap_close(a);
    pcap_close(b);
}

/* The system's loopback is served by the system's libpcap, beside a device of another kind. */
static void check_system(void)
{
    pcap_t *a = open_device(device_a, 0), *lo = open_device("lo", 10);
    REQUIRE(is_writable(pcap_get_selectable_fd(lo), PATIENCE_MS));
    struct bpf_program program;
    REQUIRE(pcap_compile(lo, &program, "ether proto 0x88b5", 1, 0) == 0 && pcap_setfilter(lo, &program) == 0);
    pcap_freecode(&program);
    send_frames(lo, 7, 1);
    struct pcap_pkthdr *header;
    REQUIRE(number_of(receive(lo, &header)) == 7);
    REQUIRE(pcap_setdirection(lo, PCAP_D_OUT) == 0);
    pcap_breakloop(lo);
    REQUIRE(pcap_loop(lo, -1, count_and_break, NULL) == PCAP_ERROR_BREAK);
    pcap_close(lo);
    pcap_close(a);
}

static void await_success(pid_t child)
{
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A device belongs to the process that opened it. A and B are on a switch. */
static void check_fork(void)
{
    pcap_t *a = open_device(device_a, 10), *b = open_device(device_b, 10);
    struct pcap_pkthdr *header;
    int descriptor = pcap_get_selectable_fd(b);
    REQUIRE(descriptor >= 0 && !is_readable(descriptor, 0));
    send_frames(b, 1, 1);
    const unsigned char *held = receive(a, &header);
    REQUIRE(number_of(held) == 1);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(PATIENCE_MS / 1000);
        const unsigned char *bytes;
        struct pcap_stat counts;
        REQUIRE(number_of(held) == 0);
        REQUIRE(pcap_next_ex(a, &header, &bytes) == PCAP_ERROR);
        REQUIRE(strstr(pcap_geterr(a), "a child of that process") != NULL);
        REQUIRE(pcap_next(a, header) == NULL);
        REQUIRE(pcap_dispatch(a, 1, count_and_break, NULL) == PCAP_ERROR);
        REQUIRE(pcap_loop(a, 1, count_and_break, NULL) == PCAP_ERROR);
        errno = 0;
        REQUIRE(pcap_inject(a, frame(9, 60), 60) == PCAP_ERROR && errno == EBADF);
        REQUIRE(pcap_sendpacket(a, frame(9, 60), 60) == PCAP_ERROR);
        REQUIRE(pcap_stats(a, &counts) == PCAP_ERROR);
        REQUIRE(pcap_get_selectable_fd(a) == PCAP_ERROR);
        pcap_breakloop(a);
        pcap_close(a);
        pcap_close(b);
        /* A device of its own, which sends what it took though nothing closes it. */
        pcap_t *own = open_device("vale0:own", 10);
        send_frames(own, 2, 1);
        exit(0);
    }
    await_success(child);
    REQUIRE(number_of(receive(a, &header)) == 2);
    REQUIRE(is_readable(descriptor, PATIENCE_MS));
    send_frames(b, 3, 1);
    REQUIRE(number_of(receive(a, &header)) == 3);
    /* Devices end with their process, though a child of it lives. */
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        close(ends[1]);
        exit(read(ends[0], ends, 1) == 0 ? 0 : 1);
    }
    pcap_close(a);
    char error[PCAP_ERRBUF_SIZE];
    while ((a = pcap_open_live(device_a, 262144, 1, 10, error)) == NULL)
        sched_yield();
    close(ends[1]);
    await_success(child);
    /* Another program. */
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        execlp("true", "true", NULL);
    await_success(child);
    send_frames(a, 4, 1);
    while (number_of(receive(b, &header)) != 4) {
    }
    pcap_close(a);
    pcap_close(b);
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {
    {"breakloop", check_breakloop}, {"descriptor", check_descriptor}, {"timeout", check_timeout},
    {"full", check_full},           {"room", check_room},             {"both-ways", check_both_ways},
    {"frames", check_frames},       {"drops", check_drops},           {"system", check_system},
    {"fork", check_fork},
};

static void replay(const char *name)
{
    char error[PCAP_ERRBUF_SIZE];
    pcap_t *file = pcap_open_offline(name, error);
    REQUIRE(file != NULL);
    pcap_t *device = open_device(device_a, 0);
    struct pcap_pkthdr *header;
    const unsigned char *bytes;
    int status;
    while ((status = pcap_next_ex(file, &header, &bytes)) == 1)
        REQUIRE(pcap_inject(device, bytes, header->caplen) == (int)header->caplen);
    REQUIRE(status == PCAP_ERROR_BREAK);
    pcap_close(device);
    pcap_close(file);
}

int main(int count, char **arguments)
{
    REQUIRE(count >= 4);
    if (strcmp(arguments[1], "replay") == 0) {
        device_a = arguments[3];
        replay(arguments[2]);
        return 0;
    }
    REQUIRE(count == 5);
    device_a = arguments[3];
    device_b = arguments[4];
    for (size_t at = 0; at < sizeof checks / sizeof *checks; at++) {
        if (strcmp(checks[at].name, arguments[2]) == 0) {
            checks[at].run();
            return 0;
        }
    }
    fprintf(stderr, "there is no check %s\n", arguments[2]);
    return 1;
}
