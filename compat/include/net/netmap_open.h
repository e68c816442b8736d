/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * nm_open() and its family: netmap ports used as libpcap is used. Included by <net/netmap_user.h> where
 * NETMAP_WITH_LIBS is defined. New programs do better with <libnetmap.h>.
 */
#ifndef NET_NETMAP_OPEN_H
#define NET_NETMAP_OPEN_H
#define HAVE_NETMAP_WITH_LIBS

#include <net/netmap_user.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>   /* programs count on it */
#include <signal.h> /* programs count on it */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* A received frame; begins as libpcap's pcap_pkthdr does. */
struct nm_pkthdr {
    struct timeval ts;
    uint32_t caplen; /* bytes at buf: of the first slot */
    uint32_t len;    /* bytes of the frame, over all its slots */
    uint64_t flags;  /* NM_MORE_PKTS */
    struct nm_desc *d;
    struct netmap_slot *slot;
    uint8_t *buf;
};
#define NM_MORE_PKTS 1 /* nm_dispatch has more frames at hand */

/* As libpcap's pcap_stat; nothing is counted here. */
struct nm_stat {
    unsigned int ps_recv;
    unsigned int ps_drop;
    unsigned int ps_ifdrop;
};

#define NM_ERRBUF_SIZE 512
#define MAXERRMSG      80 /* bytes that nm_parse may write */

#if defined(__cplusplus)
#    pragma GCC diagnostic push
#    pragma GCC diagnostic ignored "-Wuninitialized"
#endif

/* An open port. */
struct nm_desc {
    struct nm_desc *self; /* of an open one */
    int fd;
    void *mem; /* the region, NULL if it is not mapped */
    uint32_t memsize;
    int done_mmap; /* mapped by this descriptor, which therefore unmaps it */
    struct netmap_if *const nifp;
    uint16_t first_tx_ring, last_tx_ring, cur_tx_ring;
    uint16_t first_rx_ring, last_rx_ring, cur_rx_ring;
    struct nmreq req;
    struct nm_pkthdr hdr; /* of nm_dispatch */

    /* Any ring, and where the buffers lie, to check whether an address is in one. */
    struct netmap_ring *const some_ring;
    void *const buf_start;
    void *const buf_end;

    /* The arguments of pcap_open_live; kept for the program. */
    int snaplen;
    int promisc;
    int to_ms;
    char *errbuf;
    uint32_t if_flags;
    uint32_t if_reqcap;
    uint32_t if_curcap;
    struct nm_stat st;
    char msg[NM_ERRBUF_SIZE];
};

#if defined(__cplusplus)
#    pragma GCC diagnostic pop
#endif

#define P2NMD(p)          ((struct nm_desc *)(p))
#define IS_NETMAP_DESC(d) ((d) && P2NMD(d)->self == P2NMD(d))
#define NETMAP_FD(d)      (P2NMD(d)->fd)

/* Called by nm_dispatch for a frame, with its own argument first. */
typedef void (*nm_cb_t)(unsigned char *, const struct nm_pkthdr *, const unsigned char *);

/*
 * Flags of nm_open, besides NETMAP_NO_TX_POLL and NETMAP_DO_RX_POLL: what is taken from the descriptor given
 * as `arg`.
 */
enum {
    NM_OPEN_NO_MMAP = 0x040000, /* its mapping, if it is the same region; without `arg` nothing is mapped */
    NM_OPEN_IFNAME = 0x080000,  /* nr_name, nr_ringid, nr_flags, instead of parsing a name */
    NM_OPEN_ARG1 = 0x100000,    /* nr_arg1 */
    NM_OPEN_ARG2 = 0x200000,    /* nr_arg2, the region */
    NM_OPEN_ARG3 = 0x400000,    /* nr_arg3, the extra buffers */
    NM_OPEN_RING_CFG = 0x800000 /* numbers of rings and slots */
};

static inline struct nm_desc *nm_open(const char *ifname, const struct nmreq *req, uint64_t flags,
                                      const struct nm_desc *arg);
static inline int nm_close(struct nm_desc *d);
static inline int nm_mmap(struct nm_desc *d, const struct nm_desc *parent);
static inline int nm_parse(const char *ifname, struct nm_desc *d, char *err);
static inline int nm_inject(struct nm_desc *d, const void *buf, size_t size);
static inline int nm_dispatch(struct nm_desc *d, int cnt, nm_cb_t cb, unsigned char *arg);
static inline unsigned char *nm_nextpkt(struct nm_desc *d, struct nm_pkthdr *hdr);

/* ---- Names ---- */

/* Whether all of [from, to) are letters, digits and underscores. */
static inline int nm_is_identifier_(const char *from, const char *to)
{
    for (; from < to; from++) {
        if (!((*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z') ||
              (*from >= '0' && *from <= '9') || *from == '_'))
            return 0;
    }
    return 1;
}

/* A decimal number not above `most` at *cursor, which moves behind it; -1 if there is none. */
static inline long nm_parse_number_(const char **cursor, long most)
{
    const char *c = *cursor;
    long number = 0;

    if (*c < '0' || *c > '9')
        return -1;
    for (; *c >= '0' && *c <= '9'; c++) {
        number = number * 10 + (*c - '0');
        if (number > most)
            return -1;
    }
    *cursor = c;
    return number;
}

static inline int nm_parse_failed_(char *err, const char *what, const char *where)
{
    snprintf(err, MAXERRMSG, "%s: \"%.24s\"", what, where);
    errno = EINVAL;
    return -1;
}

/*
 * Read "netmap:NAME" or "valeX:NAME" with what may follow the name: "^" the host rings, "*" these too, "-K"
 * ring pair K,
 * "{K" or "}K" an end of pipe K; then "/" and letters of x (exclusive), z t r (monitors), R T (one
 * direction); then "@" and the number of a region. Fills nr_name, nr_ringid, nr_flags, and nr_arg2 if a
 * region is named.
 *
 * Returns 0, or -1 with a message in err (MAXERRMSG bytes) and nothing else changed.
 */
static inline int nm_parse(const char *ifname, struct nm_desc *d, char *err)
{
    static const char letters[] = "xztrRT";
    static const uint32_t meanings[] = {NR_EXCLUSIVE,  NR_ZCOPY_MON,     NR_MONITOR_TX,
                                        NR_MONITOR_RX, NR_RX_RINGS_ONLY, NR_TX_RINGS_ONLY};
    uint32_t flags = NR_REG_ALL_NIC;
    long ring = 0, region = d->req.nr_arg2;
    const char *name = ifname, *rest;

    if (strncmp(ifname, "netmap:", 7) == 0) {
        name += 7;
    } else if (strncmp(ifname, NM_BDG_NAME, 4) != 0) {
        return nm_parse_failed_(err, "a port name begins with netmap: or vale", ifname);
    }
    rest = name + strcspn(name, "-*^{}/@");
    if (name == ifname) {
        const char *colon = strchr(ifname, ':');

        if (colon == NULL || colon >= rest || !nm_is_identifier_(ifname, colon))
            return nm_parse_failed_(err, "a switch is vale, letters or digits, a colon", ifname);
        if (colon + 1 == rest || !nm_is_identifier_(colon + 1, rest))
            return nm_parse_failed_(err, "a port of a switch has letters, digits and _", colon + 1);
    }
    if (rest == name)
        return nm_parse_failed_(err, "no name of a port", ifname);
    if ((size_t)(rest - name) >= sizeof(d->req.nr_name))
        return nm_parse_failed_(err, "a name of more than 15 bytes", name);

    switch (*rest) {
    case '^':
        flags = NR_REG_SW;
        rest++;
        break;
    case '*':
        flags = NR_REG_NIC_SW;
        rest++;
        break;
    case '-':
    case '{':
    case '}':
        flags = *rest == '-' ? NR_REG_ONE_NIC : *rest == '{' ? NR_REG_PIPE_MASTER : NR_REG_PIPE_SLAVE;
        rest++;
        ring = nm_parse_number_(&rest, NETMAP_RING_MASK - 1);
        if (ring < 0)
            return nm_parse_failed_(err, "no number of a ring or pipe below 4095", rest);
        break;
    }
    if (*rest == '/') {
        if (rest[1] == '\0' || rest[1] == '@')
            return nm_parse_failed_(err, "no flag behind the slash", rest);
        for (rest++; *rest != '\0' && *rest != '@'; rest++) {
            const char *letter = strchr(letters, *rest);

            if (letter == NULL)
                return nm_parse_failed_(err, "not a flag (x z t r R T)", rest);
            flags |= meanings[letter - letters];
        }
    }
    if (*rest == '@') {
        rest++;
        region = nm_parse_number_(&rest, UINT16_MAX);
        if (region <= 0)
            return nm_parse_failed_(err, "no number of a region behind the @", rest);
    }
    if (*rest != '\0')
        return nm_parse_failed_(err, "this does not belong behind a name", rest);

    memset(d->req.nr_name, 0, sizeof(d->req.nr_name));
    memcpy(d->req.nr_name, name, strcspn(name, "-*^{}/@"));
    d->req.nr_ringid = (uint16_t)ring;
    d->req.nr_flags = flags;
    d->req.nr_arg2 = (uint16_t)region;
    return 0;
}

/* ---- Open and close ---- */

/* Write a member that is const for all other code. */
static inline void nm_set_(const void *member, const void *value)
{
    memcpy((void *)(uintptr_t)member, &value, sizeof(value));
}

/*
 * Map the region of a bound port, or use the mapping of `parent` (may be NULL) if it is the same region.
 *
 * Returns 0, or an errno.
 */
static inline int nm_mmap(struct nm_desc *d, const struct nm_desc *parent)
{
    struct netmap_ring *ring;
    struct netmap_if *nifp;

    if (d->mem != NULL)
        return EBUSY;
    if (parent != NULL && parent->mem != NULL && parent->req.nr_arg2 == d->req.nr_arg2) {
        d->mem = parent->mem;
        d->memsize = parent->memsize;
    } else {
        void *mem = mmap(NULL, d->req.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);

        if (mem == MAP_FAILED)
            return errno;
        d->mem = mem;
        d->memsize = d->req.nr_memsize;
        d->done_mmap = 1;
    }
    nifp = NETMAP_IF(d->mem, d->req.nr_offset);
    ring = NETMAP_RXRING(nifp, d->first_rx_ring);
    if ((void *)ring == (void *)nifp) /* rx rings are not bound */
        ring = NETMAP_TXRING(nifp, d->first_tx_ring);
    nm_set_(&d->nifp, nifp);
    nm_set_(&d->some_ring, ring);
    nm_set_(&d->buf_start, NETMAP_BUF(ring, 0));
    nm_set_(&d->buf_end, (char *)d->mem + d->memsize);
    return 0;
}

/* Which rings the bind covers, by its mode. */
static inline void nm_set_rings_(struct nm_desc *d)
{
    uint16_t tx = d->req.nr_tx_rings, rx = d->req.nr_rx_rings, ring = d->req.nr_ringid & NETMAP_RING_MASK;
    uint32_t mode = d->req.nr_flags & NR_REG_MASK;

    d->first_tx_ring = d->first_rx_ring = 0;
    d->last_tx_ring = (uint16_t)(tx - 1);
    d->last_rx_ring = (uint16_t)(rx - 1);
    if (mode == NR_REG_SW || mode == NR_REG_NIC_SW) {
        d->last_tx_ring = tx;
        d->last_rx_ring = rx;
    }
    if (mode == NR_REG_SW) {
        d->first_tx_ring = tx;
        d->first_rx_ring = rx;
    } else if (mode == NR_REG_ONE_NIC) {
        d->first_tx_ring = d->last_tx_ring = ring;
        d->first_rx_ring = d->last_rx_ring = ring;
    }
    d->cur_tx_ring = d->first_tx_ring;
    d->cur_rx_ring = d->first_rx_ring;
}

/*
 * Open the device, bind it to a port (nm_parse describes its names) and map it. `req` may hold first values
 * of the request, `flags` and `arg` are described at NM_OPEN_*; each may be 0.
 *
 * Returns NULL with errno on failure; errno is 0 if the name is not one of netmap's.
 */
static inline struct nm_desc *nm_open(const char *ifname, const struct nmreq *req, uint64_t flags,
                                      const struct nm_desc *arg)
{
    const struct nm_desc *parent = IS_NETMAP_DESC(arg) ? arg : NULL;
    char message[MAXERRMSG] = "cannot open the port";
    struct nm_desc *d;
    int error;

    if (strncmp(ifname, "netmap:", 7) != 0 && strncmp(ifname, NM_BDG_NAME, 4) != 0) {
        errno = 0;
        return NULL;
    }
    d = (struct nm_desc *)calloc(1, sizeof(*d));
    if (d == NULL)
        return NULL;
    d->self = d;
    d->fd = -1;
    if (req != NULL)
        d->req = *req;
    d->req.nr_version = NETMAP_API;
    d->req.nr_ringid = 0;
    if (parent != NULL) {
        if (flags & NM_OPEN_ARG1)
            d->req.nr_arg1 = parent->req.nr_arg1;
        if (flags & NM_OPEN_ARG2)
            d->req.nr_arg2 = parent->req.nr_arg2;
        if (flags & NM_OPEN_ARG3)
            d->req.nr_arg3 = parent->req.nr_arg3;
        if (flags & NM_OPEN_RING_CFG) {
            d->req.nr_tx_slots = parent->req.nr_tx_slots;
            d->req.nr_rx_slots = parent->req.nr_rx_slots;
            d->req.nr_tx_rings = parent->req.nr_tx_rings;
            d->req.nr_rx_rings = parent->req.nr_rx_rings;
        }
    }
    if (parent != NULL && (flags & NM_OPEN_IFNAME)) {
        memcpy(d->req.nr_name, parent->req.nr_name, sizeof(d->req.nr_name));
        d->req.nr_ringid = parent->req.nr_ringid;
        d->req.nr_flags = parent->req.nr_flags;
    } else if (nm_parse(ifname, d, message) != 0) {
        goto failed;
    }
    d->req.nr_ringid |= flags & (NETMAP_NO_TX_POLL | NETMAP_DO_RX_POLL);

    d->fd = open(NETMAP_DEVICE_NAME, O_RDWR);
    if (d->fd < 0 || ioctl(d->fd, NIOCREGIF, &d->req) != 0)
        goto failed;
    nm_set_rings_(d);
    if (!(flags & NM_OPEN_NO_MMAP) || parent != NULL) {
        error = nm_mmap(d, parent);
        if (error != 0) {
            errno = error;
            goto failed;
        }
    }
    return d;

failed:
    error = errno;
    D("%s: %s (%s)", ifname, message, strerror(error));
    nm_close(d);
    errno = error;
    return NULL;
}

/* Unmap what this descriptor mapped, close the port and free the descriptor. Returns 0, or EINVAL if it is
 * none. */
static inline int nm_close(struct nm_desc *d)
{
    if (!IS_NETMAP_DESC(d))
        return EINVAL;
    if (d->done_mmap)
        munmap(d->mem, d->memsize);
    if (d->fd >= 0)
        close(d->fd);
    d->self = NULL;
    free(d);
    return 0;
}

/* ---- Frames ---- */

/* Copy a frame into the free slots of one ring, over as many as it needs. Returns whether there were enough.
 */
static inline int nm_ring_put_(struct netmap_ring *ring, const char *frame, size_t size)
{
    uint32_t i = ring->head, fragments;

    for (fragments = 1; i != ring->tail && fragments <= NETMAP_MAX_FRAGS; fragments++) {
        struct netmap_slot *slot = &ring->slot[i];
        uint64_t offset = NETMAP_ROFFSET(ring, slot);
        size_t room = offset < ring->nr_buf_size ? ring->nr_buf_size - offset : 0;
        size_t length = size < room ? size : room;

        if (length > UINT16_MAX)
            length = UINT16_MAX;
        memcpy(NETMAP_BUF_OFFSET(ring, slot), frame, length);
        frame += length;
        size -= length;
        slot->len = (uint16_t)length;
        slot->flags = size > 0 ? NS_MOREFRAG : 0;
        i = nm_ring_next(ring, i);
        if (size == 0) {
            ring->head = ring->cur = i;
            return 1;
        }
    }
    return 0;
}

/*
 * Copy a frame into a tx ring with room, beginning with the one last used. It leaves with the next poll or
 * NIOCTXSYNC.
 *
 * Returns its size, or 0 if no ring has room for it.
 */
static inline int nm_inject(struct nm_desc *d, const void *buf, size_t size)
{
    uint32_t count = (uint32_t)d->last_tx_ring - d->first_tx_ring + 1, ring = d->cur_tx_ring;

    for (; count > 0; count--, ring++) {
        if (ring > d->last_tx_ring)
            ring = d->first_tx_ring;
        if (d->nifp->ring_ofs[ring] == 0)
            continue;
        if (nm_ring_put_(NETMAP_TXRING(d->nifp, ring), (const char *)buf, size)) {
            d->cur_tx_ring = (uint16_t)ring;
            return (int)size;
        }
    }
    return 0;
}

/* The first rx ring with a frame, beginning with the one last used; NULL if none has. */
static inline struct netmap_ring *nm_waiting_ring_(struct nm_desc *d)
{
    uint32_t count = (uint32_t)d->last_rx_ring - d->first_rx_ring + 1, ring = d->cur_rx_ring;

    for (; count > 0; count--, ring++) {
        struct netmap_ring *r;

        if (ring > d->last_rx_ring)
            ring = d->first_rx_ring;
        r = NETMAP_RXRING(d->nifp, ring);
        if ((void *)r != (void *)d->nifp && !nm_ring_empty(r)) {
            d->cur_rx_ring = (uint16_t)ring;
            return r;
        }
    }
    return NULL;
}

/* Describe the slot at head of a ring. */
static inline void nm_describe_(struct nm_desc *d, struct netmap_ring *ring, struct nm_pkthdr *hdr)
{
    struct netmap_slot *slot = &ring->slot[ring->head];

    hdr->ts = ring->ts;
    hdr->len = hdr->caplen = slot->len;
    hdr->flags = 0;
    hdr->d = d;
    hdr->slot = slot;
    hdr->buf = (uint8_t *)NETMAP_BUF_OFFSET(ring, slot);
}

/*
 * Call `cb` for received frames, `cnt` at most (0 or less: all). A frame is released after its call. Of a
 * frame over several slots it gets the first; the others follow that slot in the ring.
 *
 * Returns the number of frames.
 */
static inline int nm_dispatch(struct nm_desc *d, int cnt, nm_cb_t cb, unsigned char *arg)
{
    struct netmap_ring *ring = nm_waiting_ring_(d);
    int got = 0;

    while (ring != NULL && (cnt <= 0 || got < cnt)) {
        uint32_t next = nm_ring_next(ring, ring->head), tail = ring->tail;
        struct netmap_slot *last = &ring->slot[ring->head];

        nm_describe_(d, ring, &d->hdr);
        while ((last->flags & NS_MOREFRAG) && next != tail) {
            last = &ring->slot[next];
            d->hdr.len += last->len;
            next = nm_ring_next(ring, next);
        }
        if (next != tail)
            d->hdr.flags = NM_MORE_PKTS;
        cb(arg, &d->hdr, d->hdr.buf);
        ring->head = ring->cur = next;
        got++;
        ring = nm_waiting_ring_(d);
    }
    return got;
}

/* The next received slot, NULL if there is none. Its bytes stay until the next poll or sync. */
static inline unsigned char *nm_nextpkt(struct nm_desc *d, struct nm_pkthdr *hdr)
{
    struct netmap_ring *ring = nm_waiting_ring_(d);

    if (ring == NULL)
        return NULL;
    nm_describe_(d, ring, hdr);
    ring->head = ring->cur = nm_ring_next(ring, ring->head);
    return hdr->buf;
}

#endif
