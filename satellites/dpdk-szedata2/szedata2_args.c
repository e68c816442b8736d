/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The device's arguments: dev_path=PATH[,rx_ifaces=MASK]...[,tx_ifaces=MASK]...[,copy=0|1][,extbuf=0|1]. */
#include "szedata2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_kvargs.h>

static const char *const keys[] = {"dev_path", "rx_ifaces", "tx_ifaces", "copy", "extbuf", NULL};

static int parse_path(const char *key, const char *value, void *place)
{
    struct szedata2_args *args = place;

    (void)key;
    if (value == NULL || strlen(value) >= sizeof(args->dev_path)) {
        SZEDATA2_LOG(ERR, "dev_path: give the path of the card's socket\n");
        return -EINVAL;
    }
    memcpy(args->dev_path, value, strlen(value) + 1);
    return 0;
}

static int parse_number(const char *key, const char *value, unsigned long most, unsigned long *number)
{
    char *end = NULL;

    errno = 0;
    if (value != NULL && *value != '-')
        *number = strtoul(value, &end, 0);
    if (end == NULL || end == value || *end != '\0' || errno != 0 || *number > most) {
        SZEDATA2_LOG(ERR, "%s=%s: choose a number from 0 to %#lx\n", key, value ? value : "", most);
        return -EINVAL;
    }
    return 0;
}

/* Several masks are one. */
static int parse_mask(const char *key, const char *value, void *place)
{
    uint32_t *mask = place;
    unsigned long number = 0;
    int status = parse_number(key, value, UINT32_MAX, &number);

    *mask |= (uint32_t)number;
    return status;
}

static int parse_flag(const char *key, const char *value, void *place)
{
    bool *flag = place;
    unsigned long number = 0;
    int status = parse_number(key, value, 1, &number);

    *flag = number != 0;
    return status;
}

int szedata2_args_parse(const char *text, struct szedata2_args *args)
{
    struct rte_kvargs *given = rte_kvargs_parse(text, keys);
    int status = -EINVAL;

    if (given == NULL) {
        SZEDATA2_LOG(ERR, "arguments \"%s\": there are dev_path, rx_ifaces, tx_ifaces, copy and extbuf\n",
                     text);
        return -EINVAL;
    }
    memset(args, 0, sizeof(*args));
    args->copy = true;
    if (rte_kvargs_count(given, "dev_path") != 1)
        SZEDATA2_LOG(ERR, "dev_path is needed, once: the path of the card's socket\n");
    else if (rte_kvargs_process(given, "dev_path", parse_path, args) == 0 &&
             rte_kvargs_process(given, "rx_ifaces", parse_mask, &args->rx_ifaces) == 0 &&
             rte_kvargs_process(given, "tx_ifaces", parse_mask, &args->tx_ifaces) == 0 &&
             rte_kvargs_process(given, "copy", parse_flag, &args->copy) == 0 &&
             rte_kvargs_process(given, "extbuf", parse_flag, &args->extbuf) == 0)
        status = 0;
    if (status == 0 && args->extbuf && !args->copy) {
        SZEDATA2_LOG(ERR, "extbuf=1 and copy=0: choose one; frames that cannot be lent are copied\n");
        status = -EINVAL;
    }
    if (rte_kvargs_count(given, "rx_ifaces") == 0)
        args->rx_ifaces = SZE2_ALL_INTERFACES;
    if (rte_kvargs_count(given, "tx_ifaces") == 0)
        args->tx_ifaces = SZE2_ALL_INTERFACES;
    rte_kvargs_free(given);
    return status;
}

int szedata2_channels_of(const char *name, uint32_t mask, unsigned int available,
                         struct szedata2_channels *channels)
{
    uint32_t all = available < 32 ? (UINT32_C(1) << available) - 1 : UINT32_MAX;
    uint16_t number;

    if (mask == SZE2_ALL_INTERFACES)
        mask = all;
    if (mask & ~all) {
        SZEDATA2_LOG(ERR, "%s=%#x: the card has %u channels, mask %#x\n", name, mask, available, all);
        return -EINVAL;
    }
    channels->count = 0;
    for (number = 0; number < 32; number++) {
        if (mask >> number & 1)
            channels->number[channels->count++] = number;
    }
    return 0;
}
