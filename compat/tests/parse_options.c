/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Option lists: the parser for a table of the program's own, and the options that port names have. */
#include <libnetmap.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "provider.h"

/* ---- A table of our own ---- */

static struct nmreq_parse_ctx seen;
static char value_of_key[2][32];
static int calls, fail_with;

static int remember(struct nmreq_parse_ctx *parse)
{
    int i;

    calls++;
    seen = *parse;
    for (i = 0; i < 2; i++) {
        value_of_key[i][0] = '\0';
        if (parse->keys[i] != NULL)
            snprintf(value_of_key[i], sizeof(value_of_key[i]), "%s", parse->keys[i]);
    }
    if (fail_with != 0) {
        errno = fail_with;
        return -1;
    }
    return 0;
}

static struct nmreq_opt_parser flag_option, sized_option, off_option;

static void make_table(void)
{
    flag_option.prefix = "flag";
    flag_option.parse = remember;
    flag_option.default_key = -1;
    flag_option.flags = NMREQ_OPTF_ALLOWEMPTY;
    flag_option.next = &sized_option;

    sized_option.prefix = "sized";
    sized_option.parse = remember;
    sized_option.default_key = 1;
    sized_option.nr_keys = 2;
    sized_option.keys[0].key = "maybe-here";
    sized_option.keys[0].id = 0;
    sized_option.keys[0].flags = NMREQ_OPTK_ALLOWEMPTY;
    sized_option.keys[1].key = "size";
    sized_option.keys[1].id = 1;
    sized_option.keys[1].flags = NMREQ_OPTK_MUSTSET;
    sized_option.next = &off_option;

    off_option.prefix = "off";
    off_option.parse = remember;
    off_option.flags = NMREQ_OPTF_DISABLED | NMREQ_OPTF_ALLOWEMPTY;
}

static void own_options(struct nmctx *ctx)
{
    static const char *const bad[] = {
        "flag",
        "@",
        "@=1",
        "@nosuch",
        "@flag=1",
        "@sized",
        "@sized=",
        "@sized:",
        "@sized:size",
        "@sized:size=",
        "@sized:other=1",
        "@sized:maybe-here=1",
        "@sized=1,",
        "@sized=1@@flag",
        "@sized:size=1,size=2",
        "@sized=1,size=2",
    };
    size_t i;

    make_table();
    CHECK(nmreq_options_decode("", &flag_option, NULL, ctx) == 0 && calls == 0);
    CHECK(nmreq_options_decode("@flag", &flag_option, &seen, ctx) == 0 && calls == 1);
    CHECK(seen.token == &seen && seen.ctx == ctx && seen.keys[0] == NULL);
    CHECK(nmreq_options_decode("@flag@sized=12", &flag_option, NULL, ctx) == 0 && calls == 3);
    CHECK(seen.keys[0] == NULL && strcmp(value_of_key[1], "12") == 0);
    CHECK(nmreq_options_decode("@sized:size=a=b,maybe_here", &flag_option, NULL, ctx) == 0);
    CHECK(seen.keys[0] != NULL && strcmp(value_of_key[0], "") == 0 && strcmp(value_of_key[1], "a=b") == 0);
    CHECK(nmreq_options_decode("@sized=7,maybe-here=x", &flag_option, NULL, ctx) == 0);
    CHECK(strcmp(value_of_key[0], "x") == 0 && strcmp(value_of_key[1], "7") == 0);

    calls = 0;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        errno = 0;
        CHECK_ROW(bad[i], nmreq_options_decode(bad[i], &flag_option, NULL, ctx) == -1);
        CHECK_ROW(bad[i], errno == EINVAL);
    }
    CHECK(calls == 1); /* the first option of "@sized=1@@flag" */
    errno = 0;
    CHECK(nmreq_options_decode("@off", &flag_option, NULL, ctx) == -1 && errno == EOPNOTSUPP);
    CHECK(calls == 1);
    fail_with = ENOSPC;
    CHECK(nmreq_options_decode("@flag@sized=1", &flag_option, NULL, ctx) == -1 && errno == ENOSPC);
    CHECK(calls == 2);
    fail_with = 0;
}

/* ---- Those of port names ---- */

static void conf_is_read(void)
{
    struct nmport_d *d =
        nmport_prepare("vale0:a@conf:rings=3,slots=64,rx-slots=128,host_rings=2,host-tx-rings=1");

    CHECK(d != NULL);
    if (d == NULL)
        return;
    CHECK(d->reg.nr_tx_rings == 3 && d->reg.nr_rx_rings == 3);
    CHECK(d->reg.nr_tx_slots == 64 && d->reg.nr_rx_slots == 128);
    CHECK(d->reg.nr_host_tx_rings == 1 && d->reg.nr_host_rx_rings == 2);
    CHECK(d->hdr.nr_options == 0 && d->fd == -1 && d->nifp == NULL);
    nmport_undo_prepare(d);
}

static void share_asks_the_device(void)
{
    struct nmport_d *d = nmport_prepare("netmap:b@share=vale0:other"), *e;

    CHECK(d != NULL && d->reg.nr_mem_id >= 2);
    e = nmport_prepare("netmap:c@share:port=netmap:d");
    CHECK(e != NULL && e->reg.nr_mem_id == 1);
    nmport_undo_prepare(d);
    nmport_undo_prepare(e);
    CHECK(provider_open_devices == 0);
}

static void offsets_are_enabled_by_the_program(void)
{
    struct nmreq_opt_offsets *option;
    struct nmport_d *d;

    errno = 0;
    CHECK(nmport_prepare("netmap:a@offset=128") == NULL && errno == EOPNOTSUPP);
    CHECK(nmport_enable_option("nosuch") == -1 && errno == EOPNOTSUPP);
    nmport_disable_option("nosuch");
    CHECK(nmport_enable_option("offset") == 0);
    d = nmport_prepare("netmap:a@offset=128,bits=12");
    CHECK(d != NULL);
    if (d != NULL) {
        option = (struct nmreq_opt_offsets *)(void *)nmreq_find_option(&d->hdr, NETMAP_REQ_OPT_OFFSETS);
        CHECK(option != NULL && option->nro_initial_offset == 128 && option->nro_max_offset == 128);
        CHECK(option != NULL && option->nro_offset_bits == 12 && option->nro_min_gap == 0);
        nmport_undo_prepare(d);
    }
    nmport_disable_option("conf");
    CHECK(nmport_prepare("netmap:a@conf:rings=1") == NULL && errno == EOPNOTSUPP);
    CHECK(nmport_enable_option("conf") == 0);
}

/* A port that exists already is as it was after a name that cannot be read. */
static void a_bad_name_changes_nothing(const char *file)
{
    static const char *const bad[] = {
        "eth0",
        "netmap:eth0-",
        "netmap:a@",
        "netmap:a@nosuch=1",
        "netmap:a@conf",
        "netmap:a@conf:rings=65536",
        "netmap:a@conf:slots=4294967296",
        "netmap:a@conf:rings=-1",
        "netmap:a@conf:rings=1x",
        "netmap:a@share=eth0",
        "netmap:a@share=netmap:b^",
        "netmap:a@share=netmap:b,x=1",
        "netmap:a@5@share=netmap:b",
        "netmap:a@share=netmap:b@share=vale0:c",
        "netmap:a@offset=1,bits=65",
        "netmap:a@offset=1@offset=1",
        "netmap:a@offset:bits=8",
        "netmap:a@extmem:if-num=3",
    };
    char twice[256];
    struct nmport_d *d = nmport_new(), before;
    size_t i;

    CHECK(d != NULL);
    if (d == NULL)
        return;
    before = *d;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        errno = 0;
        CHECK_ROW(bad[i], nmport_parse(d, bad[i]) == -1);
        CHECK_ROW(bad[i], errno == EINVAL);
        CHECK_ROW(bad[i], memcmp(d, &before, sizeof(before)) == 0);
    }
    errno = 0;
    CHECK(nmport_parse(d, "netmap:a@share=netmap:absent") == -1 && errno == ENXIO);
    CHECK(nmport_parse(d, "netmap:a@extmem=/nonexistent/file") == -1 && errno == ENOENT);
    snprintf(twice, sizeof(twice), "netmap:a@extmem=%s@extmem=%s", file, file);
    CHECK(nmport_parse(d, twice) == -1 && errno == EINVAL);
    CHECK(memcmp(d, &before, sizeof(before)) == 0);
    CHECK(nmport_parse(d, "netmap:fine^") == 0 && d->reg.nr_mode == NR_REG_SW);
    nmport_undo_parse(d);
    CHECK(memcmp(d, &before, sizeof(before)) == 0);
    nmport_delete(d);
}

static void extmem_maps_a_file(const char *file)
{
    char spec[256];
    struct nmport_d *d;
    struct nmreq_pools_info *info;

    snprintf(spec, sizeof(spec), "netmap:a@extmem:file=%s,if-num=5,ring-size=1024,buf-num=200,buf-size=4096",
             file);
    d = nmport_prepare(spec);
    CHECK(d != NULL && d->extmem != NULL);
    if (d == NULL)
        return;
    info = nmport_extmem_getinfo(d);
    CHECK(info == &d->extmem->nro_info && d->extmem->nro_usrptr != 0);
    CHECK(info->nr_memsize == PROVIDER_MEMSIZE);
    CHECK(info->nr_if_pool_objtotal == 5 && info->nr_if_pool_objsize == 0);
    CHECK(info->nr_ring_pool_objtotal == 0 && info->nr_ring_pool_objsize == 1024);
    CHECK(info->nr_buf_pool_objtotal == 200 && info->nr_buf_pool_objsize == 4096);
    CHECK(nmport_clone(d) == NULL && errno == EINVAL);
    nmport_undo_parse(d);
    CHECK(d->extmem == NULL && d->hdr.nr_options == 0 && nmport_extmem_getinfo(d) == NULL);
    nmport_delete(d);
}

/* ---- Lists of options ---- */

static void option_lists(void)
{
    struct nmreq_option a, b, c, *each;
    struct nmreq_header header;
    int count = 0;

    memset(&a, 0, sizeof(a));
    b = c = a;
    a.nro_reqtype = NETMAP_REQ_OPT_CSB;
    b.nro_reqtype = NETMAP_REQ_OPT_EXTMEM;
    c.nro_reqtype = NETMAP_REQ_OPT_OFFSETS;
    nmreq_header_init(&header, NETMAP_REQ_CSB_ENABLE, NULL);
    CHECK(header.nr_version == NETMAP_API && header.nr_reqtype == NETMAP_REQ_CSB_ENABLE);
    CHECK(header.nr_reserved == 0 && header.nr_name[0] == '\0' && header.nr_body == 0);
    nmreq_push_option(&header, &a);
    nmreq_push_option(&header, &b);
    nmreq_push_option(&header, &c);
    nmreq_foreach_option(&header, each) count++;
    CHECK(count == 3);
    CHECK(nmreq_find_option(&header, NETMAP_REQ_OPT_CSB) == &a);
    CHECK(nmreq_find_option(&header, NETMAP_REQ_OPT_SYNC_KLOOP_MODE) == NULL);
    nmreq_remove_option(&header, &b);
    CHECK(nmreq_find_option(&header, NETMAP_REQ_OPT_EXTMEM) == NULL && b.nro_next == 0);
    nmreq_remove_option(&header, &b);
    nmreq_remove_option(&header, &c);
    CHECK(header.nr_options == (uint64_t)(uintptr_t)&a && a.nro_next == 0);
    nmreq_remove_option(&header, &a);
    CHECK(header.nr_options == 0);

    each = (struct nmreq_option *)nmctx_malloc(nmctx_get(), sizeof(*each));
    nmreq_push_option(&header, each);
    nmreq_free_options(&header);
    CHECK(header.nr_options == 0);

    CHECK(strcmp(nmreq_option_name(NETMAP_REQ_OPT_EXTMEM), "extmem") == 0);
    CHECK(strcmp(nmreq_option_name(99), "unknown") == 0);
}

static void regions_of_ports(struct nmctx *ctx)
{
    const char *name = "netmap:a@conf", *start;

    CHECK(nmreq_get_mem_id(&name, ctx) == 1 && strcmp(name, "@conf") == 0);
    start = name = "netmap:absent";
    CHECK(nmreq_get_mem_id(&name, ctx) == -1 && errno == ENXIO && name == start);
    start = name = "eth0";
    CHECK(nmreq_get_mem_id(&name, ctx) == -1 && errno == EINVAL && name == start);
    CHECK(provider_open_devices == 0);
}

int main(void)
{
    struct nmctx *ctx = nmctx_get();
    char file[] = "/tmp/ringroad-parse-options-XXXXXX";
    int fd = mkstemp(file);

    CHECK(fd >= 0 && ftruncate(fd, PROVIDER_MEMSIZE) == 0);
    ctx->verbose = 0;
    own_options(ctx);
    conf_is_read();
    share_asks_the_device();
    offsets_are_enabled_by_the_program();
    a_bad_name_changes_nothing(file);
    extmem_maps_a_file(file);
    option_lists();
    regions_of_ports(ctx);
    unlink(file);
    close(fd);
    return CHECK_RESULT();
}
