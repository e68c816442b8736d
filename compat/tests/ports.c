/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The life of ports: bound, mapped, shared, copied, sent through and closed, in contexts with and without a lock. */
#include <libnetmap.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "provider.h"

static char last_message[1024];
static int messages, allocated, locks, unlocks;

static void keep_message(struct nmctx *ctx, const char *message)
{
    (void)ctx;
    messages++;
    snprintf(last_message, sizeof(last_message), "%s", message);
}

static void *count_malloc(struct nmctx *ctx, size_t size)
{
    (void)ctx;
    allocated++;
    return malloc(size);
}

static void count_free(struct nmctx *ctx, void *memory)
{
    (void)ctx;
    if (memory != NULL)
        allocated--;
    free(memory);
}

static void count_locks(struct nmctx *ctx, int lock)
{
    (void)ctx;
    if (lock)
        locks++;
    else
        unlocks++;
}

static int is_mapped(void *memory)
{
    return msync(memory, 4096, MS_ASYNC) == 0 || errno != ENOMEM;
}

static void a_port_opens_and_closes(void)
{
    struct nmport_d *d = nmport_open("vale0:a");
    void *memory;

    CHECK(d != NULL);
    if (d == NULL)
        return;
    CHECK(d->register_done && d->mmap_done && d->fd >= 0 && provider_open_devices == 1);
    CHECK(d->mem != NULL && d->mem->mem_id == d->reg.nr_mem_id && d->mem->refcount == 1);
    CHECK(d->mem->size == PROVIDER_MEMSIZE && !d->mem->is_extmem && d->ctx == nmctx_get());
    CHECK((char *)d->nifp == (char *)d->mem->mem + d->reg.nr_offset);
    CHECK(d->first_tx_ring == 0 && d->last_tx_ring == 1 && d->cur_tx_ring == 0);
    CHECK(d->first_rx_ring == 0 && d->last_rx_ring == 1 && d->cur_rx_ring == 0);
    CHECK(NETMAP_TXRING(d->nifp, 1)->num_slots == PROVIDER_SLOTS);
    CHECK(nmport_register(d) == -1 && errno == EINVAL);
    CHECK(nmport_mmap(d) == -1 && errno == EINVAL);
    memory = d->mem->mem;
    CHECK(is_mapped(memory));
    nmport_close(d);
    CHECK(provider_open_devices == 0 && nmctx_get()->mem_descs == NULL && !is_mapped(memory));
}

/* Which rings are bound shows in the offsets; there may be none in a direction. */
static void rings_are_found(void)
{
    static const struct {
        const char *spec;
        uint16_t first_tx, last_tx, first_rx, last_rx;
    } rows[] = {
        {"netmap:a", 0, 1, 0, 1},     {"netmap:a-1", 1, 1, 1, 1}, {"netmap:a^", 2, 2, 2, 2},
        {"netmap:a*", 0, 2, 0, 2},    {"netmap:a/T", 0, 1, 3, 2}, {"netmap:a/R", 3, 2, 0, 1},
        {"netmap:a-0/R", 3, 2, 0, 0},
    };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nmport_d *d = nmport_open(rows[i].spec);

        CHECK_ROW(rows[i].spec, d != NULL);
        if (d == NULL)
            continue;
        CHECK_ROW(rows[i].spec, d->first_tx_ring == rows[i].first_tx && d->last_tx_ring == rows[i].last_tx);
        CHECK_ROW(rows[i].spec, d->first_rx_ring == rows[i].first_rx && d->last_rx_ring == rows[i].last_rx);
        nmport_close(d);
    }
}

static void regions_are_shared_within_a_context(void)
{
    struct nmport_d *a = nmport_open("netmap:a"), *b = nmport_open("netmap:b"), *c = nmport_open("vale0:c"),
                    *d;

    CHECK(a != NULL && b != NULL && c != NULL);
    CHECK(a->mem == b->mem && a->mem->refcount == 2 && a->nifp != b->nifp);
    CHECK(c->mem != a->mem);
    d = nmport_open("netmap:d@share=vale0:c");
    CHECK(d != NULL && d->mem == c->mem);
    CHECK(provider_last_register.nr_mem_id == c->reg.nr_mem_id);
    nmport_close(a);
    CHECK(b->mem->refcount == 1 && NETMAP_TXRING(b->nifp, 0)->num_slots == PROVIDER_SLOTS);
    nmport_close(b);
    nmport_close(c);
    nmport_close(d);
    CHECK(nmctx_get()->mem_descs == NULL && provider_open_devices == 0);
}

static void a_port_is_copied(void)
{
    struct nmport_d *d = nmport_open("vale0:a/x"), *copy;

    CHECK(d != NULL);
    copy = nmport_clone(d);
    CHECK(copy != NULL && copy->fd == -1 && copy->nifp == NULL && copy->mem == NULL && copy->ctx == d->ctx);
    CHECK(strcmp(copy->hdr.nr_name, "vale0:a") == 0 && copy->reg.nr_flags == NR_EXCLUSIVE);
    CHECK(copy->hdr.nr_body == (uint64_t)(uintptr_t)&copy->reg && copy->hdr.nr_options == 0);
    copy->reg.nr_mode = NR_REG_ONE_NIC;
    copy->reg.nr_ringid = 1;
    CHECK(nmport_open_desc(copy) == 0 && copy->mem == d->mem && copy->first_tx_ring == 1);
    nmport_close(d);
    CHECK(NETMAP_TXRING(copy->nifp, 1)->num_slots == PROVIDER_SLOTS);
    nmport_undo_open_desc(copy);
    CHECK(copy->fd == -1 && copy->nifp == NULL && !copy->mmap_done && !copy->register_done);
    CHECK(nmport_open_desc(copy) == 0);
    nmport_close(copy);
}

static void frames_are_injected(void)
{
    struct nmport_d *d = nmport_open("vale0:a");
    struct netmap_ring *first, *second;
    char frame[2 * PROVIDER_BUF_SIZE + 100], back[sizeof(frame)];
    size_t i;
    int sent;

    for (i = 0; i < sizeof(frame); i++)
        frame[i] = (char)i;
    first = NETMAP_TXRING(d->nifp, 0);
    second = NETMAP_TXRING(d->nifp, 1);
    CHECK(nmport_inject(d, frame, 60) == 60 && first->head == 1 && first->cur == 1);
    CHECK(first->slot[0].len == 60 && first->slot[0].flags == 0);
    CHECK(memcmp(NETMAP_BUF(first, first->slot[0].buf_idx), frame, 60) == 0);

    CHECK(nmport_inject(d, frame, sizeof(frame)) == (int)sizeof(frame) && first->head == 4);
    CHECK(first->slot[1].flags == NS_MOREFRAG && first->slot[2].flags == NS_MOREFRAG &&
          first->slot[3].flags == 0);
    CHECK(first->slot[1].len == PROVIDER_BUF_SIZE && first->slot[3].len == 100);
    for (i = 0; i < 3; i++)
        memcpy(back + i * PROVIDER_BUF_SIZE, NETMAP_BUF(first, first->slot[1 + i].buf_idx),
               first->slot[1 + i].len);
    CHECK(memcmp(back, frame, sizeof(frame)) == 0);

    /* 11 of 15 slots are left: three long frames, two short ones; then the other ring takes over. */
    for (sent = 0; sent < 3; sent++)
        CHECK(nmport_inject(d, frame, sizeof(frame)) > 0);
    CHECK(nm_ring_space(first) == 2 && d->cur_tx_ring == 0);
    CHECK(nmport_inject(d, frame, sizeof(frame)) > 0 && d->cur_tx_ring == 1);
    CHECK(nm_ring_space(first) == 2 && second->head == 3);
    while (nmport_inject(d, frame, 60) > 0)
        sent++;
    CHECK(sent == 3 + 12 + 2 && nm_ring_empty(first) && nm_ring_empty(second));
    nmport_close(d);

    d = nmport_open("vale1:b/R");
    CHECK(d != NULL && nmport_inject(d, frame, 60) == 0);
    nmport_close(d);
}

static void offsets_are_kept_when_sending(void)
{
    struct nmport_d *d = nmport_prepare("vale0:offsets");
    struct netmap_ring *ring;
    char frame[PROVIDER_BUF_SIZE];

    memset(frame, 'x', sizeof(frame));
    CHECK(d != NULL && nmport_offset(d, 48, 64, 12, 0) == 0);
    CHECK(nmport_offset(d, 48, 64, 12, 0) == -1 && errno == EINVAL);
    CHECK(nmport_open_desc(d) == 0);
    ring = NETMAP_TXRING(d->nifp, 0);
    CHECK(ring->offset_mask == 4095 && NETMAP_ROFFSET(ring, &ring->slot[0]) == 48);
    CHECK(nmport_inject(d, frame, 60) == 60);
    CHECK(memcmp(NETMAP_BUF(ring, ring->slot[0].buf_idx) + 48, frame, 60) == 0);
    CHECK(nmport_inject(d, frame, sizeof(frame)) == (int)sizeof(frame));
    CHECK(ring->slot[1].len == PROVIDER_BUF_SIZE - 48 && ring->slot[2].len == 48);
    CHECK(nmport_offset(d, 1, 1, 8, 0) == -1 && errno == EINVAL);
    nmport_close(d);
}

/* A region in the program's memory; the file outlives the port that brought it while another uses it. */
static void extmem_is_used(void)
{
    char file[] = "/tmp/ringroad-ports-XXXXXX", spec[128];
    int fd = mkstemp(file);
    struct nmport_d *d, *copy;
    void *memory = calloc(1, PROVIDER_MEMSIZE + 8192);
    void *aligned = (void *)(((uintptr_t)memory + 4095) & ~(uintptr_t)4095);

    CHECK(fd >= 0 && ftruncate(fd, PROVIDER_MEMSIZE) == 0);
    d = nmport_prepare("netmap:a");
    CHECK(nmport_extmem(d, aligned, PROVIDER_MEMSIZE) == 0);
    CHECK(nmport_extmem(d, aligned, PROVIDER_MEMSIZE) == -1 && errno == EINVAL);
    CHECK(nmport_open_desc(d) == 0 && d->mem->is_extmem && d->mem->mem == aligned);
    CHECK(nmport_extmem_getinfo(d)->nr_buf_pool_objsize == PROVIDER_BUF_SIZE);
    CHECK(nmport_inject(d, "frame", 5) == 5);
    nmport_close(d);
    d = nmport_prepare("netmap:a");
    CHECK(nmport_extmem(d, (char *)aligned + 64, PROVIDER_MEMSIZE) == 0);
    CHECK(nmport_open_desc(d) == -1 && errno == EIO && d->fd == -1 && d->mem == NULL);
    nmport_undo_prepare(d);
    memset(memory, 0, PROVIDER_MEMSIZE + 8192);
    free(memory);

    snprintf(spec, sizeof(spec), "netmap:a@extmem=%s", file);
    d = nmport_open(spec);
    CHECK(d != NULL && d->mem->is_extmem);
    copy = nmport_clone(d);
    CHECK(copy != NULL && nmport_open_desc(copy) == 0 && copy->mem == d->mem);
    memory = d->mem->mem;
    nmport_close(d);
    CHECK(nmport_inject(copy, "frame", 5) == 5);
    nmport_close(copy);
    CHECK(!is_mapped(memory));
    d = nmport_open(spec);
    memory = d->mem->mem;
    nmport_close(d);
    CHECK(!is_mapped(memory));
    CHECK(nmctx_get()->mem_descs == NULL && provider_open_devices == 0);
    unlink(file);
    close(fd);
}

static void failures_are_reported(struct nmctx *ctx)
{
    struct nmreq_option unknown;
    struct nmport_d *d, before;

    messages = 0;
    errno = 0;
    CHECK(nmport_open("netmap:absent") == NULL && errno == ENXIO);
    CHECK(messages == 1 && strstr(last_message, "absent") != NULL);
    errno = 0;
    CHECK(nmport_open("nosuch:a") == NULL && errno == EINVAL && messages == 2);
    CHECK(nmport_open(NULL) == NULL && errno == EINVAL && messages == 3);

    d = nmport_prepare("netmap:a");
    CHECK(nmport_mmap(d) == -1 && errno == EINVAL && messages == 4);
    memset(&unknown, 0, sizeof(unknown));
    unknown.nro_reqtype = NETMAP_REQ_OPT_CSB;
    nmreq_push_option(&d->hdr, &unknown);
    before = *d;
    CHECK(nmport_register(d) == -1 && errno == EOPNOTSUPP && messages == 5);
    CHECK(strstr(last_message, "csb") != NULL);
    CHECK(memcmp(d, &before, sizeof(before)) == 0 && provider_open_devices == 0);
    nmreq_remove_option(&d->hdr, &unknown);
    nmport_undo_prepare(d);

    ctx->verbose = 0;
    CHECK(nmport_open("nosuch:a") == NULL && errno == EINVAL && messages == 5);
    ctx->verbose = 1;
    nmctx_ferror(ctx, "%s %d %ld %.1f %c %d %d %d", "many", 1, 2L, 3.5, 'x', 5, 6, 7);
    CHECK(strcmp(last_message, "many 1 2 3.5 x 5 6 7") == 0);
    nmport_close(NULL);
    nmport_undo_prepare(NULL);
    nmport_undo_open_desc(NULL);
}

/* The library does not trust the port's place that the device gives. */
static void a_region_is_not_left(void)
{
    errno = 0;
    CHECK(nmport_open("vale9:behind") == NULL && errno == EIO);
    errno = 0;
    CHECK(nmport_open("vale9:rings") == NULL && errno == EIO);
    CHECK(nmctx_get()->mem_descs == NULL && provider_open_devices == 0);
}

static void a_context_of_ones_own(void)
{
    struct nmctx own, *first = nmctx_get();
    struct nmport_d *a, *b;

    memset(&own, 0, sizeof(own));
    own.malloc = count_malloc;
    own.free = count_free;
    own.lock = count_locks;
    a = nmport_open("netmap:a");
    CHECK(nmctx_set_default(&own) == first && nmctx_get() == &own);
    b = nmport_open("netmap:b@conf:rings=2");
    CHECK(b != NULL && b->ctx == &own && b->mem != a->mem && own.mem_descs == b->mem);
    CHECK(allocated > 0 && locks > 0 && locks == unlocks);
    nmport_close(b);
    CHECK(allocated == 0 && own.mem_descs == NULL && locks == unlocks);
    CHECK(nmctx_set_default(NULL) == &own && nmctx_get() == first);
    nmport_close(a);

    /* Without functions of its own it has the library's. */
    memset(&own, 0, sizeof(own));
    nmctx_set_default(&own);
    b = nmport_open("netmap:b");
    CHECK(b != NULL);
    nmport_close(b);
    nmctx_set_default(first);
}

struct mapper {
    pthread_t thread;
    struct nmport_d *held;
    uint16_t own_region;
    int wrong;
};

/* Regions come and go: one that is held all the time, and one of this thread's own. */
static void *map_and_unmap(void *argument)
{
    struct mapper *mapper = (struct mapper *)argument;
    struct nmport_d *d = nmport_prepare("netmap:a");
    int i;

    /* The provider serves one thread; the regions of the context are what several share. */
    d->register_done = 1;
    d->fd = mapper->held->fd;
    d->reg.nr_memsize = PROVIDER_MEMSIZE;
    for (i = 0; i < 20000; i++) {
        d->reg.nr_mem_id = i % 2 ? mapper->held->reg.nr_mem_id : mapper->own_region;
        mapper->wrong += nmport_mmap(d) != 0 || d->mem->mem_id != d->reg.nr_mem_id;
        nmport_undo_mmap(d);
    }
    d->register_done = 0;
    nmport_undo_prepare(d);
    return NULL;
}

static void threads_share_the_regions(void)
{
    struct nmport_d *held = nmport_open("netmap:a");
    struct mapper mappers[4];
    int i;

    for (i = 0; i < 4; i++) {
        mappers[i].held = held;
        mappers[i].own_region = (uint16_t)(500 + i);
        mappers[i].wrong = 0;
        CHECK(pthread_create(&mappers[i].thread, NULL, map_and_unmap, &mappers[i]) == 0);
    }
    for (i = 0; i < 4; i++) {
        CHECK(pthread_join(mappers[i].thread, NULL) == 0);
        CHECK(mappers[i].wrong == 0);
    }
    CHECK(held->mem->refcount == 1);
    nmport_close(held);
    CHECK(nmctx_get()->mem_descs == NULL);
}

int main(void)
{
    struct nmctx *ctx = nmctx_get();

    ctx->error = keep_message;
    nmctx_threadsafe = 1;
    nmctx_set_threadsafe();
    CHECK(ctx->lock != NULL);
    a_port_opens_and_closes();
    rings_are_found();
    regions_are_shared_within_a_context();
    a_port_is_copied();
    frames_are_injected();
    offsets_are_kept_when_sending();
    extmem_is_used();
    failures_are_reported(ctx);
    a_region_is_not_left();
    a_context_of_ones_own();
    threads_share_the_regions();
    return CHECK_RESULT();
}
