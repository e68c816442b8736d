/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libnetmap: netmap ports opened by name. Link with -lringroad.
 *
 *     struct nmport_d *d = nmport_open("vale0:a@conf:slots=256");
 *     struct netmap_ring *ring = NETMAP_RXRING(d->nifp, d->first_rx_ring);
 *
 * A name is SCHEME NAME [RINGS] [FLAGS] { @ITEM }:
 *
 *     netmap:eth0      an interface, or a port that stays   vale0:a          port a of switch vale0
 *     netmap:x{1       one end of pipe 1 of x               netmap:x}1       the other end
 *     netmap:eth0^     its host rings only                  netmap:eth0^2    its third host ring pair
 *     netmap:eth0*     its own rings and the host's         netmap:eth0-0    its first ring pair
 *     .../x            exclusive use of these rings     .../R  .../T     receive only, send only
 *     .../t .../r      see copies of what it sends, of what it receives
 *     .../z            see both without a copy
 *     ...@3            in region 3
 *     ...@share=PORT               in the region of PORT
 *     ...@conf:KEY=N,...           sizes, if this makes the port: rings, host-rings, slots both ways;
 *                                  tx-rings, rx-rings, host-tx-rings, host-rx-rings, tx-slots, rx-slots
 *     ...@extmem:file=F,KEY=N,...  in a region made of a file: if-num, if-size, ring-num, ring-size, buf-num,
 *                                  buf-size
 *     ...@offset=N,bits=B          frames begin N bytes into buffers; only if the program enabled it
 *
 * Functions that return int return 0, or -1 with errno; those that return a pointer return NULL with errno. A
 * message goes to the error function of the context. A failed call has no effect, unless stated otherwise.
 */
#ifndef LIBNETMAP_H
#define LIBNETMAP_H

#include <stddef.h>
#include <stdint.h>
#include <net/netmap_user.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nmctx;
struct nmem_d;
struct nmport_cleanup_d;
struct nmreq_opt_parser;

/* ---- Ports ---- */

/* A port. The program may change hdr and reg before nmport_register; the rest is for it to read. */
struct nmport_d {
    struct nmreq_header hdr;
    struct nmreq_register reg;

    struct nmem_d
        *mem; /* mapped region: two ports of a context have the same one iff buffers can pass between them */
    struct nmctx *ctx;

    int register_done;
    int mmap_done;
    struct nmreq_opt_extmem *extmem; /* the option of hdr, NULL without it */

    int fd;                 /* -1 if not registered */
    struct netmap_if *nifp; /* NULL if not mapped */
    uint16_t first_tx_ring; /* the rings bound in a direction; there is none where first is above last */
    uint16_t last_tx_ring;
    uint16_t first_rx_ring;
    uint16_t last_rx_ring;
    uint16_t cur_tx_ring; /* where nmport_inject tries first */
    uint16_t cur_rx_ring;

    struct nmport_cleanup_d *clist; /* the library's */
};

/* Open a port, ready for use: nmport_prepare and nmport_open_desc. */
struct nmport_d *nmport_open(const char *portspec);

/* Unmap and close a port that was opened, and free it. NULL is fine. */
void nmport_close(struct nmport_d *d);

/*
 * Copy a frame into a tx ring with room; it leaves with the next poll or NIOCTXSYNC. Longer frames take
 * several slots. Returns its size, or 0 if no bound tx ring has room.
 */
int nmport_inject(struct nmport_d *d, const void *buf, size_t size);

/* Make a descriptor and fill it from a name: nmport_new and nmport_parse. */
struct nmport_d *nmport_prepare(const char *portspec);

/* Bind and map a prepared port: nmport_register and nmport_mmap. */
int nmport_open_desc(struct nmport_d *d);

/* The single steps, in this order. */
struct nmport_d *nmport_new(void);
int nmport_parse(struct nmport_d *d, const char *portspec);
int nmport_register(struct nmport_d *d);
int nmport_mmap(struct nmport_d *d);

/* Each undoes the function it is named after; nmport_delete frees what nmport_new made. */
void nmport_delete(struct nmport_d *d);
void nmport_undo_parse(struct nmport_d *d);
void nmport_undo_register(struct nmport_d *d);
void nmport_undo_mmap(struct nmport_d *d);
void nmport_undo_prepare(struct nmport_d *d);
void nmport_undo_open_desc(struct nmport_d *d);

/*
 * Another descriptor of the same port and region, prepared but not open: options are left out. With extmem
 * the original must be registered, for the region has no number before.
 */
struct nmport_d *nmport_clone(struct nmport_d *d);

/*
 * Before nmport_register: let the region lie in memory of the program, aligned to pages, which stays until after
 * nmport_close.
 */
int nmport_extmem(struct nmport_d *d, void *base, size_t size);

/* The same in a file, which is mapped now and unmapped when the last port is closed that uses it. */
int nmport_extmem_from_file(struct nmport_d *d, const char *fname);

/* Requested sizes before nmport_register, actual sizes after it; NULL without extmem. */
struct nmreq_pools_info *nmport_extmem_getinfo(struct nmport_d *d);

/*
 * Before nmport_register: let frames begin `initial` bytes into their buffers, `maxoff` at most, kept in the
 * low `bits` bits of slot->ptr (0: all of them), with `mingap` bytes between frames that share a buffer.
 */
int nmport_offset(struct nmport_d *d, uint64_t initial, uint64_t maxoff, uint64_t bits, uint64_t mingap);

/*
 * Which options names may have: all but "offset" at first. One that is disabled fails with EOPNOTSUPP where
 * it is used. nmport_enable_option fails with EOPNOTSUPP if there is no such option, nmport_disable_option
 * does nothing then.
 */
void nmport_disable_option(const char *opt);
int nmport_enable_option(const char *opt);

/* ---- Requests ---- */

/* Empty a header, then set version, type and body. */
void nmreq_header_init(struct nmreq_header *hdr, uint16_t reqtype, void *body);

/*
 * Read scheme and name at *ppspec into hdr->nr_name. *ppspec moves behind them; the rest of the header stays.
 * Fails with EINVAL.
 */
int nmreq_header_decode(const char **ppspec, struct nmreq_header *hdr, struct nmctx *ctx);

/*
 * Read rings, flags and numbers of regions at *pmode into nr_mode, nr_ringid, nr_flags and nr_mem_id; the
 * rest stays. *pmode moves to the end, or to the first @ that has no digit behind it, where options begin.
 * Fails with EINVAL.
 */
int nmreq_register_decode(const char **pmode, struct nmreq_register *reg, struct nmctx *ctx);

#define NMREQ_OPT_MAXKEYS 16

struct nmreq_parse_ctx;
typedef int (*nmreq_opt_parser_cb)(struct nmreq_parse_ctx *);

struct nmreq_opt_key {
    const char *key;
    int id; /* index in keys of the parse context */
    unsigned int flags;
};
#define NMREQ_OPTK_ALLOWEMPTY (1U << 0) /* the key may stand alone */
#define NMREQ_OPTK_MUSTSET    (1U << 1) /* the option fails without it */
#define NMREQ_OPTK_DEFAULT    (1U << 2) /* the key that OPTION=VALUE means */

/* One kind of option. */
struct nmreq_opt_parser {
    const char *prefix; /* its name */
    nmreq_opt_parser_cb parse;
    int default_key; /* id of the key that OPTION=VALUE means, -1: there is none */
    int nr_keys;
    unsigned int flags;
    struct nmreq_opt_parser *next;
    struct nmreq_opt_key keys[NMREQ_OPT_MAXKEYS];
} __attribute__((aligned(16)));
#define NMREQ_OPTF_DISABLED   (1U << 0)
#define NMREQ_OPTF_ALLOWEMPTY (1U << 1) /* the option may stand alone */

/* The argument of a parser's function. */
struct nmreq_parse_ctx {
    struct nmctx *ctx;
    void *token;
    const char *keys[NMREQ_OPT_MAXKEYS]; /* values by id, NULL: not given; valid during the call */
};

/*
 * Read a list of options, each "@NAME", "@NAME=VALUE" or "@NAME:KEY=VALUE,...", and call the function of
 * each. `parsers` is a list; - and _ are the same in keys. Fails with EINVAL, EOPNOTSUPP or as a function
 * did; options in front of the bad one have had their effect then.
 */
int nmreq_options_decode(const char *opt, struct nmreq_opt_parser *parsers, void *token, struct nmctx *ctx);

/* The region of the port named at *portname, which moves behind the name; queries the device. -1 on failure. */
int32_t nmreq_get_mem_id(const char **portname, struct nmctx *ctx);

/* The option list of a header. nmreq_free_options frees options that nmctx_malloc of the default context
 * made. */
void nmreq_push_option(struct nmreq_header *hdr, struct nmreq_option *opt);
void nmreq_remove_option(struct nmreq_header *hdr, struct nmreq_option *opt);
struct nmreq_option *nmreq_find_option(struct nmreq_header *hdr, uint32_t reqtype);
void nmreq_free_options(struct nmreq_header *hdr);
const char *nmreq_option_name(uint32_t reqtype);
#define nmreq_foreach_option(h_, o_)                                              \
    for ((o_) = (struct nmreq_option *)(uintptr_t)(h_)->nr_options; (o_) != NULL; \
         (o_) = (struct nmreq_option *)(uintptr_t)(o_)->nro_next)

/* ---- Contexts ---- */

typedef void (*nmctx_error_cb)(struct nmctx *, const char *);
typedef void *(*nmctx_malloc_cb)(struct nmctx *, size_t);
typedef void (*nmctx_free_cb)(struct nmctx *, void *);
typedef void (*nmctx_lock_cb)(struct nmctx *, int);

/*
 * What ports have in common: the regions that are mapped, and functions that the program may replace. A
 * program that wants a context of its own fills one in (NULL: as in the first default context, without a
 * lock) and keeps it while it has ports.
 */
struct nmctx {
    int verbose;            /* 0: no messages */
    nmctx_error_cb error;   /* is given messages; to stderr at first */
    nmctx_malloc_cb malloc; /* makes descriptors and options */
    nmctx_free_cb free;
    nmctx_lock_cb lock; /* 1: lock the regions, 0: unlock them; NULL: one thread uses this context */

    struct nmem_d *mem_descs;
};

/* The context of ports that are made from now on. */
struct nmctx *nmctx_get(void);

/* Make another one the default. Returns the one before. */
struct nmctx *nmctx_set_default(struct nmctx *ctx);

/* A region that is mapped. */
struct nmem_d {
    uint16_t mem_id;
    int refcount; /* ports that use it */
    void *mem;
    size_t size; /* bytes */
    int is_extmem;
    struct nmem_d *next; /* a ring of them, from mem_descs of the context */
    struct nmem_d *prev;
};

/*
 * Give the first default context a lock. It has one from the beginning, unless a program took it away; the
 * variable is here for programs that were written against libraries which required this call.
 */
void nmctx_set_threadsafe(void);
extern int nmctx_threadsafe;

void nmctx_ferror(struct nmctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *nmctx_malloc(struct nmctx *ctx, size_t size);
void nmctx_free(struct nmctx *ctx, void *memory);
void nmctx_lock(struct nmctx *ctx);
void nmctx_unlock(struct nmctx *ctx);

#ifdef __cplusplus
}
#endif

#endif
