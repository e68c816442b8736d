/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Ports with a virtio-net header in front of every frame: passed on between them, taken off and acted upon for ports without. */
#include "bound.h"

#include <linux/virtio_net.h>

enum { ETHERNET = 14, IPV4 = 20, TCP = 20, HEADERS = ETHERNET + IPV4 + TCP, LONGEST = 65536 };

/* The parts of a frame, with its header in front if it has one. */
struct message {
    uint8_t bytes[LONGEST];
    unsigned len;
};

static struct bound bind_with_header(const char *name, uint32_t bytes)
{
    struct bound b = bind_mode(name, NR_REG_ALL_NIC, 0, NR_ACCEPT_VNET_HDR);
    struct nmreq_port_hdr body = {.nr_hdr_len = bytes};

    NEED(b.error == 0);
    NEED(request(b.fd, NETMAP_REQ_PORT_HDR_SET, name, &body) == 0);
    body.nr_hdr_len = 77;
    NEED(request(b.fd, NETMAP_REQ_PORT_HDR_GET, name, &body) == 0 && body.nr_hdr_len == bytes);
    return b;
}

/* Puts a message into the next slots, the first `first` bytes into a slot of their own where that is not 0. */
static int put_message(struct netmap_ring *ring, const struct message *message, unsigned first)
{
    unsigned done = 0;

    while (done < message->len) {
        struct netmap_slot *slot = &ring->slot[ring->head];
        unsigned part = message->len - done;

        if (nm_ring_empty(ring)) {
            return 0;
        }
        if (part > ring->nr_buf_size) {
            part = ring->nr_buf_size;
        }
        if (done == 0 && first != 0 && part > first) {
            part = first;
        }
        memcpy(NETMAP_BUF(ring, slot->buf_idx), message->bytes + done, part);
        slot->len = (uint16_t)part;
        done += part;
        slot->flags = done < message->len ? NS_MOREFRAG : 0;
        ring->head = ring->cur = nm_ring_next(ring, ring->head);
    }
    return 1;
}

/* Takes the next message; the slots that it lay in, or 0 if there is none. */
static unsigned take_message(struct netmap_ring *ring, struct message *message)
{
    unsigned slots = 0;
    int more = 1;

    message->len = 0;
    while (more) {
        struct netmap_slot *slot = &ring->slot[ring->head];

        if (nm_ring_empty(ring)) {
            return 0;
        }
        NEED(message->len + slot->len <= LONGEST);
        memcpy(message->bytes + message->len, NETMAP_BUF(ring, slot->buf_idx), slot->len);
        message->len += slot->len;
        more = slot->flags & NS_MOREFRAG;
        slots++;
        ring->head = ring->cur = nm_ring_next(ring, ring->head);
    }
    return slots;
}

static uint32_t sum(const uint8_t *bytes, unsigned len, uint32_t start)
{
    unsigned i;

    for (i = 0; i < len; i++) {
        start += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
    }
    return start;
}

static uint16_t fold(uint32_t sum)
{
    while (sum > 0xffff) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)sum;
}

static void store16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static unsigned load16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

/* The sum of the pseudo header of a TCP segment in IPv4. */
static uint32_t pseudo(const uint8_t *frame, unsigned transport_bytes)
{
    return sum(frame + ETHERNET + 12, 8, 6 + transport_bytes);
}

/* A TCP frame to station `to` behind a header of `header` bytes that leaves the checksum open, and cutting where `segment` is not 0. */
static void make(struct message *m, unsigned header, int from, int to, unsigned payload, unsigned segment)
{
    struct virtio_net_hdr_v1 said;
    uint8_t *frame = m->bytes + header;
    unsigned i;

    memset(m, 0, sizeof(*m));
    m->len = header + HEADERS + payload;
    NEED(m->len <= LONGEST);
    frame[0] = frame[6] = 2;
    frame[5] = (uint8_t)to;
    frame[11] = (uint8_t)from;
    store16(frame + 12, 0x0800);
    frame[14] = 0x45;
    store16(frame + 16, IPV4 + TCP + payload);
    frame[22] = 64;
    frame[23] = 6;
    memcpy(frame + 26, "\x0a\0\0\1\x0a\0\0\2", 8);
    store16(frame + 24, (uint16_t)~fold(sum(frame + ETHERNET, IPV4, 0)));
    store16(frame + 34, 4000);
    store16(frame + 36, 80);
    frame[46] = TCP / 4 << 4;
    frame[47] = 0x18;
    for (i = 0; i < payload; i++) {
        frame[HEADERS + i] = (uint8_t)(i * 7);
    }
    if (header == 0) {
        return;
    }
    store16(frame + 50, fold(pseudo(frame, TCP + payload)));
    memset(&said, 0, sizeof(said));
    said.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    said.gso_type = segment != 0 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_NONE;
    said.hdr_len = HEADERS;
    said.gso_size = (uint16_t)segment;
    said.csum_start = ETHERNET + IPV4;
    said.csum_offset = 16;
    said.num_buffers = 99;
    memcpy(m->bytes, &said, header);
}

/* Whether a finished segment is right in itself; its payload continues at `*sequence`. */
static int is_whole(const struct message *m, unsigned *sequence)
{
    const uint8_t *frame = m->bytes;
    unsigned transport = m->len - ETHERNET - IPV4, i;

    if (m->len < HEADERS || load16(frame + 16) != IPV4 + transport ||
        fold(sum(frame + ETHERNET, IPV4, 0)) != 0xffff ||
        fold(sum(frame + ETHERNET + IPV4, transport, pseudo(frame, transport))) != 0xffff ||
        (load16(frame + 38) << 16 | load16(frame + 40)) != *sequence) {
        return 0;
    }
    for (i = 0; i < m->len - HEADERS; i++) {
        if (frame[HEADERS + i] != (uint8_t)((*sequence + i) * 7)) {
            return 0;
        }
    }
    *sequence += m->len - HEADERS;
    return 1;
}

static struct message sent, got;

/* Between two ports with headers it arrives as it was sent, for any lengths of the headers. */
static void passed_on(unsigned from, unsigned to)
{
    struct bound a = bind_with_header("vale2:a", from), b = bind_with_header("vale2:b", to);
    struct virtio_net_hdr_v1 header;
    unsigned round;

    for (round = 0; round < 4; round++) {
        unsigned payload = round % 2 == 0 ? 100 : 60000, slots;

        make(&sent, from, 1, 2, payload, round % 2 == 0 ? 0 : 1400);
        /* In a slot of its own, too. */
        CHECK(put_message(tx(&a, 0), &sent, round < 2 ? 0 : from) && deliver(&a) == 0 && rxsync(&b) == 0);
        slots = take_message(rx(&b, 0), &got);
        CHECK(slots == (to + HEADERS + payload + 2047) / 2048);
        CHECK(got.len == to + HEADERS + payload);
        CHECK(memcmp(got.bytes, sent.bytes, 10) == 0);
        CHECK(memcmp(got.bytes + to, sent.bytes + from, HEADERS + payload) == 0);
        memcpy(&header, got.bytes, sizeof(header));
        CHECK(to < 12 || header.num_buffers == slots);
        CHECK(rxsync(&b) == 0);
    }
    CHECK(drain(&b, 0) == 0 && drain(&a, 0) == 0);
    unbind(&a);
    unbind(&b);
}

/* A port without a header gets frames that are as they should be on a wire. */
static void finished(unsigned from)
{
    struct bound a = bind_with_header("vale2:a", from), b = bind_port("vale2:b");
    unsigned sequence = 0, segments = 0;

    make(&sent, from, 1, 2, 101, 0);
    CHECK(put_message(tx(&a, 0), &sent, 0) && deliver(&a) == 0 && rxsync(&b) == 0);
    CHECK(take_message(rx(&b, 0), &got) == 1 && got.len == HEADERS + 101 && is_whole(&got, &sequence));
    make(&sent, from, 1, 2, 60000, 1400);
    CHECK(put_message(tx(&a, 0), &sent, from) && deliver(&a) == 0 && rxsync(&b) == 0);
    sequence = 0;
    while (take_message(rx(&b, 0), &got) != 0) {
        CHECK(got.len <= HEADERS + 1400 && is_whole(&got, &sequence));
        /* Only the last one pushes. */
        CHECK((got.bytes[47] == 0x18) == (sequence == 60000));
        segments++;
    }
    CHECK(sequence == 60000 && segments == 43);
    CHECK(rxsync(&b) == 0);
    unbind(&a);
    unbind(&b);
}

/* A frame without a header gets one with nothing left to do. */
static void headed(unsigned to)
{
    static const uint8_t zeros[10];
    struct bound a = bind_port("vale2:a"), b = bind_with_header("vale2:b", to);

    make(&sent, 0, 1, 2, 3000, 0);
    CHECK(put_message(tx(&a, 0), &sent, 0) && deliver(&a) == 0 && rxsync(&b) == 0);
    CHECK(take_message(rx(&b, 0), &got) == 2 && got.len == to + HEADERS + 3000);
    CHECK(memcmp(got.bytes, zeros, 10) == 0 && (to < 12 || got.bytes[10] == 2));
    CHECK(memcmp(got.bytes + to, sent.bytes, HEADERS + 3000) == 0);
    unbind(&a);
    unbind(&b);
}

/* Addresses are learned from behind the header, and a port changes when its owner requests it. */
static void learned_and_changed(void)
{
    struct bound a = bind_with_header("vale2:a", 12), b = bind_port("vale2:b"), c = bind_port("vale2:c");
    struct nmreq_port_hdr body = {.nr_hdr_len = 0};
    unsigned sequence = 0;

    make(&sent, 12, 1, 2, 10, 0);
    CHECK(put_message(tx(&a, 0), &sent, 0) && deliver(&a) == 0 && drain(&b, 0) == 1 && drain(&c, 0) == 1);
    make(&sent, 0, 2, 1, 10, 0);
    CHECK(put_message(tx(&b, 0), &sent, 0) && deliver(&b) == 0);
    CHECK(drain(&c, 0) == 0 && rxsync(&a) == 0 && take_message(rx(&a, 0), &got) == 1 &&
          got.len == 12 + HEADERS + 10);
    /* A program that binds such a port must declare support. */
    CHECK(bind_error("vale2:a", NR_REG_ALL_NIC, 0, 0) == EIO);
    CHECK(request(a.fd, NETMAP_REQ_PORT_HDR_SET, "vale2:a", &body) == 0);
    make(&sent, 12, 1, 2, 10, 0);
    memmove(sent.bytes, sent.bytes + 12, HEADERS + 10);
    sent.len = HEADERS + 10;
    CHECK(put_message(tx(&a, 0), &sent, 0) && deliver(&a) == 0 && rxsync(&b) == 0);
    CHECK(take_message(rx(&b, 0), &got) == 1 && got.len == HEADERS + 10 && !is_whole(&got, &sequence));
    unbind(&a);
    unbind(&b);
    unbind(&c);
}

/* Headers that make no sense and frames cut off in theirs are lost, and nothing else is. */
static void hostile(void)
{
    struct bound a = bind_with_header("vale2:a", 12), b = bind_port("vale2:b"),
                 c = bind_with_header("vale2:c", 10);
    unsigned len, sequence = 0;
    size_t i;
    const struct virtio_net_hdr_v1 headers[] = {
        {.flags = 1, .csum_start = 0xffff, .csum_offset = 0xffff},
        {.flags = 1, .csum_start = 34, .csum_offset = 2000},
        {.flags = 1, .gso_type = VIRTIO_NET_HDR_GSO_TCPV4, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = 0x42, .gso_size = 100, .csum_start = 34, .csum_offset = 16},
        {.flags = 1,
         .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
         .gso_size = 1,
         .csum_start = 34,
         .csum_offset = 16},
        {.flags = 0, .gso_type = VIRTIO_NET_HDR_GSO_TCPV6, .gso_size = 1400},
        {.flags = 0xff, .gso_type = 0xff, .gso_size = 0xffff, .csum_start = 0xffff, .csum_offset = 0xffff},
    };

    for (i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        make(&sent, 12, 1, 2, 1000, 0);
        memcpy(sent.bytes, &headers[i], sizeof(headers[i]));
        CHECK(put_message(tx(&a, 0), &sent, 0));
    }
    for (len = 1; len < 12 + ETHERNET; len++) {
        make(&sent, 12, 1, 2, 0, 0);
        sent.len = len;
        CHECK(put_message(tx(&a, 0), &sent, len % 3 == 0 ? len / 2 : 0));
    }
    make(&sent, 12, 1, 2, 1000, 0);
    CHECK(put_message(tx(&a, 0), &sent, 0) && deliver(&a) == 0 && rxsync(&b) == 0);
    CHECK(take_message(rx(&b, 0), &got) == 1 && is_whole(&got, &sequence) && sequence == 1000);
    CHECK(drain(&b, 0) == 0 && drain(&c, 0) == 1);
    unbind(&a);
    unbind(&b);
    unbind(&c);
}

int main(void)
{
    passed_on(12, 12);
    passed_on(10, 10);
    passed_on(10, 12);
    passed_on(12, 10);
    finished(12);
    finished(10);
    headed(12);
    headed(10);
    learned_and_changed();
    hostile();
    return CHECK_RESULT();
}
