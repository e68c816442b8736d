/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Flow rules (rte_flow). Each is a rule of the card's filter, at the card while the port is started. It goes
 * with the port's handle. A rule that would match other frames than it states is refused. */
#include "szedata2.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_flow_driver.h>

/* Most VLAN tags that a card looks behind. */
#define MOST_TAGS 8

struct rte_flow {
    TAILQ_ENTRY(rte_flow) next;
    char rule[SZECARD_MAX_RULE + 1];
    uint32_t priority;
    uint16_t queues; /* number of its last queue, plus 1; 0 for none */
    bool counts;
    bool is_applied; /* the card has it, as `number` */
    uint64_t number;
    struct szecard_rule_counters earlier; /* of the starts before, less what was there at the last reset */
};

/* The part of a pattern that was read. Headers come in this order; an IP header and those of layer 4 once. */
enum layer { NOTHING, ETHERNET, VLAN, IPV4, IPV6, TRANSPORT };

/* A pattern as it is translated. */
struct translation {
    struct rte_flow_error *error;
    char conditions[SZECARD_MAX_RULE];
    size_t length;
    unsigned int tags, least_tags, most_tags; /* tags that were named; numbers of tags that fit */
};

/* An item's structures; zeros where they are not given. */
struct fields {
    const struct rte_flow_item *item;
    const uint8_t *spec, *last, *mask;
};

/* Headers of layer 4. */
static const struct transport {
    enum rte_flow_item_type type;
    const char *condition;
    enum layer below; /* the version of IP that it needs */
    bool has_ports;   /* they are the first fields */
    size_t size;
    const void *default_mask;
} transports[] = {
    {RTE_FLOW_ITEM_TYPE_TCP, " tcp", NOTHING, true, sizeof(struct rte_flow_item_tcp),
     &rte_flow_item_tcp_mask},
    {RTE_FLOW_ITEM_TYPE_UDP, " udp", NOTHING, true, sizeof(struct rte_flow_item_udp),
     &rte_flow_item_udp_mask},
    {RTE_FLOW_ITEM_TYPE_SCTP, " sctp", NOTHING, true, sizeof(struct rte_flow_item_sctp),
     &rte_flow_item_sctp_mask},
    {RTE_FLOW_ITEM_TYPE_ICMP, " icmp", IPV4, false, sizeof(struct rte_flow_item_icmp),
     &rte_flow_item_icmp_mask},
    {RTE_FLOW_ITEM_TYPE_ICMP6, " icmp6", IPV6, false, sizeof(struct rte_flow_item_icmp6),
     &rte_flow_item_icmp6_mask},
};

__rte_format_printf(2, 3) static void put(struct translation *to, const char *format, ...)
{
    size_t left = sizeof(to->conditions) - to->length;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(to->conditions + to->length, left, format, arguments);
    va_end(arguments);
    if (length > 0)
        to->length += RTE_MIN((size_t)length, left - 1);
}

static bool is_filled(const uint8_t *bytes, size_t size, uint8_t with)
{
    while (size > 0 && bytes[size - 1] == with)
        size--;
    return size == 0;
}

static uint16_t half(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static int refuse(const struct translation *to, int code, enum rte_flow_error_type type,
                  const struct rte_flow_item *item, const char *why)
{
    return rte_flow_error_set(to->error, code, type, item, why);
}

static int open_item(const struct translation *to, const struct rte_flow_item *item, const void *default_mask,
                     struct fields *fields)
{
    static const uint64_t zeros[8];

    RTE_BUILD_BUG_ON(sizeof(zeros) < sizeof(struct rte_flow_item_ipv6));
    fields->item = item;
    fields->spec = item->spec != NULL ? item->spec : zeros;
    fields->last = item->last != NULL ? item->last : zeros;
    fields->mask = item->spec == NULL ? zeros : item->mask != NULL ? item->mask : default_mask;
    if (item->spec == NULL && (item->last != NULL || item->mask != NULL))
        return refuse(to, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM_SPEC, item, "last and mask need a spec");
    return 0;
}

/* Refuses what the card cannot match. */
static int expect_any(const struct translation *to, const struct fields *fields, size_t from, size_t size)
{
    if (is_filled(fields->mask + from, size, 0))
        return 0;
    return refuse(
        to, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_MASK, fields->item,
        "the card matches addresses, EtherType, VLAN, protocol of IPv4 and ports, not other fields");
}

static int expect_no_range(const struct translation *to, const struct fields *fields, size_t at, size_t size)
{
    const uint8_t *last = fields->last + at;

    if (is_filled(last, size, 0) || memcmp(last, fields->spec + at, size) == 0)
        return 0;
    return refuse(to, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_LAST, fields->item, "only ports can be a range");
}

static int refuse_part(const struct translation *to, const struct fields *fields)
{
    return refuse(to, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_MASK, fields->item,
                  "a field is matched as a whole, and an IP address by a prefix");
}

/* Whether a field has to have the value in `spec`: 1, 0, or a negative errno. */
static int wants_value(const struct translation *to, const struct fields *fields, size_t at, size_t size)
{
    int status;

    if (is_filled(fields->mask + at, size, 0))
        return 0;
    if (!is_filled(fields->mask + at, size, 0xFF))
        return refuse_part(to, fields);
    status = expect_no_range(to, fields, at, size);
    return status != 0 ? status : 1;
}

static int read_station(struct translation *to, const struct fields *fields, size_t at, const char *condition)
{
    const uint8_t *address = fields->spec + at;
    int wants = wants_value(to, fields, at, RTE_ETHER_ADDR_LEN);

    if (wants > 0)
        put(to, " %s %02x:%02x:%02x:%02x:%02x:%02x", condition, address[0], address[1], address[2],
            address[3], address[4], address[5]);
    return RTE_MIN(wants, 0);
}

/* The type behind the tags that were named: no other tag lies before it. */
static int read_type(struct translation *to, const struct fields *fields, size_t at)
{
    int wants = wants_value(to, fields, at, sizeof(uint16_t));
    uint16_t type = half(fields->spec + at);

    if (wants <= 0)
        return wants;
    if (type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ || type == RTE_ETHER_TYPE_QINQ1)
        return refuse(to, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_SPEC, fields->item,
                      "the card does not tell the types of VLAN tags apart: use an item VLAN or has_vlan");
    put(to, " ethertype %u", type);
    to->most_tags = RTE_MIN(to->most_tags, to->tags);
    return 0;
}

/* Whether more tags follow than were named. */
static void read_more_tags(struct translation *to, bool matters, bool has_more)
{
    if (matters && has_more)
        to->least_tags = RTE_MAX(to->least_tags, to->tags + 1);
    else if (matters)
        to->most_tags = RTE_MIN(to->most_tags, to->tags);
}

static int read_ethernet(struct translation *to, const struct rte_flow_item *item)
{
    struct fields fields;
    int status = open_item(to, item, &rte_flow_item_eth_mask, &fields);

    if (status == 0)
        status = read_station(to, &fields, offsetof(struct rte_flow_item_eth, hdr.dst_addr), "dmac");
    if (status == 0)
        status = read_station(to, &fields, offsetof(struct rte_flow_item_eth, hdr.src_addr), "smac");
    if (status == 0)
        status = read_type(to, &fields, offsetof(struct rte_flow_item_eth, hdr.ether_type));
    if (status == 0)
        read_more_tags(to, ((const struct rte_flow_item_eth *)(const void *)fields.mask)->has_vlan,
                       ((const struct rte_flow_item_eth *)(const void *)fields.spec)->has_vlan);
    return status;
}

static int read_vlan(struct translation *to, const struct rte_flow_item *item)
{
    const size_t at = offsetof(struct rte_flow_item_vlan, hdr.vlan_tci);
    struct fields fields;
    uint16_t mask;
    int status = open_item(to, item, &rte_flow_item_vlan_mask, &fields);

    if (status != 0)
        return status;
    if (++to->tags > MOST_TAGS)
        return refuse(to, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM, item,
                      "the card looks behind 8 VLAN tags at most");
    to->least_tags = RTE_MAX(to->least_tags, to->tags);
    mask = half(fields.mask + at);
    if (mask != 0) {
        if (mask != 0x0FFF || to->tags > 1)
            return refuse(to, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_MASK, item,
                          "of VLAN tags the card matches the number of the outermost VLAN");
        status = expect_no_range(to, &fields, at, sizeof(uint16_t));
        put(to, " vlan %u", half(fields.spec + at) & 0x0FFFU);
    }
    if (status == 0)
        status = read_type(to, &fields, offsetof(struct rte_flow_item_vlan, hdr.eth_proto));
    if (status == 0)
        read_more_tags(to, ((const struct rte_flow_item_vlan *)(const void *)fields.mask)->has_more_vlan,
                       ((const struct rte_flow_item_vlan *)(const void *)fields.spec)->has_more_vlan);
    return status;
}

/* Length of the prefix that a mask leaves, or -1. */
static int prefix_of(const uint8_t *mask, size_t size)
{
    size_t bits = 0, i;

    while (bits < 8 * size && mask[bits / 8] & 0x80 >> bits % 8)
        bits++;
    for (i = bits; i < 8 * size; i++) {
        if (mask[i / 8] & 0x80 >> i % 8)
            return -1;
    }
    return (int)bits;
}

static int read_address(struct translation *to, const struct fields *fields, size_t at, int family,
                        const char *condition)
{
    size_t size = family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr);
    int bits = prefix_of(fields->mask + at, size), status;
    char address[INET6_ADDRSTRLEN];

    if (bits == 0)
        return 0;
    if (bits < 0)
        return refuse_part(to, fields);
    status = expect_no_range(to, fields, at, size);
    if (status == 0)
        put(to, " %s %s/%d", condition, inet_ntop(family, fields->spec + at, address, sizeof(address)), bits);
    return status;
}

static int read_ipv4(struct translation *to, const struct rte_flow_item *item)
{
    const size_t protocol = offsetof(struct rte_flow_item_ipv4, hdr.next_proto_id);
    const size_t source = offsetof(struct rte_flow_item_ipv4, hdr.src_addr);
    struct fields fields;
    int wants, status = open_item(to, item, &rte_flow_item_ipv4_mask, &fields);

    if (status == 0)
        status = expect_any(to, &fields, 0, protocol);
    if (status == 0)
        status = expect_any(to, &fields, protocol + 1, source - protocol - 1);
    if (status != 0)
        return status;
    put(to, " ipv4");
    wants = wants_value(to, &fields, protocol, 1);
    if (wants > 0)
        put(to, " proto %u", fields.spec[protocol]);
    status = RTE_MIN(wants, 0);
    if (status == 0)
        status = read_address(to, &fields, source, AF_INET, "src");
    if (status == 0)
        status = read_address(to, &fields, offsetof(struct rte_flow_item_ipv4, hdr.dst_addr), AF_INET, "dst");
    return status;
}

static int read_ipv6(struct translation *to, const struct rte_flow_item *item)
{
    const size_t source = offsetof(struct rte_flow_item_ipv6, hdr.src_addr);
    const size_t end = sizeof(((struct rte_flow_item_ipv6 *)NULL)->hdr);
    struct fields fields;
    int status = open_item(to, item, &rte_flow_item_ipv6_mask, &fields);

    /* What the header names next may be an extension header, and the card looks behind those. */
    if (status == 0)
        status = expect_any(to, &fields, 0, source);
    if (status == 0)
        status = expect_any(to, &fields, end, sizeof(struct rte_flow_item_ipv6) - end);
    if (status != 0)
        return status;
    put(to, " ipv6");
    status = read_address(to, &fields, source, AF_INET6, "src");
    if (status == 0)
        status =
            read_address(to, &fields, offsetof(struct rte_flow_item_ipv6, hdr.dst_addr), AF_INET6, "dst");
    return status;
}

static int read_port(struct translation *to, const struct fields *fields, size_t at, const char *condition)
{
    uint16_t first = half(fields->spec + at), last = half(fields->last + at);

    if (half(fields->mask + at) == 0)
        return 0;
    if (half(fields->mask + at) != 0xFFFF)
        return refuse_part(to, fields);
    if (last == 0)
        last = first;
    if (last < first)
        return refuse(to, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM_LAST, fields->item,
                      "a range of ports ends before it begins");
    put(to, " %s %u-%u", condition, first, last);
    return 0;
}

static int read_transport(struct translation *to, const struct rte_flow_item *item,
                          const struct transport *transport, enum layer below)
{
    const size_t ports = transport->has_ports ? 2 * sizeof(uint16_t) : 0;
    struct fields fields;
    int status = open_item(to, item, transport->default_mask, &fields);

    if (status == 0)
        status = expect_any(to, &fields, ports, transport->size - ports);
    if (status != 0)
        return status;
    if (below == NOTHING && transport->below != NOTHING)
        put(to, transport->below == IPV4 ? " ipv4" : " ipv6");
    put(to, "%s", transport->condition);
    if (!transport->has_ports)
        return 0;
    /* Later fragments have no such header. */
    put(to, " dport 0-65535");
    status = read_port(to, &fields, 0, "sport");
    return status != 0 ? status : read_port(to, &fields, sizeof(uint16_t), "dport");
}

static const struct transport *transport_of(enum rte_flow_item_type type)
{
    size_t i;

    for (i = 0; i < RTE_DIM(transports); i++) {
        if (transports[i].type == type)
            return &transports[i];
    }
    return NULL;
}

/* Reads an item that follows `layer`, and moves on. */
static int read_item(struct translation *to, const struct rte_flow_item *item, enum layer *layer)
{
    const enum layer before = *layer;
    const struct transport *transport = transport_of(item->type);

    if (item->type == RTE_FLOW_ITEM_TYPE_VOID)
        return 0;
    if (item->type == RTE_FLOW_ITEM_TYPE_ETH && before == NOTHING) {
        *layer = ETHERNET;
        return read_ethernet(to, item);
    }
    if (item->type == RTE_FLOW_ITEM_TYPE_VLAN && before <= VLAN) {
        *layer = VLAN;
        return read_vlan(to, item);
    }
    if (item->type == RTE_FLOW_ITEM_TYPE_IPV4 && before <= VLAN) {
        *layer = IPV4;
        return read_ipv4(to, item);
    }
    if (item->type == RTE_FLOW_ITEM_TYPE_IPV6 && before <= VLAN) {
        *layer = IPV6;
        return read_ipv6(to, item);
    }
    if (transport != NULL && (before == NOTHING || before == IPV4 || before == IPV6) &&
        (before == NOTHING || transport->below == NOTHING || transport->below == before)) {
        *layer = TRANSPORT;
        return read_transport(to, item, transport, before);
    }
    if (transport != NULL || item->type == RTE_FLOW_ITEM_TYPE_ETH || item->type == RTE_FLOW_ITEM_TYPE_VLAN ||
        item->type == RTE_FLOW_ITEM_TYPE_IPV4 || item->type == RTE_FLOW_ITEM_TYPE_IPV6)
        return refuse(to, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM, item,
                      "headers come in the order of layers, and none is left out between two");
    return refuse(to, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM, item, "the card does not match this");
}

static int read_pattern(struct translation *to, const struct rte_flow_item *pattern)
{
    const struct rte_flow_item *item;
    enum layer layer = NOTHING;
    int status = 0;

    for (item = pattern; status == 0 && item->type != RTE_FLOW_ITEM_TYPE_END; item++)
        status = read_item(to, item, &layer);
    if (status != 0)
        return status;
    if (to->least_tags > to->most_tags)
        return refuse(to, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM, pattern,
                      "no frame has such tags: a type comes behind the tags that the pattern has");
    /* A rule has a condition. */
    if (to->length == 0 || to->least_tags > 0 || to->most_tags < MOST_TAGS)
        put(to, " tags %u-%u", to->least_tags, to->most_tags);
    return 0;
}

static int add_queue(const struct rte_eth_dev *dev, uint16_t queue, struct rte_flow *flow, uint32_t *channels,
                     const struct rte_flow_action *action, struct rte_flow_error *error)
{
    const struct szedata2_device *device = dev->data->dev_private;

    if (queue >= dev->data->nb_rx_queues)
        return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
                                  "the port has no receive queue of this number");
    *channels |= RTE_BIT32(device->rx.number[queue]);
    flow->queues = RTE_MAX(flow->queues, (uint16_t)(queue + 1));
    return 0;
}

static int add_queues(const struct rte_eth_dev *dev, const struct rte_flow_action *action,
                      struct rte_flow *flow, uint32_t *channels, struct rte_flow_error *error)
{
    const struct rte_flow_action_rss *rss = action->conf;
    int status = 0;
    uint32_t i;

    if (rss->func != RTE_ETH_HASH_FUNCTION_DEFAULT || rss->level != 0 || rss->types != 0 || rss->key_len != 0)
        return rte_flow_error_set(
            error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
            "the card's distribution spreads frames: leave function, level, types and key "
            "at their defaults");
    if (rss->queue_num == 0)
        return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action, "name queues");
    for (i = 0; status == 0 && i < rss->queue_num; i++)
        status = add_queue(dev, rss->queue[i], flow, channels, action, error);
    return status;
}

/* Reads the actions: mask of channels, queues and counter. */
static int read_actions(const struct rte_eth_dev *dev, const struct rte_flow_action *actions,
                        struct rte_flow *flow, uint32_t *channels, struct rte_flow_error *error)
{
    const struct rte_flow_action *action;
    unsigned int fates = 0;
    int status = 0;

    for (action = actions; status == 0 && action->type != RTE_FLOW_ACTION_TYPE_END; action++) {
        if (action->type == RTE_FLOW_ACTION_TYPE_VOID)
            continue;
        if (action->type == RTE_FLOW_ACTION_TYPE_COUNT) {
            flow->counts = true;
            continue;
        }
        if ((action->type == RTE_FLOW_ACTION_TYPE_QUEUE || action->type == RTE_FLOW_ACTION_TYPE_RSS) &&
            action->conf == NULL)
            return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action, "name queues");
        if (fates++ > 0)
            return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION, action,
                                      "one of drop, queue and rss decides on a frame");
        if (action->type == RTE_FLOW_ACTION_TYPE_QUEUE)
            status = add_queue(dev, ((const struct rte_flow_action_queue *)action->conf)->index, flow,
                               channels, action, error);
        else if (action->type == RTE_FLOW_ACTION_TYPE_RSS)
            status = add_queues(dev, action, flow, channels, error);
        else if (action->type != RTE_FLOW_ACTION_TYPE_DROP)
            return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION, action,
                                      "the card has drop, queue, rss and count");
    }
    if (status == 0 && fates == 0)
        return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION_NUM, actions,
                                  "choose drop, queue or rss");
    return status;
}

static int read_attributes(const struct rte_flow_attr *attr, struct rte_flow_error *error)
{
    if (attr->group != 0)
        return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ATTR_GROUP, attr,
                                  "the card has one group of rules, 0");
    if (attr->egress)
        return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ATTR_EGRESS, attr,
                                  "the card filters received frames only");
    if (attr->transfer)
        return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ATTR_TRANSFER, attr,
                                  "the card has no other ports");
    if (!attr->ingress)
        return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ATTR_INGRESS, attr, "choose ingress");
    return 0;
}

/* Reports why the card refused; the text stays until its next refusal. */
static int card_refused(struct szedata2_device *device, struct rte_flow_error *error)
{
    int code = errno == EPERM ? ENOTSUP : errno != 0 ? errno : EIO;

    snprintf(device->refusal, sizeof(device->refusal), "%s", szecard_error());
    return rte_flow_error_set(error, code, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL, device->refusal);
}

/* Translates a rule, and has the card check it. */
static int translate(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
                     const struct rte_flow_item *pattern, const struct rte_flow_action *actions,
                     struct rte_flow *flow, struct rte_flow_error *error)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct translation to = {.error = error, .most_tags = MOST_TAGS};
    uint32_t channels = 0, channel;
    int length, status = read_attributes(attr, error);

    if (status == 0)
        status = read_actions(dev, actions, flow, &channels, error);
    if (status == 0)
        status = read_pattern(&to, pattern);
    if (status != 0)
        return status;
    flow->priority = attr->priority;
    length = snprintf(flow->rule, sizeof(flow->rule), channels != 0 ? "allow " : "deny");
    for (channel = 0; channel < SZECARD_MAX_CHANNELS; channel++) {
        if (channels & RTE_BIT32(channel))
            length += snprintf(flow->rule + length, sizeof(flow->rule) - (size_t)length, "%u,", channel);
    }
    /* The space comes in place of the last comma. */
    length -= channels != 0;
    length += snprintf(flow->rule + length, sizeof(flow->rule) - (size_t)length, " if%s", to.conditions);
    if ((size_t)length >= sizeof(flow->rule))
        return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
                                  "the rule is too long for the card");
    pthread_mutex_lock(&device->card_lock);
    if (szecard_check_rule(device->card, flow->rule) != 0)
        status = card_refused(device, error);
    pthread_mutex_unlock(&device->card_lock);
    return status;
}

static int apply(struct szedata2_device *device, struct rte_flow *flow, struct rte_flow_error *error)
{
    int status = 0;

    pthread_mutex_lock(&device->card_lock);
    if (szecard_add_rule(device->card, flow->rule, flow->priority, flow->counts, &flow->number) == 0)
        flow->is_applied = true;
    else
        status = card_refused(device, error);
    pthread_mutex_unlock(&device->card_lock);
    return status;
}

static int validate(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
                    const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
                    struct rte_flow_error *error)
{
    struct rte_flow flow = {.counts = false};

    return translate(dev, attr, pattern, actions, &flow, error);
}

static struct rte_flow *create(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
                               const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
                               struct rte_flow_error *error)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct rte_flow *flow = NULL;
    int status = 0;

    if (device->nr_flows == SZECARD_MAX_RULES)
        status = rte_flow_error_set(error, ENOSPC, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
                                    "the port has 1024 flow rules, which is all there can be");
    else if ((flow = calloc(1, sizeof(*flow))) == NULL)
        status = rte_flow_error_set(error, ENOMEM, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL, "no memory");
    if (status == 0)
        status = translate(dev, attr, pattern, actions, flow, error);
    /* A stopped port's rules do not act; its start applies them. */
    if (status == 0 && dev->data->dev_started)
        status = apply(device, flow, error);
    if (status != 0) {
        free(flow);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&device->flows, flow, next);
    device->nr_flows++;
    return flow;
}

static void forget(struct szedata2_device *device, struct rte_flow *flow)
{
    TAILQ_REMOVE(&device->flows, flow, next);
    device->nr_flows--;
    free(flow);
}

static int destroy(struct rte_eth_dev *dev, struct rte_flow *flow, struct rte_flow_error *error)
{
    struct szedata2_device *device = dev->data->dev_private;
    int status = 0;

    pthread_mutex_lock(&device->card_lock);
    /* The rules of a card that has gone went with it. */
    if (flow->is_applied && szecard_remove_rule(device->card, flow->number, NULL) != 0 && errno != ENODEV)
        status = card_refused(device, error);
    pthread_mutex_unlock(&device->card_lock);
    if (status == 0)
        forget(device, flow);
    return status;
}

static int flush(struct rte_eth_dev *dev, struct rte_flow_error *error)
{
    struct szedata2_device *device = dev->data->dev_private;
    int status = 0;

    while (status == 0 && !TAILQ_EMPTY(&device->flows))
        status = destroy(dev, TAILQ_FIRST(&device->flows), error);
    return status;
}

static int query(struct rte_eth_dev *dev, struct rte_flow *flow, const struct rte_flow_action *action,
                 void *data, struct rte_flow_error *error)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct rte_flow_query_count *count = data;
    struct szecard_rule_counters now = {0, 0};
    int status = 0;

    if (action->type != RTE_FLOW_ACTION_TYPE_COUNT || !flow->counts)
        return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION, action,
                                  "only the counter of a rule with the action count can be queried");
    pthread_mutex_lock(&device->card_lock);
    if (flow->is_applied && szecard_get_rule_counters(device->card, flow->number, &now) != 0)
        status = card_refused(device, error);
    pthread_mutex_unlock(&device->card_lock);
    if (status != 0)
        return status;
    count->hits_set = count->bytes_set = 1;
    count->hits = flow->earlier.frames + now.frames;
    count->bytes = flow->earlier.bytes + now.bytes;
    if (count->reset) {
        flow->earlier.frames = 0 - now.frames;
        flow->earlier.bytes = 0 - now.bytes;
    }
    return 0;
}

static const struct rte_flow_ops ops = {
    .validate = validate,
    .create = create,
    .destroy = destroy,
    .flush = flush,
    .query = query,
};

int szedata2_flow_ops_get(struct rte_eth_dev *dev, const struct rte_flow_ops **found)
{
    (void)dev;
    *found = &ops;
    return 0;
}

int szedata2_flow_configure(const struct rte_eth_dev *dev)
{
    const struct szedata2_device *device = dev->data->dev_private;
    const struct rte_flow *flow;

    TAILQ_FOREACH(flow, &device->flows, next)
    {
        if (flow->queues > dev->data->nb_rx_queues) {
            SZEDATA2_LOG(ERR, "a flow rule names receive queue %u: destroy the rule first\n",
                         flow->queues - 1);
            return -EBUSY;
        }
    }
    return 0;
}

int szedata2_flow_start(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct rte_flow_error error;
    struct rte_flow *flow;
    int status = 0;

    TAILQ_FOREACH(flow, &device->flows, next)
    {
        status = apply(device, flow, &error);
        if (status != 0) {
            SZEDATA2_LOG(ERR, "the flow rule \"%s\": %s\n", flow->rule, device->refusal);
            break;
        }
    }
    return status;
}

void szedata2_flow_stop(struct rte_eth_dev *dev)
{
    struct szedata2_device *device = dev->data->dev_private;
    struct rte_flow *flow;

    pthread_mutex_lock(&device->card_lock);
    TAILQ_FOREACH(flow, &device->flows, next)
    {
        struct szecard_rule_counters last = {0, 0};

        if (flow->is_applied && device->card != NULL &&
            szecard_remove_rule(device->card, flow->number, &last) != 0) {
            /* No rule outlives its handle. The next start opens another. */
            SZEDATA2_LOG(WARNING, "flow rules lost their counters: %s\n", szecard_error());
            szedata_close(device->card);
            device->card = NULL;
        }
        flow->earlier.frames += last.frames;
        flow->earlier.bytes += last.bytes;
        flow->is_applied = false;
    }
    pthread_mutex_unlock(&device->card_lock);
}

void szedata2_flow_close(struct szedata2_device *device)
{
    while (!TAILQ_EMPTY(&device->flows))
        forget(device, TAILQ_FIRST(&device->flows));
}
