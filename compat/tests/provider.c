/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "provider.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <net/netmap_user.h>

enum {
    MAX_REGIONS = 128,
    MAX_FDS = 64,
    IF_BYTES = 1024,
    RINGS_AT = 64 * 1024,
    RING_BYTES = 256 + PROVIDER_SLOTS * 16,
    BUFFERS_AT = 128 * 1024,
    ALL_RINGS = 2 * (PROVIDER_RINGS + 1)
};

struct nmreq_register provider_last_register;
struct nmreq provider_last_legacy;
int provider_open_devices;

static struct {
    char name[NETMAP_REQ_IFNAMSIZ]; /* of the port that has it for itself */
    int memfd;                      /* 0: not there */
    char *memory;
    int binds;
} regions[MAX_REGIONS];

static struct {
    int is_device;
    int bound;
} devices[MAX_FDS];

/* ---- Regions ---- */

/* const members are written once, by the provider. */
#define PROVIDE(type, place, value) (*(type *)(uintptr_t) & (place) = (value))

static void make_rings(char *memory, const struct nmreq_opt_offsets *offsets)
{
    int i, s;

    if ((uintptr_t)memory % NM_CACHE_ALIGN != 0) /* a program that gave such memory gets no rings */
        return;
    for (i = 0; i < ALL_RINGS; i++) {
        struct netmap_ring *ring = (struct netmap_ring *)(void *)(memory + RINGS_AT + i * RING_BYTES);
        int is_rx = i >= ALL_RINGS / 2;

        memset(ring, 0, RING_BYTES);
        PROVIDE(int64_t, ring->buf_ofs, BUFFERS_AT - (RINGS_AT + i * RING_BYTES));
        PROVIDE(uint32_t, ring->num_slots, PROVIDER_SLOTS);
        PROVIDE(uint32_t, ring->nr_buf_size, PROVIDER_BUF_SIZE);
        PROVIDE(uint16_t, ring->ringid, (uint16_t)(i % (ALL_RINGS / 2)));
        PROVIDE(uint16_t, ring->dir, (uint16_t)is_rx);
        if (offsets != NULL)
            PROVIDE(uint64_t, ring->offset_mask, (UINT64_C(1) << offsets->nro_offset_bits) - 1);
        ring->tail = is_rx ? 0 : PROVIDER_SLOTS - 1;
        for (s = 0; s < PROVIDER_SLOTS; s++) {
            ring->slot[s].buf_idx = (uint32_t)(2 + i * PROVIDER_SLOTS + s);
            ring->slot[s].ptr = offsets != NULL ? offsets->nro_initial_offset : 0;
        }
    }
}

static int region_of(const char *name, int wished)
{
    int id;

    if (wished != 0)
        return wished;
    if (strncmp(name, "vale", 4) != 0)
        return 1;
    for (id = 2; id < PROVIDER_EXTMEM_ID - 1; id++) {
        if (regions[id].name[0] == '\0' || strcmp(regions[id].name, name) == 0)
            break;
    }
    strcpy(regions[id].name, name);
    return id;
}

static void make_region(int id, const struct nmreq_opt_offsets *offsets)
{
    if (regions[id].memory != NULL)
        return;
    regions[id].memfd = memfd_create("region", 0);
    if (ftruncate(regions[id].memfd, PROVIDER_MEMSIZE) == 0)
        regions[id].memory =
            mmap(NULL, PROVIDER_MEMSIZE, PROT_READ | PROT_WRITE, MAP_SHARED, regions[id].memfd, 0);
    make_rings(regions[id].memory, offsets);
}

/* Write a netmap_if for a bind; returns its offset. */
static uint64_t make_interface(char *memory, int index, const struct nmreq_register *reg)
{
    uint64_t offset = (uint64_t)index * IF_BYTES;
    struct netmap_if *nifp = (struct netmap_if *)(void *)(memory + offset);
    int i;

    memset(nifp, 0, IF_BYTES);
    PROVIDE(uint32_t, nifp->ni_tx_rings, PROVIDER_RINGS);
    PROVIDE(uint32_t, nifp->ni_rx_rings, PROVIDER_RINGS);
    PROVIDE(uint32_t, nifp->ni_host_tx_rings, 1);
    PROVIDE(uint32_t, nifp->ni_host_rx_rings, 1);
    for (i = 0; i < ALL_RINGS; i++) {
        int ring = i % (ALL_RINGS / 2), is_rx = i >= ALL_RINGS / 2, is_host = ring == PROVIDER_RINGS;
        int wanted = reg->nr_mode == NR_REG_ONE_NIC  ? ring == reg->nr_ringid
                     : reg->nr_mode == NR_REG_NIC_SW ? 1
                     : reg->nr_mode == NR_REG_SW     ? is_host
                                                     : !is_host;

        if ((is_rx && (reg->nr_flags & NR_TX_RINGS_ONLY)) || (!is_rx && (reg->nr_flags & NR_RX_RINGS_ONLY)))
            wanted = 0;
        if (wanted)
            PROVIDE(ssize_t, nifp->ring_ofs[i], RINGS_AT + i * RING_BYTES - (ssize_t)offset);
    }
    return offset;
}

/* ---- Requests ---- */

static int refuse(int error)
{
    errno = error;
    return -1;
}

static int do_register(int fd, const char *name, struct nmreq_register *reg, uint64_t options)
{
    struct nmreq_opt_extmem *extmem = NULL;
    struct nmreq_opt_offsets *offsets = NULL;
    struct nmreq_option *option;
    int id, refused = 0;
    char *memory;

    provider_last_register = *reg;
    if (devices[fd].bound)
        return refuse(EBUSY);
    if (strcmp(name, "absent") == 0)
        return refuse(ENXIO);
    for (option = (struct nmreq_option *)(uintptr_t)options; option != NULL;
         option = (struct nmreq_option *)(uintptr_t)option->nro_next) {
        option->nro_status = 0;
        if (option->nro_reqtype == NETMAP_REQ_OPT_EXTMEM)
            extmem = (struct nmreq_opt_extmem *)(void *)option;
        else if (option->nro_reqtype == NETMAP_REQ_OPT_OFFSETS)
            offsets = (struct nmreq_opt_offsets *)(void *)option;
        else
            refused = option->nro_status = EOPNOTSUPP;
    }
    if (refused)
        return refuse(refused);
    if (extmem != NULL) {
        id = PROVIDER_EXTMEM_ID;
        if (extmem->nro_info.nr_memsize < PROVIDER_MEMSIZE)
            return refuse(ENOMEM);
        memory = (char *)(uintptr_t)extmem->nro_usrptr;
        extmem->nro_info.nr_buf_pool_objsize = PROVIDER_BUF_SIZE;
        regions[id].memory = memory;
        make_rings(memory, offsets);
    } else {
        id = region_of(name, reg->nr_mem_id);
        make_region(id, offsets);
        memory = regions[id].memory;
    }
    /* A mapping of this descriptor gets the region. */
    if (regions[id].memfd > 0 && dup2(regions[id].memfd, fd) < 0)
        return -1;
    devices[fd].bound = 1;
    reg->nr_offset = make_interface(memory, regions[id].binds++, reg);
    if (strcmp(name, "vale9:behind") == 0)
        reg->nr_offset = PROVIDER_MEMSIZE - 8;
    if (strcmp(name, "vale9:rings") == 0)
        PROVIDE(ssize_t, NETMAP_IF(memory, reg->nr_offset)->ring_ofs[4], PROVIDER_MEMSIZE);
    reg->nr_memsize = PROVIDER_MEMSIZE;
    reg->nr_mem_id = (uint16_t)id;
    reg->nr_tx_rings = reg->nr_rx_rings = PROVIDER_RINGS;
    reg->nr_tx_slots = reg->nr_rx_slots = PROVIDER_SLOTS;
    return 0;
}

static int do_control(int fd, struct nmreq_header *header)
{
    if (header->nr_version != NETMAP_API || header->nr_reserved != 0 || header->nr_body == 0)
        return refuse(EINVAL);
    if (header->nr_reqtype == NETMAP_REQ_PORT_INFO_GET) {
        struct nmreq_port_info_get *info = (struct nmreq_port_info_get *)(uintptr_t)header->nr_body;

        if (strcmp(header->nr_name, "absent") == 0)
            return refuse(ENXIO);
        info->nr_mem_id = (uint16_t)region_of(header->nr_name, 0);
        return 0;
    }
    if (header->nr_reqtype != NETMAP_REQ_REGISTER)
        return refuse(EINVAL);
    return do_register(fd, header->nr_name, (struct nmreq_register *)(uintptr_t)header->nr_body,
                       header->nr_options);
}

static int do_legacy(int fd, struct nmreq *req)
{
    struct nmreq_register reg;
    char name[sizeof(req->nr_name)];

    provider_last_legacy = *req;
    memset(&reg, 0, sizeof(reg));
    memcpy(name, req->nr_name, sizeof(name));
    reg.nr_mode = req->nr_flags & NR_REG_MASK;
    reg.nr_flags = req->nr_flags & ~(uint32_t)NR_REG_MASK;
    reg.nr_ringid = req->nr_ringid & NETMAP_RING_MASK;
    reg.nr_mem_id = req->nr_arg2;
    if (do_register(fd, name, &reg, 0) != 0)
        return -1;
    req->nr_offset = (uint32_t)reg.nr_offset;
    req->nr_memsize = (uint32_t)reg.nr_memsize;
    req->nr_arg2 = reg.nr_mem_id;
    req->nr_tx_rings = req->nr_rx_rings = PROVIDER_RINGS;
    return 0;
}

/* ---- What the C library would do ---- */

int open(const char *path, int flags, ...)
{
    int fd, mode = 0;
    va_list values;

    if (flags & O_CREAT) {
        va_start(values, flags);
        mode = va_arg(values, int);
        va_end(values);
    }
    if (strcmp(path, NETMAP_DEVICE_NAME) != 0)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    fd = memfd_create("device", 0);
    if (fd >= MAX_FDS) {
        syscall(SYS_close, fd);
        return refuse(EMFILE);
    }
    devices[fd].is_device = 1;
    provider_open_devices++;
    return fd;
}

int close(int fd)
{
    if (fd >= 0 && fd < MAX_FDS && devices[fd].is_device) {
        memset(&devices[fd], 0, sizeof(devices[fd]));
        provider_open_devices--;
    }
    return (int)syscall(SYS_close, fd);
}

int ioctl(int fd, unsigned long request, ...)
{
    void *argument;
    va_list values;

    va_start(values, request);
    argument = va_arg(values, void *);
    va_end(values);
    if (fd < 0 || fd >= MAX_FDS || !devices[fd].is_device)
        return (int)syscall(SYS_ioctl, fd, request, argument);
    switch (request) {
    case NIOCCTRL:
        return do_control(fd, (struct nmreq_header *)argument);
    case NIOCREGIF:
        return do_legacy(fd, (struct nmreq *)argument);
    default:
        return refuse(EOPNOTSUPP);
    }
}
