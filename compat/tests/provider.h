/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A device in the test's own process: open, ioctl and their kin are defined here, in front of the C library's, so that
 * the functions under test reach it as they would reach /dev/netmap.
 *
 * Ports have 2 rings of 16 slots in each direction and 1 host ring, in regions that begin with the bound ports. Names
 * that begin with "vale" have a region of their own each, others have region 1. There is no port "absent",
 * and for "vale9:behind" and "vale9:rings" the device gives places outside of their regions.
 */
#ifndef COMPAT_TESTS_PROVIDER_H
#define COMPAT_TESTS_PROVIDER_H

#include <net/netmap.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PROVIDER_RINGS = 2,
    PROVIDER_SLOTS = 16,
    PROVIDER_BUF_SIZE = 2048,
    PROVIDER_MEMSIZE = 512 * 1024,
    PROVIDER_EXTMEM_ID = 100
};

/* The last request. */
extern struct nmreq_register provider_last_register;
extern struct nmreq provider_last_legacy;

/* Devices that are open. */
extern int provider_open_devices;

#ifdef __cplusplus
}
#endif

#endif
