/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Common operations on /dev/netmap for the programs of this folder, with its calls only. */
#ifndef COMPAT_TESTS_PRELOAD_DEVICE_H
#define COMPAT_TESTS_PRELOAD_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <net/netmap_user.h>

#include "../check.h"

struct port {
    int fd;
    char *memory;
    size_t bytes;
    struct netmap_if *interface;
};

/* Every wait ends with an event; only a failure takes so long. */
static inline void be_patient(void)
{
    alarm(30);
}

static inline int control(int fd, uint16_t type, const char *name, void *body)
{
    struct nmreq_header header = {.nr_version = NETMAP_API, .nr_reqtype = type, .nr_body = (uintptr_t)body};

    snprintf(header.nr_name, sizeof(header.nr_name), "%s", name);
    return ioctl(fd, NIOCCTRL, &header);
}

static inline int bind_port(int fd, const char *name, struct nmreq_register *body)
{
    memset(body, 0, sizeof(*body));
    body->nr_mode = NR_REG_ALL_NIC;
    return control(fd, NETMAP_REQ_REGISTER, name, body);
}

static inline void map_port(struct port *port, uint64_t bytes, uint64_t offset)
{
    port->bytes = bytes;
    port->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
    NEED(port->memory != MAP_FAILED);
    port->interface = NETMAP_IF(port->memory, offset);
}

static inline struct port open_port(const char *name)
{
    struct nmreq_register body;
    struct port port;

    port.fd = open("/dev/netmap", O_RDWR);
    NEED(port.fd >= 0);
    NEED(bind_port(port.fd, name, &body) == 0);
    map_port(&port, body.nr_memsize, body.nr_offset);
    return port;
}

static inline void close_port(struct port *port)
{
    munmap(port->memory, port->bytes);
    close(port->fd);
}

/* Puts a broadcast frame into the next slot; the next sync sends it. */
static inline void put_frame(struct port *port, unsigned char number)
{
    struct netmap_ring *ring = NETMAP_TXRING(port->interface, 0);
    unsigned char *buffer = (unsigned char *)NETMAP_BUF(ring, ring->slot[ring->head].buf_idx);

    NEED(!nm_ring_empty(ring));
    memset(buffer, number, 60);
    memset(buffer, 0xFF, 6);
    buffer[6] = 2;
    ring->slot[ring->head].len = 60;
    ring->head = ring->cur = nm_ring_next(ring, ring->head);
}

/* Sends a frame, and syncs until the switch has taken it: then it is in the receiver's ring. */
static inline void send_frame(struct port *port, unsigned char number)
{
    put_frame(port, number);
    do {
        NEED(ioctl(port->fd, NIOCTXSYNC, NULL) == 0);
    } while (nm_tx_pending(NETMAP_TXRING(port->interface, 0)));
}

/* Number of the next frame that has been received, -1: there is none. The next sync gives its slot back. */
static inline int take_frame(struct port *port)
{
    struct netmap_ring *ring = NETMAP_RXRING(port->interface, 0);
    int number;

    if (nm_ring_empty(ring)) {
        return -1;
    }
    number = (unsigned char)NETMAP_BUF(ring, ring->slot[ring->head].buf_idx)[59];
    ring->head = ring->cur = nm_ring_next(ring, ring->head);
    return number;
}

/* Whether a switch has a port of this name. */
static inline int is_there(const char *name)
{
    struct nmreq_vale_list body = {0};
    int fd = open("/dev/netmap", O_RDWR);
    int there;

    NEED(fd >= 0);
    there = control(fd, NETMAP_REQ_VALE_LIST, name, &body) == 0 && body.nr_port_idx < 255;
    close(fd);
    return there;
}

/* Waits until it has none: the daemon detects closed descriptors by itself. */
static inline void await_gone(const char *name)
{
    while (is_there(name)) {
        sched_yield();
    }
}

/* The end of a child. */
static inline void await_success(pid_t child)
{
    int status;

    NEED(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Threads of this process that sleep in a system call: state S in their /proc/self/task/N/stat. */
static inline void await_sleep(pid_t thread)
{
    char path[64];
    char text[512];
    char *state;

    do {
        FILE *file;
        size_t count;

        sched_yield();
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
        file = fopen(path, "r");
        NEED(file != NULL);
        count = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        text[count] = 0;
        state = strrchr(text, ')');
        NEED(state != NULL);
    } while (state[2] != 'S');
}

/* Sends a frame from another thread, once the requesting thread sleeps. */
struct late_frame {
    struct port *port;
    pid_t sleeper;
    pthread_t thread;
};

static inline void *send_late(void *argument)
{
    struct late_frame *late = argument;

    await_sleep(late->sleeper);
    send_frame(late->port, 77);
    return NULL;
}

static inline void send_when_asleep(struct late_frame *late, struct port *port)
{
    late->port = port;
    late->sleeper = gettid();
    NEED(pthread_create(&late->thread, NULL, send_late, late) == 0);
}

#endif
