/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The grammar of port names, of the library and of nm_parse: what is accepted, with its meaning, and what is not. */
#define NETMAP_WITH_LIBS
#include <net/netmap_user.h>
#include <libnetmap.h>

#include "check.h"

#define NAME_63 "a23456789012345678901234567890123456789012345678901234567890123"

/* Accepted by the library; `rest` is what it leaves for the options. */
static const struct {
    const char *spec;
    const char *name;
    uint32_t mode;
    uint16_t ring;
    uint64_t flags;
    uint16_t region;
    const char *rest;
} accepted[] = {
    {"netmap:eth0", "eth0", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"netmap:eth0&", "eth0&", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"netmap:vale0:0", "vale0:0", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"netmap:" NAME_63, NAME_63, NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"vale0:a", "vale0:a", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"vale:a", "vale:a", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"valeA_9:b", "valeA_9:b", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"netmap:x{1", "x{1", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"netmap:x}a_B", "x}a_B", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"vale0:a{1", "vale0:a{1", NR_REG_ALL_NIC, 0, 0, 0, ""},
    {"netmap:eth0^", "eth0", NR_REG_SW, 0, 0, 0, ""},
    {"netmap:eth0^3", "eth0", NR_REG_ONE_SW, 3, 0, 0, ""},
    {"netmap:eth0*", "eth0", NR_REG_NIC_SW, 0, 0, 0, ""},
    {"netmap:eth0-0", "eth0", NR_REG_ONE_NIC, 0, 0, 0, ""},
    {"netmap:eth0-4094", "eth0", NR_REG_ONE_NIC, 4094, 0, 0, ""},
    {"netmap:eth0/x", "eth0", NR_REG_ALL_NIC, 0, NR_EXCLUSIVE, 0, ""},
    {"netmap:eth0/z", "eth0", NR_REG_ALL_NIC, 0, NR_ZCOPY_MON, 0, ""},
    {"netmap:eth0/t", "eth0", NR_REG_ALL_NIC, 0, NR_MONITOR_TX, 0, ""},
    {"netmap:eth0/r", "eth0", NR_REG_ALL_NIC, 0, NR_MONITOR_RX, 0, ""},
    {"netmap:eth0/R", "eth0", NR_REG_ALL_NIC, 0, NR_RX_RINGS_ONLY, 0, ""},
    {"netmap:eth0/T", "eth0", NR_REG_ALL_NIC, 0, NR_TX_RINGS_ONLY, 0, ""},
    {"netmap:eth0-1/xTx", "eth0", NR_REG_ONE_NIC, 1, NR_EXCLUSIVE | NR_TX_RINGS_ONLY, 0, ""},
    {"netmap:eth0^/rt", "eth0", NR_REG_SW, 0, NR_MONITOR_RX | NR_MONITOR_TX, 0, ""},
    {"netmap:eth0@7", "eth0", NR_REG_ALL_NIC, 0, 0, 7, ""},
    {"netmap:eth0@65535", "eth0", NR_REG_ALL_NIC, 0, 0, 65535, ""},
    {"netmap:eth0@7@7", "eth0", NR_REG_ALL_NIC, 0, 0, 7, ""},
    {"netmap:x{1/xT@2", "x{1", NR_REG_ALL_NIC, 0, NR_EXCLUSIVE | NR_TX_RINGS_ONLY, 2, ""},
    {"netmap:eth0@conf:rings=2", "eth0", NR_REG_ALL_NIC, 0, 0, 0, "@conf:rings=2"},
    {"netmap:eth0*@3@conf:rings=2@4", "eth0", NR_REG_NIC_SW, 0, 0, 3, "@conf:rings=2@4"},
    {"netmap:eth0@", "eth0", NR_REG_ALL_NIC, 0, 0, 0, "@"},
};

/* Refused: by the first parser, or, where `by_header` is 0, by the second. */
static const struct {
    const char *spec;
    int by_header;
} refused[] = {
    {"", 1},
    {"eth0", 1},
    {"netmap", 1},
    {"netmap:", 1},
    {"netmap0:eth0", 1},
    {"vale0", 1},
    {"vale0:", 1},
    {"vale-0:a", 1},
    {"vale 0:a", 1},
    {"netmap:^", 1},
    {"netmap:@3", 1},
    {"netmap:{1", 1},
    {"netmap:x{", 1},
    {"netmap:x}", 1},
    {"netmap:x{1{2", 1},
    {"netmap:x{1}2", 1},
    {"netmap:x{a.b", 1},
    {"netmap:" NAME_63 "x", 1},
    {"netmap:eth0-", 0},
    {"netmap:eth0-x", 0},
    {"netmap:eth0--1", 0},
    {"netmap:eth0- 1", 0},
    {"netmap:eth0-4095", 0},
    {"netmap:eth0-99999999999999999999", 0},
    {"netmap:eth0^4095", 0},
    {"netmap:eth0^x", 0},
    {"netmap:eth0^*", 0},
    {"netmap:eth0*1", 0},
    {"netmap:eth0-1^", 0},
    {"netmap:eth0/", 0},
    {"netmap:eth0/@3", 0},
    {"netmap:eth0/y", 0},
    {"netmap:eth0/x/t", 0},
    {"netmap:eth0/x-1", 0},
    {"netmap:eth0@0", 0},
    {"netmap:eth0@65536", 0},
    {"netmap:eth0@1@2", 0},
    {"netmap:eth0@1x", 0},
    {"netmap:eth0@1/x", 0},
};

static void library_accepts(struct nmctx *ctx)
{
    size_t i;

    for (i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++) {
        const char *cursor = accepted[i].spec;
        struct nmreq_header header;
        struct nmreq_register reg;

        memset(&reg, 0, sizeof(reg));
        nmreq_header_init(&header, NETMAP_REQ_REGISTER, &reg);
        CHECK_ROW(accepted[i].spec, nmreq_header_decode(&cursor, &header, ctx) == 0);
        CHECK_ROW(accepted[i].spec, strcmp(header.nr_name, accepted[i].name) == 0);
        CHECK_ROW(accepted[i].spec, nmreq_register_decode(&cursor, &reg, ctx) == 0);
        CHECK_ROW(accepted[i].spec, reg.nr_mode == accepted[i].mode);
        CHECK_ROW(accepted[i].spec, reg.nr_ringid == accepted[i].ring);
        CHECK_ROW(accepted[i].spec, reg.nr_flags == accepted[i].flags);
        CHECK_ROW(accepted[i].spec, reg.nr_mem_id == accepted[i].region);
        CHECK_ROW(accepted[i].spec, strcmp(cursor, accepted[i].rest) == 0);
    }
}

static void library_refuses(struct nmctx *ctx)
{
    size_t i;

    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const char *start = refused[i].spec, *cursor = start;
        struct nmreq_header header, header_before;
        struct nmreq_register reg, reg_before;
        int result;

        memset(&header, 0x55, sizeof(header));
        memset(&reg, 0x55, sizeof(reg));
        reg.nr_mem_id = 0;
        header_before = header;
        reg_before = reg;
        errno = 0;
        result = nmreq_header_decode(&cursor, &header, ctx);
        CHECK_ROW(start, (result == -1) == refused[i].by_header);
        if (result == 0) {
            start = cursor;
            CHECK_ROW(start, nmreq_register_decode(&cursor, &reg, ctx) == -1);
        } else {
            CHECK_ROW(start, memcmp(&header, &header_before, sizeof(header)) == 0);
        }
        CHECK_ROW(start, errno == EINVAL);
        CHECK_ROW(start, cursor == start);
        CHECK_ROW(start, memcmp(&reg, &reg_before, sizeof(reg)) == 0);
    }
}

/* A region that was chosen before the name was read counts as well. */
static void library_knows_the_region(struct nmctx *ctx)
{
    struct nmreq_register reg;
    const char *cursor = "@5";

    memset(&reg, 0, sizeof(reg));
    reg.nr_mem_id = 4;
    CHECK(nmreq_register_decode(&cursor, &reg, ctx) == -1 && errno == EINVAL && reg.nr_mem_id == 4);
    reg.nr_mem_id = 5;
    CHECK(nmreq_register_decode(&cursor, &reg, ctx) == 0 && reg.nr_mem_id == 5);
}

static const struct {
    const char *spec;
    const char *name;
    uint32_t flags;
    uint16_t ring;
    uint16_t region;
} nm_accepted[] = {
    {"netmap:eth0", "eth0", NR_REG_ALL_NIC, 0, 0},
    {"netmap:a23456789012345", "a23456789012345", NR_REG_ALL_NIC, 0, 0},
    {"netmap:vale0:0", "vale0:0", NR_REG_ALL_NIC, 0, 0},
    {"vale0:a", "vale0:a", NR_REG_ALL_NIC, 0, 0},
    {"vale:a", "vale:a", NR_REG_ALL_NIC, 0, 0},
    {"netmap:eth0^", "eth0", NR_REG_SW, 0, 0},
    {"netmap:eth0*", "eth0", NR_REG_NIC_SW, 0, 0},
    {"netmap:eth0-3", "eth0", NR_REG_ONE_NIC, 3, 0},
    {"netmap:x{2", "x", NR_REG_PIPE_MASTER, 2, 0},
    {"vale0:a}2", "vale0:a", NR_REG_PIPE_SLAVE, 2, 0},
    {"netmap:x{2/xT@9", "x", NR_REG_PIPE_MASTER | NR_EXCLUSIVE | NR_TX_RINGS_ONLY, 2, 9},
    {"netmap:eth0/ztrR", "eth0",
     NR_REG_ALL_NIC | NR_ZCOPY_MON | NR_MONITOR_TX | NR_MONITOR_RX | NR_RX_RINGS_ONLY, 0, 0},
    {"netmap:eth0@3", "eth0", NR_REG_ALL_NIC, 0, 3},
};

static const char *const nm_refused[] = {
    "",
    "eth0",
    "netmap:",
    "netmap:a234567890123456",
    "vale0",
    "vale0:",
    "vale-0:a",
    "vale0:a.b",
    "netmap:{1",
    "netmap:x{",
    "netmap:x{a",
    "netmap:x{1}2",
    "netmap:eth0^1",
    "netmap:eth0-",
    "netmap:eth0-4095",
    "netmap:eth0-4294967296",
    "netmap:eth0/",
    "netmap:eth0/@3",
    "netmap:eth0/q",
    "netmap:eth0@",
    "netmap:eth0@0",
    "netmap:eth0@65536",
    "netmap:eth0@1@1",
    "netmap:eth0@conf:rings=2",
    "netmap:eth0@1/x",
};

static void nm_parse_accepts_and_refuses(void)
{
    char message[MAXERRMSG];
    size_t i;

    for (i = 0; i < sizeof(nm_accepted) / sizeof(nm_accepted[0]); i++) {
        struct nm_desc *d = (struct nm_desc *)calloc(1, sizeof(struct nm_desc));

        CHECK_ROW(nm_accepted[i].spec, nm_parse(nm_accepted[i].spec, d, message) == 0);
        CHECK_ROW(nm_accepted[i].spec, strcmp(d->req.nr_name, nm_accepted[i].name) == 0);
        CHECK_ROW(nm_accepted[i].spec, d->req.nr_flags == nm_accepted[i].flags);
        CHECK_ROW(nm_accepted[i].spec, d->req.nr_ringid == nm_accepted[i].ring);
        CHECK_ROW(nm_accepted[i].spec, d->req.nr_arg2 == nm_accepted[i].region);
        free(d);
    }
    for (i = 0; i < sizeof(nm_refused) / sizeof(nm_refused[0]); i++) {
        struct nm_desc *d = (struct nm_desc *)calloc(1, sizeof(struct nm_desc));
        struct nmreq before;

        memset(&d->req, 0x55, sizeof(d->req));
        before = d->req;
        errno = 0;
        message[0] = '\0';
        CHECK_ROW(nm_refused[i], nm_parse(nm_refused[i], d, message) == -1);
        CHECK_ROW(nm_refused[i], errno == EINVAL);
        CHECK_ROW(nm_refused[i], message[0] != '\0');
        CHECK_ROW(nm_refused[i], memcmp(&d->req, &before, sizeof(before)) == 0);
        free(d);
    }
}

int main(void)
{
    struct nmctx *ctx = nmctx_get();

    ctx->verbose = 0;
    library_accepts(ctx);
    library_refuses(ctx);
    library_knows_the_region(ctx);
    nm_parse_accepts_and_refuses();
    return CHECK_RESULT();
}
