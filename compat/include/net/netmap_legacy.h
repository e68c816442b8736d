/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The request that netmap had before NIOCCTRL: one structure for everything. Included by <net/netmap.h>.
 */
#ifndef NET_NETMAP_LEGACY_H
#define NET_NETMAP_LEGACY_H

#include <stdint.h>
#include <sys/ioctl.h>

struct nmreq {
    char nr_name[16];
    uint32_t nr_version;
    uint32_t nr_offset;
    uint32_t nr_memsize;
    uint32_t nr_tx_slots;
    uint32_t nr_rx_slots;
    uint16_t nr_tx_rings;
    uint16_t nr_rx_rings;
    uint16_t nr_ringid; /* number of a ring or pipe, and the NETMAP_* flags below */
    uint16_t nr_cmd;    /* a command below, 0: bind */
    uint16_t nr_arg1;   /* of the command */
    uint16_t nr_arg2;   /* region, as nr_mem_id */
    uint32_t nr_arg3;   /* extra buffers */
    uint32_t nr_flags;  /* NR_REG_* in NR_REG_MASK, other NR_* above */
    uint32_t spare2[1];
};

/* nr_ringid; the two ring kinds count only where nr_flags names no mode. */
#define NETMAP_HW_RING    0x4000 /* one ring pair */
#define NETMAP_SW_RING    0x2000 /* the host ring pair */
#define NETMAP_RING_MASK  0x0fff
#define NETMAP_NO_TX_POLL 0x1000 /* as NR_NO_TX_POLL */
#define NETMAP_DO_RX_POLL 0x8000 /* as NR_DO_RX_POLL */

/* nr_cmd */
#define NETMAP_BDG_ATTACH      1
#define NETMAP_BDG_DETACH      2
#define NETMAP_BDG_REGOPS      3
#define NETMAP_BDG_LIST        4
#define NETMAP_BDG_VNET_HDR    5
#define NETMAP_BDG_NEWIF       6
#define NETMAP_BDG_DELIF       7
#define NETMAP_PT_HOST_CREATE  8
#define NETMAP_PT_HOST_DELETE  9
#define NETMAP_BDG_POLLING_ON  10
#define NETMAP_BDG_POLLING_OFF 11
#define NETMAP_VNET_HDR_GET    12
#define NETMAP_POOLS_INFO_GET  13

#define NETMAP_BDG_HOST 1 /* nr_arg1 of NETMAP_BDG_ATTACH: the host as well */

#define NR_REG_MASK 0xf

/* The former result of NETMAP_POOLS_INFO_GET; nmreq_pools_info replaced it. */
struct netmap_pools_info {
    uint64_t memsize;
    uint32_t memid;
    uint32_t if_pool_offset;
    uint32_t if_pool_objtotal;
    uint32_t if_pool_objsize;
    uint32_t ring_pool_offset;
    uint32_t ring_pool_objtotal;
    uint32_t ring_pool_objsize;
    uint32_t buf_pool_offset;
    uint32_t buf_pool_objtotal;
    uint32_t buf_pool_objsize;
};

/* Carried to modules that drive a switch from outside. */
#define NM_IFRDATA_LEN 256
struct nm_ifreq {
    char nifr_name[16];
    char data[NM_IFRDATA_LEN];
};

/* Without a command: query a port, bind one. NETMAP_BDG_LIST goes with NIOCGINFO, others with NIOCREGIF. */
#define NIOCGINFO  _IOWR('i', 145, struct nmreq)
#define NIOCREGIF  _IOWR('i', 146, struct nmreq)
#define NIOCCONFIG _IOWR('i', 150, struct nm_ifreq)

#endif
