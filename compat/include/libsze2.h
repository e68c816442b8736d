/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SZE2 capture cards for programs in C: the functions of libsze2 (szedata_*) on Ringroad's cards in software,
 * and some beyond them (szecard_*). Link with -lsze2.
 *
 * A card has channels, up to 32 in each direction, each with a circular buffer. In the buffers lie segments,
 * one for each frame:
 *
 *   0  2 bytes  length of the segment, without the padding behind it, little-endian
 *   2  2 bytes  length of the metadata, little-endian
 *   4           metadata (hw_data): what the card reports about the frame; then padding up to a multiple of 8
 *   then        the frame (sw_data), without FCS; then padding up to a multiple of 8
 *
 * A handle is for one thread at a time. Several handles of one card are independent; a channel belongs to one
 * of them. A function that fails sets errno; szecard_error() describes the failure in words. A handle belongs
 * to the process that opened it: in a child of fork() each function fails with EBADF, and szedata_close()
 * frees the child's copy alone.
 */
#ifndef _LIBSZE2_H_
#define _LIBSZE2_H_

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A handle; what is in it is the library's. */
struct szedata;

/* A locked part of a channel's buffer. If it continues at the start of the buffer, that is a second part. */
struct szedata_lock {
    void *start;
    __u32 len;                       /* bytes, a multiple of 8 */
    __u8 area;                       /* number of the channel */
    const struct szedata_lock *next; /* the second part, or NULL */
};

enum sze2_dir { SZE2_DIR_RX = 0, SZE2_DIR_TX = 1, SZE2_DIR_ALL };

#define SZE2_ALL_INTERFACES 0xFFFFFFFFU

/* Longest frame that programs written for the original are ready for; segments here may have all of the
 * 65535 bytes that their header allows. */
#define SZE2_MAX_FRAME_SIZE (24 * 1024)

#define SZEDATA_POLLRX POLLIN
#define SZEDATA_POLLTX POLLOUT

/* How long szedata_read_next() waits, ms, negative for ever (50), and how long a program may wait for room
 * (25). Environment variables of the same names, -1 to 120000, set them when a process opens its first
 * card. */
extern int SZE2_RX_POLL_TIMEOUT;
extern int SZE2_TX_POLL_TIMEOUT;

/* How many bytes szedata_burst_write_next() collects for a channel before it shows them to the card (1
 * MiB). */
extern unsigned int SZE2_BURST_WRITE_SIZE;

/* Opening. */

/* Opens the card whose socket is `node`, /run/szedataII0 for example. NULL on failure. */
struct szedata *szedata_open(const char *node);

/* Ends all subscriptions of the handle, after what was written has been transmitted, and the handle. NULL
 * is nothing. */
void szedata_close(struct szedata *sze);

/* A handle without a card, in which segments can be made and read. */
struct szedata *szedata_open_dummy(void);
void szedata_close_dummy(struct szedata *sze);

/* Subscribes the channels of the masks `*rx` and `*tx`, of which at least one has a bit, and leaves there
 * those that the handle has now and had not before. Channels of others are not among them, so check the
 * masks: 0 is returned all the same. 0 or an errno. */
int szedata_subscribe3(struct szedata *sze, __u32 *rx, __u32 *tx);

/* As szedata_subscribe3(); the last two arguments have no meaning any more. Deprecated. */
int szedata_subscribe(struct szedata *sze, __u32 *rx, __u32 *tx, unsigned int rx_poll_thresh,
                      unsigned int tx_poll_thresh);

/* Has the card move data on all channels subscribed; may be called again after others were. 0 or an errno. */
int szedata_start(struct szedata *sze);

/* Number of channels of the card, or -1. */
int szedata_ifaces_available(struct szedata *sze, enum sze2_dir dir);

/* Waits until there are data in a receive channel subscribed (SZEDATA_POLLRX in `*events`) or room for any
 * segment in a transmit channel (SZEDATA_POLLTX), for at most `timeout` ms, negative for ever. 1, with
 * what there is left in `*events`; 0 when the time is over or a signal came; -1 on failure. What was
 * collected by szedata_burst_write_next() is shown to the card before. */
int szedata_poll(struct szedata *sze, short *events, int timeout);

/* Size of a channel's buffer, bytes; `space` is SZE2_DIR_RX or SZE2_DIR_TX. 0 or an errno. */
int szedata_get_area_size(struct szedata *sze, __u8 space, __u8 area, __u32 *size);

/* NUMA node of a subscribed channel's buffer, or -1. */
int szedata_get_area_numa_node(struct szedata *sze, enum sze2_dir dir, __u32 area);

/* Receiving. */

/* The next segment of any receive channel subscribed, with its header, in the buffer; `*len` is its
 * length. It stays until the next call that reads from the handle. If there is none, waits for
 * SZE2_RX_POLL_TIMEOUT; then NULL with `*len` 0. errno is then EAGAIN, or EBADMSG where a buffer was found
 * out of order: nothing is read from that channel any more. */
unsigned char *szedata_read_next(struct szedata *sze, unsigned int *len);

/* The same, without waiting. */
unsigned char *szedata_read_next_noblock(struct szedata *sze, unsigned int *len);

/* The parts of a segment, where they lie in it. Returns its length; 0, with EBADMSG, where its lengths
 * contradict each other. */
unsigned int szedata_decode_packet(unsigned char *contents, unsigned char **data, unsigned char **hw_data,
                                   unsigned int *data_len, unsigned int *hw_data_len);

/* Has szedata_read_next() skip segments for whose metadata `filter` returns anything but 0. The filter calls
 * nothing of the handle. 0 or -1. */
int szedata_set_filter(struct szedata *sze, int (*filter)(uint16_t hw_data_len, unsigned char *hw_data));

/* Locks all data in one of the channels of the mask `areas`, each channel in its turn. NULL if there
 * are none (EAGAIN), and while others of the handle are locked (EBUSY). What lies there is not checked. */
const struct szedata_lock *szedata_rx_lock_data(struct szedata *sze, __u32 areas);

/* Gives all that was locked back to the card. 0 or an errno. */
int szedata_rx_unlock_data(struct szedata *sze, const struct szedata_lock *lock);

/* Transmitting. */

/* Makes a segment; `*len` is its length with padding. It stays until the next is made. NULL, and `*len` 0,
 * where it would be too long (EMSGSIZE). */
unsigned char *szedata_prepare_packet(struct szedata *sze, const unsigned char *hw_data,
                                      unsigned int hw_data_len, const unsigned char *sw_data,
                                      unsigned int sw_data_len, unsigned int *len);

/* Writes one or more whole segments to transmit channel `iface`. 0, or 1 if there is no room for all of
 * them yet, or -1, or -2 if `len` is not a multiple of 8. */
int szedata_try_write_next(struct szedata *sze, const unsigned char *data, unsigned int len,
                           unsigned short iface);

/* Makes a segment in the buffer and writes it. 0, or 1 if there is no room yet, or -1. */
int szedata_prepare_and_try_write_next(struct szedata *sze, const unsigned char *hw_data,
                                       unsigned int hw_data_len, const unsigned char *sw_data,
                                       unsigned int sw_data_len, unsigned short iface);

/* The same, but the card is shown segments only when SZE2_BURST_WRITE_SIZE bytes of them are there or the
 * buffer is full, or by szecard_flush(), szedata_poll() or szedata_close(). Each channel collects by
 * itself. */
int szedata_burst_write_next(struct szedata *sze, const unsigned char *hw_data, unsigned int hw_data_len,
                             const unsigned char *sw_data, unsigned int sw_data_len, unsigned short iface);

/* Locks room for `size` bytes, or for less, in the buffer of transmit channel `area` (a number, not a
 * mask). NULL if there is none (EAGAIN), and while other room of the handle is locked (EBUSY). */
const struct szedata_lock *szedata_tx_lock_data(struct szedata *sze, __u32 size, __u8 area);

/* Ends that; the first `size` bytes, a multiple of 8 or 0, were written as whole segments, and are shown
 * to the card. 0 or an errno. */
int szedata_tx_unlock_data(struct szedata *sze, const struct szedata_lock *lock, __u32 size);

/* Extensions to libsze2. Unless stated otherwise these return 0, or -1. */

/* This thread's last failure, in words. Never NULL; stays until the next failure. */
const char *szecard_error(void);

/* A received frame in the buffer. */
struct szecard_frame {
    unsigned char *data;
    unsigned char *metadata;
    uint32_t length;
    uint32_t metadata_length;
};

/* Takes up to `count` frames of a receive channel where they lie, each in one piece, without waiting;
 * returns how many, or -1. They stay until szecard_give_back(). */
int szecard_take(struct szedata *sze, unsigned int channel, struct szecard_frame *frames, unsigned int count);

/* Gives back the first `count` frames of all that were taken; the others, if any, will be taken again. */
int szecard_give_back(struct szedata *sze, unsigned int channel, unsigned int count);

/* Gives back the frames taken before `first`: it and those after it, `left` frames in all, stay taken. With
 * `left` 0 all are given back, and `first` has no meaning. */
int szecard_give_back_before(struct szedata *sze, unsigned int channel, const struct szecard_frame *first,
                             unsigned int left);

/* Holds the memory of a receive channel's buffer: its frames stay where they are until szecard_end_hold(), also
 * after szecard_renew() and szedata_close(). The card may still write over frames that were given back. NULL on
 * failure. */
struct szecard_buffer;
const struct szecard_buffer *szecard_hold(struct szedata *sze, unsigned int channel);

/* Ends that. Any thread may call it. NULL is nothing. */
void szecard_end_hold(const struct szecard_buffer *buffer);

/* Gives a receive channel that is started a new, empty buffer. No frame is lost: the frames left in the old buffer
 * are taken first. The first szecard_take() that then returns 0 leaves the old buffer, and later ones take from the
 * new one. What was taken before counts as given back; the card puts nothing more into the old buffer. EBUSY while
 * an earlier call has left frames. */
int szecard_renew(struct szedata *sze, unsigned int channel);

/* Longest frame that a segment without metadata has room for, bytes. */
#define SZECARD_MAX_FRAME 65527U

/* Begins segments for frames of `lengths` in the buffer of a transmit channel, as many as there is room
 * for now; `places` are where to write the frames before szecard_commit(). Returns their number,
 * which is less than `count` where room or length end it, or -1 (EMSGSIZE where the first is longer than
 * SZECARD_MAX_FRAME). */
int szecard_reserve(struct szedata *sze, unsigned int channel, const uint32_t *lengths,
                    unsigned char **places, unsigned int count);

/* Shows the card all that was reserved. */
int szecard_commit(struct szedata *sze, unsigned int channel);

/* Shows the card all that szedata_burst_write_next() collected. */
int szecard_flush(struct szedata *sze);

/* The properties of a card. */
struct szecard_info {
    char name[64];
    uint64_t receive_buffer;  /* of each receive channel, bytes */
    uint64_t transmit_buffer; /* of each transmit channel, bytes */
    uint16_t receive_channels;
    uint16_t transmit_channels;
    uint8_t address[6]; /* the card's own */
};

int szecard_get_info(struct szedata *sze, struct szecard_info *info);

/* The design (firmware) of a card. */
struct szecard_design {
    char name[48];
    char version[16]; /* empty where it is not known */
};

/* Queries the card. EPERM from a card whose version has no designs. */
int szecard_get_design(struct szedata *sze, struct szecard_design *design);

/* Which destinations an input buffer lets in: all; those listed; those and broadcast; those, broadcast and
 * multicast. */
#define SZECARD_CHECK_PROMISCUOUS 0U
#define SZECARD_CHECK_LISTED      1U
#define SZECARD_CHECK_BROADCAST   2U
#define SZECARD_CHECK_MULTICAST   3U

#define SZECARD_MAX_ADDRESSES 32
#define SZECARD_MAX_CHANNELS  32

/* The input buffer (IBUF) of a card. Lengths are without FCS. */
struct szecard_ibuf {
    unsigned int enabled;
    unsigned int address_check; /* SZECARD_CHECK_* */
    uint32_t min_length;
    uint32_t max_length;
    unsigned int nr_addresses; /* how many of `addresses` count */
    uint8_t addresses[SZECARD_MAX_ADDRESSES][6];
};

/* Each frame that came is in one of these; `bytes` are those of `frames`, without FCS. */
struct szecard_ibuf_counters {
    uint64_t frames; /* let in */
    uint64_t bytes;
    uint64_t disabled; /* the rest not, because it was switched off, */
    uint64_t too_short;
    uint64_t too_long;
    uint64_t address;   /* they were for other stations, */
    uint64_t denied;    /* the filter denied them, */
    uint64_t unclaimed; /* no program had started their channel, */
    uint64_t overflow;  /* or their channel had no room */
};

struct szecard_obuf_counters {
    uint64_t frames; /* let out */
    uint64_t bytes;
    uint64_t disabled; /* came while it was switched off */
};

struct szecard_channel {
    uint64_t frames; /* that the card put into it, or took out */
    uint64_t bytes;
    uint64_t overflow; /* frames that it had no room for */
    uint64_t used;     /* bytes in its buffer */
    uint64_t faults;   /* times that its programs broke a rule, and the card stopped it */
    unsigned int running;
    unsigned int pid; /* its process, 0 for none */
};

struct szecard_status {
    struct szecard_ibuf ibuf;
    unsigned int obuf_enabled;
    struct szecard_ibuf_counters ibuf_counters;
    struct szecard_obuf_counters obuf_counters;
    struct szecard_channel receive[SZECARD_MAX_CHANNELS];
    struct szecard_channel transmit[SZECARD_MAX_CHANNELS];
};

/* Everything about the card, as it is now. Queries the card, which may take a while. */
int szecard_get_status(struct szedata *sze, struct szecard_status *status);

/* Whether the metadata of each received frame begin with the time of its arrival, ns since 1970 as 64 bits,
 * little-endian: 1 or 0, or -1 on failure. Queries the card. */
int szecard_has_timestamps(struct szedata *sze);

/* Sets all of the input buffer, for every user of the card. */
int szecard_set_ibuf(struct szedata *sze, const struct szecard_ibuf *ibuf);

/* Lets the output buffer (OBUF) let frames out, or not (0). */
int szecard_set_obuf(struct szedata *sze, int enabled);

/* Rules of a program. They come before those of the card's filter and go with the handle. A rule is a text as in
 * a filter, "allow 3 if tcp dst 192.0.2.0/24 dport 80-443" or "deny if vlan 5". The first that fits a frame
 * decides. A card has at most SZECARD_MAX_RULES of all programs. EPERM where it refuses one. */
#define SZECARD_MAX_RULES 1024
#define SZECARD_MAX_RULE  512 /* bytes */

struct szecard_rule_counters {
    uint64_t frames; /* on which the rule decided */
    uint64_t bytes;  /* of these, without FCS */
};

/* Whether szecard_add_rule() would add the rule. */
int szecard_check_rule(struct szedata *sze, const char *rule);

/* Adds a rule. Among those of the handle the least `priority` comes first, and of equal ones the earlier. `*number`
 * names it in the other calls. */
int szecard_add_rule(struct szedata *sze, const char *rule, uint32_t priority, int counts, uint64_t *number);

/* Removes a rule. `counters`, which may be NULL, are its last: zeros if it does not count. */
int szecard_remove_rule(struct szedata *sze, uint64_t number, struct szecard_rule_counters *counters);

int szecard_get_rule_counters(struct szedata *sze, uint64_t number, struct szecard_rule_counters *counters);

/* Sets all counters of the card to zero, except those of rules. */
int szecard_clear_counters(struct szedata *sze);

/* The traffic of this handle. */
struct szecard_handle_counters {
    uint64_t received;    /* frames given to the program */
    uint64_t filtered;    /* frames that szedata_set_filter()'s function skipped */
    uint64_t transmitted; /* frames written; not those of szedata_tx_unlock_data() */
    uint64_t faults;      /* buffers found out of order */
};

int szecard_get_handle_counters(struct szedata *sze, struct szecard_handle_counters *counters);

#ifdef __cplusplus
}
#endif

#endif
