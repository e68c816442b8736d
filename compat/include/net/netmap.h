/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The netmap API, version 14: the interface between a program and the provider of its rings, in memory and
 * by ioctl.
 *
 * A program opens NETMAP_DEVICE_NAME, binds the descriptor to a port (NIOCCTRL with NETMAP_REQ_REGISTER),
 * maps the region, and then reads and writes rings. Layouts, names and values are those of netmap, so that
 * programs written for it compile and run. Macros that walk the mapped region are in <net/netmap_user.h>.
 *
 * Who writes a field is given in parentheses: (p) the program, (k) the provider, which in netmap is the
 * kernel.
 */
#ifndef NET_NETMAP_H
#define NET_NETMAP_H

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/types.h>

/* Version spoken here, and the range of versions that a provider accepts. */
#define NETMAP_API     14
#define NETMAP_MIN_API 14
#define NETMAP_MAX_API 15

#define NETMAP_DEVICE_NAME "/dev/netmap"

/* Rings do not share cache lines (nor prefetched pairs of them) with what lies beside them. */
#define NM_CACHE_ALIGN 128

/*
 * Members that only the provider writes are const, and some structures end in an array of unknown length: C++
 * has neither initialiser nor standard for them, and needs none.
 */
#if defined(__cplusplus)
#    pragma GCC diagnostic push
#    pragma GCC diagnostic ignored "-Wuninitialized"
#    pragma GCC diagnostic ignored "-Wpedantic"
#endif

/* ---- Slots ---- */

/* One fragment of a frame, or room for one. (p) between head and tail of its ring, else (k). */
struct netmap_slot {
    uint32_t buf_idx; /* which buffer of the region */
    uint16_t len;     /* bytes in it */
    uint16_t flags;   /* NS_* */
    uint64_t ptr;     /* address (NS_INDIRECT) or offset into the buffer (NETMAP_REQ_OPT_OFFSETS) */
};

#define NS_BUF_CHANGED  0x0001 /* buf_idx has changed: set by the side that exchanges a buffer */
#define NS_REPORT       0x0002 /* tx: give the slot back soon after it was sent, not at leisure */
#define NS_FORWARD      0x0004 /* rx, with NR_FORWARD: when released, pass on between host and interface */
#define NS_NO_LEARN     0x0008 /* tx to a switch: do not learn the source address */
#define NS_INDIRECT     0x0010 /* tx to a switch: the bytes are at the address in ptr */
#define NS_MOREFRAG     0x0020 /* the frame continues in the next slot */
#define NS_TXMON        0x0040 /* seen by a monitor on the tx side */
#define NS_PORT_SHIFT   8
#define NS_PORT_MASK    (0xff << NS_PORT_SHIFT) /* tx to a switch: port to send to, 0: by address */
#define NS_RFRAGS(slot) (((slot)->flags >> NS_PORT_SHIFT) & 0xff) /* rx: slots that the frame takes */

#define NETMAP_MAX_FRAGS 64 /* slots that one frame may take */

/* ---- Rings ---- */

/*
 * A ring of slots, in either direction. The program owns the slots from head up to, not including, tail: on a
 * tx ring they are room for frames, on an rx ring they hold received ones. It gives slots back by moving
 * head, and sets with cur where it is woken: poll returns when tail has moved past cur. Always head
 * <= cur <= tail, modulo num_slots. One slot stays unused, so that a full ring differs from an empty one.
 */
struct netmap_ring {
    const int64_t buf_ofs;      /* (k) from this structure to the first buffer, bytes */
    const uint32_t num_slots;   /* (k) */
    const uint32_t nr_buf_size; /* (k) bytes of a buffer */
    const uint16_t ringid;      /* (k) number of the ring in its direction, host rings behind the others */
    const uint16_t dir;         /* (k) 0: tx, 1: rx */

    uint32_t head; /* (p) first slot that the program owns */
    uint32_t cur;  /* (p) where it wants to be woken */
    uint32_t tail; /* (k) first slot that it does not own */

    uint32_t flags; /* (p) NR_TIMESTAMP, NR_FORWARD */

    struct timeval ts; /* (k) time of the last sync of an rx ring */

    const uint64_t offset_mask; /* (k) bits of slot.ptr that hold an offset, 0: none do */
    const uint64_t buf_align;   /* (k) required alignment of offsets, 0: any */

    /* (p) The program's own, for a lock or any other use. */
    uint8_t __attribute__((__aligned__(NM_CACHE_ALIGN))) sem[128];

    struct netmap_slot slot[];
};

#define NR_TIMESTAMP 0x0002 /* set ts at each sync */
#define NR_FORWARD   0x0004 /* act on NS_FORWARD */

/* Whether the program owns no slot: nothing received, or no room to send. */
static inline int nm_ring_empty(struct netmap_ring *ring)
{
    return ring->head == ring->tail;
}

/* ---- Bound ports ---- */

/* A port as one bound descriptor sees it: its rings, as offsets from this structure. */
struct netmap_if {
    char ni_name[16];           /* (k) name of the port, cut to 15 bytes */
    const uint32_t ni_version;  /* (k) unused */
    const uint32_t ni_flags;    /* (k) NI_PRIV_MEM */
    const uint32_t ni_tx_rings; /* (k) tx rings, host rings not counted */
    const uint32_t ni_rx_rings; /* (k) rx rings, host rings not counted */

    /* (p) First of the extra buffers, 0: none. Each begins with the index of the next. */
    uint32_t ni_bufs_head;

    const uint32_t ni_host_tx_rings; /* (k) at least 1, also where there is none */
    const uint32_t ni_host_rx_rings; /* (k) at least 1, also where there is none */
    uint32_t ni_spare1[3];

    /* (k) tx, host tx, rx, host rx; 0 for a ring that is not bound. */
    const ssize_t ring_ofs[];
};

#define NI_PRIV_MEM 0x1 /* the region is this port's own */

/* ---- Requests ---- */

/*
 * A request is a header, a body of the type that nr_reqtype names, and a list of options. Pointers travel as
 * 64-bit numbers, 0 for none. A body is written back when the request succeeded.
 */
#define NETMAP_REQ_IFNAMSIZ 64   /* bytes of a port name with its NUL */
#define NETMAP_REQ_MAXSIZE  4096 /* bytes of a body with all options */

struct nmreq_header {
    uint16_t nr_version;  /* NETMAP_API */
    uint16_t nr_reqtype;  /* NETMAP_REQ_* */
    uint32_t nr_reserved; /* 0 */
    char nr_name[NETMAP_REQ_IFNAMSIZ];
    uint64_t nr_options; /* first struct nmreq_option */
    uint64_t nr_body;    /* struct nmreq_..., where the type has one */
};

/* Begins every option. */
struct nmreq_option {
    uint64_t nro_next;
    uint32_t nro_reqtype; /* NETMAP_REQ_OPT_* */
    uint32_t nro_status;  /* (k) 0: done; else an errno, EOPNOTSUPP if it was not processed */
    uint64_t nro_size;    /* of options whose length varies: bytes, header included */
};

enum {
    NETMAP_REQ_REGISTER = 1,         /* bind this descriptor to a port: nmreq_register */
    NETMAP_REQ_PORT_INFO_GET,        /* nmreq_port_info_get */
    NETMAP_REQ_VALE_ATTACH,          /* plug an interface into a switch: nmreq_vale_attach */
    NETMAP_REQ_VALE_DETACH,          /* nmreq_vale_detach */
    NETMAP_REQ_VALE_LIST,            /* next port of the switches, or where a named one is: nmreq_vale_list */
    NETMAP_REQ_PORT_HDR_SET,         /* length of the virtio-net header before frames: nmreq_port_hdr */
    NETMAP_REQ_PORT_HDR_GET,         /* nmreq_port_hdr */
    NETMAP_REQ_VALE_NEWIF,           /* make a port that stays: nmreq_vale_newif */
    NETMAP_REQ_VALE_DELIF,           /* remove it; no body */
    NETMAP_REQ_VALE_POLLING_ENABLE,  /* nmreq_vale_polling */
    NETMAP_REQ_VALE_POLLING_DISABLE, /* nmreq_vale_polling */
    NETMAP_REQ_POOLS_INFO_GET,       /* nmreq_pools_info */
    NETMAP_REQ_SYNC_KLOOP_START,     /* sync in this thread until KLOOP_STOP: nmreq_sync_kloop_start */
    NETMAP_REQ_SYNC_KLOOP_STOP,      /* no body */
    NETMAP_REQ_CSB_ENABLE            /* no body, option CSB */
};

enum {
    NETMAP_REQ_OPT_EXTMEM = 1,          /* the region lies in memory of the program: nmreq_opt_extmem */
    NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS, /* nmreq_opt_sync_kloop_eventfds */
    NETMAP_REQ_OPT_CSB,                 /* nmreq_opt_csb */
    NETMAP_REQ_OPT_SYNC_KLOOP_MODE,     /* nmreq_opt_sync_kloop_mode */
    NETMAP_REQ_OPT_OFFSETS,             /* frames begin at slot.ptr in their buffer: nmreq_opt_offsets */
    NETMAP_REQ_OPT_MAX                  /* one more than the last */
};

/* NETMAP_REQ_REGISTER. Sizes are requests (0: the provider's choice) if this makes the port; the actual sizes
 * are returned. */
struct nmreq_register {
    uint64_t nr_offset;  /* (k) of this bind's netmap_if in the region */
    uint64_t nr_memsize; /* (k) bytes of the region */
    uint32_t nr_tx_slots;
    uint32_t nr_rx_slots;
    uint16_t nr_tx_rings;
    uint16_t nr_rx_rings;
    uint16_t nr_host_tx_rings;
    uint16_t nr_host_rx_rings;
    uint16_t nr_mem_id;     /* region to lie in, 0: any; which it is comes back */
    uint16_t nr_ringid;     /* of NR_REG_ONE_NIC and NR_REG_ONE_SW */
    uint32_t nr_mode;       /* NR_REG_* */
    uint32_t nr_extra_bufs; /* buffers besides those in slots; how many were granted comes back */
    uint32_t pad1;
    uint64_t nr_flags; /* the flags below */
};

#define NR_MONITOR_TX      0x100 /* see copies of what the port sends */
#define NR_MONITOR_RX      0x200 /* see copies of what it receives */
#define NR_ZCOPY_MON       0x400 /* see both, by exchange of buffers */
#define NR_EXCLUSIVE       0x800 /* exclusive use of these rings */
#define NR_RX_RINGS_ONLY   0x2000
#define NR_TX_RINGS_ONLY   0x4000
#define NR_ACCEPT_VNET_HDR 0x8000  /* the program supports virtio-net headers */
#define NR_DO_RX_POLL      0x10000 /* poll syncs rx rings also without POLLIN */
#define NR_NO_TX_POLL      0x20000 /* poll syncs tx rings only with POLLOUT */

enum {
    NR_REG_DEFAULT = 0, /* not accepted by NETMAP_REQ_REGISTER */
    NR_REG_ALL_NIC = 1,
    NR_REG_SW = 2,          /* host rings */
    NR_REG_NIC_SW = 3,      /* both */
    NR_REG_ONE_NIC = 4,     /* pair nr_ringid */
    NR_REG_PIPE_MASTER = 5, /* struct nmreq only: elsewhere a brace in the name selects it */
    NR_REG_PIPE_SLAVE = 6,
    NR_REG_NULL = 7,  /* rings that lead nowhere, in an existing region */
    NR_REG_ONE_SW = 8 /* host ring pair nr_ringid */
};

struct nmreq_port_info_get {
    uint64_t nr_memsize;
    uint32_t nr_tx_slots;
    uint32_t nr_rx_slots;
    uint16_t nr_tx_rings;
    uint16_t nr_rx_rings;
    uint16_t nr_host_tx_rings;
    uint16_t nr_host_rx_rings;
    uint16_t nr_mem_id;
    uint16_t pad[3];
};

#define NM_BDG_NAME "vale" /* how the name of a switch begins */

/* Named "valeX:interface"; NR_REG_ALL_NIC, or NR_REG_NIC_SW to plug in the host as well. */
struct nmreq_vale_attach {
    struct nmreq_register reg;
    uint32_t port_index; /* (k) */
    uint32_t pad1;
};

struct nmreq_vale_detach {
    uint32_t port_index; /* (k) */
    uint32_t pad1;
};

/* Without a name: the first port at or behind these indexes comes back, ENOENT ends the list. */
struct nmreq_vale_list {
    uint16_t nr_bridge_idx;
    uint16_t pad1;
    uint32_t nr_port_idx;
};

struct nmreq_port_hdr {
    uint32_t nr_hdr_len; /* bytes: 0, 10 or 12 */
    uint32_t pad1;
};

struct nmreq_vale_newif {
    uint32_t nr_tx_slots;
    uint32_t nr_rx_slots;
    uint16_t nr_tx_rings;
    uint16_t nr_rx_rings;
    uint16_t nr_mem_id;
    uint16_t pad1;
};

struct nmreq_vale_polling {
    uint32_t nr_mode; /* NETMAP_POLLING_MODE_* */
    uint32_t nr_first_cpu_id;
    uint32_t nr_num_polling_cpus;
    uint32_t pad1;
};

#define NETMAP_POLLING_MODE_SINGLE_CPU 1
#define NETMAP_POLLING_MODE_MULTI_CPU  2

/* Where the three kinds of objects lie in a region, how many, and their size in bytes. */
struct nmreq_pools_info {
    uint64_t nr_memsize;
    uint16_t nr_mem_id;
    uint16_t pad1[3];
    uint64_t nr_if_pool_offset;
    uint32_t nr_if_pool_objtotal;
    uint32_t nr_if_pool_objsize;
    uint64_t nr_ring_pool_offset;
    uint32_t nr_ring_pool_objtotal;
    uint32_t nr_ring_pool_objsize;
    uint64_t nr_buf_pool_offset;
    uint32_t nr_buf_pool_objtotal;
    uint32_t nr_buf_pool_objsize;
};

struct nmreq_sync_kloop_start {
    uint32_t sleep_us; /* between rounds, where no eventfds wake the loop */
    uint32_t pad1;
};

/* ---- Bodies of options ---- */

struct nmreq_opt_extmem {
    struct nmreq_option nro_opt;
    uint64_t nro_usrptr;              /* where the program's memory begins */
    struct nmreq_pools_info nro_info; /* requests, nr_memsize the length; the actual values are returned */
};

/* One pair for each bound ring, tx rings first. A negative irqfd: do not notify. */
struct nmreq_opt_sync_kloop_eventfds {
    struct nmreq_option nro_opt;
    struct {
        int32_t ioeventfd; /* the program wakes the loop */
        int32_t irqfd;     /* the loop wakes the program */
    } eventfds[];
};

struct nmreq_opt_sync_kloop_mode {
    struct nmreq_option nro_opt;
    uint32_t mode; /* NM_OPT_SYNC_KLOOP_DIRECT_*: the writer of the eventfd does the work */
};

#define NM_OPT_SYNC_KLOOP_DIRECT_TX (1 << 0)
#define NM_OPT_SYNC_KLOOP_DIRECT_RX (1 << 1)

/* Arrays of one entry for each bound ring, tx rings first, aligned to 64 bytes. */
struct nmreq_opt_csb {
    struct nmreq_option nro_opt;
    uint64_t csb_atok; /* struct nm_csb_atok[] */
    uint64_t csb_ktoa; /* struct nm_csb_ktoa[] */
};

struct nmreq_opt_offsets {
    struct nmreq_option nro_opt;
    uint64_t nro_max_offset;     /* bytes */
    uint64_t nro_initial_offset; /* of every slot at first, bytes */
    uint32_t nro_offset_bits;    /* low bits of slot.ptr that hold it, 0: all */
    uint32_t nro_tx_align;
    uint64_t nro_min_gap; /* between the frames of one buffer, bytes */
};

/* ---- Rings driven by a loop ---- */

/* In CSB mode head, cur and tail travel through these instead of the ring. */
struct nm_csb_atok {
    uint32_t head;
    uint32_t cur;
    uint32_t appl_need_kick; /* the program wants to be woken */
    uint32_t sync_flags;
    uint32_t pad[12];
};

struct nm_csb_ktoa {
    uint32_t hwcur;
    uint32_t hwtail;
    uint32_t kern_need_kick; /* the loop wants to be woken */
    uint32_t pad[13];
};

/* Earlier stores before later ones; earlier loads before later ones; earlier stores before later loads. */
static inline void nm_stst_barrier(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void nm_ldld_barrier(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static inline void nm_stld_barrier(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/*
 * Pass head and cur to the loop, after the slots were written. The two cannot be written at once, and
 * the loop must never see head in front of cur: so cur goes first here, and is read last there.
 */
static inline void nm_sync_kloop_appl_write(struct nm_csb_atok *atok, uint32_t cur, uint32_t head)
{
    nm_stst_barrier();
    __atomic_store_n(&atok->cur, cur, __ATOMIC_RELAXED);
    nm_stst_barrier();
    __atomic_store_n(&atok->head, head, __ATOMIC_RELAXED);
}

/* Learn how far the loop is, before slots are read. hwtail is written last there, so it is read first here.
 */
static inline void nm_sync_kloop_appl_read(struct nm_csb_ktoa *ktoa, uint32_t *hwtail, uint32_t *hwcur)
{
    *hwtail = __atomic_load_n(&ktoa->hwtail, __ATOMIC_RELAXED);
    nm_ldld_barrier();
    *hwcur = __atomic_load_n(&ktoa->hwcur, __ATOMIC_RELAXED);
    nm_ldld_barrier();
}

/* ---- ioctl ---- */

#define NIOCTXSYNC _IO('i', 148) /* all bound tx rings: send up to head, find new room */
#define NIOCRXSYNC _IO('i', 149) /* all bound rx rings: take back up to head, find new frames */
#define NIOCCTRL   _IOWR('i', 151, struct nmreq_header)

#if defined(__cplusplus)
#    pragma GCC diagnostic pop
#endif

#include <net/netmap_legacy.h>

#endif
