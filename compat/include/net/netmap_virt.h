/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Registers of netmap's paravirtual devices, as a guest's driver or a virtual machine's monitor names them.
 * Ringroad has no such device: this header is here for programs that include it.
 */
#ifndef NET_NETMAP_VIRT_H
#define NET_NETMAP_VIRT_H

/* ---- PCI ---- */

#define PTNETMAP_MEMDEV_NAME   "ptnetmap-memdev"
#define PTNETMAP_PCI_VENDOR_ID 0x1b36
#define PTNETMAP_PCI_DEVICE_ID 0x000c /* a region's memory */
#define PTNETMAP_PCI_NETIF_ID  0x000d /* a port */

/* Base address registers. */
#define PTNETMAP_IO_PCI_BAR   0
#define PTNETMAP_MEM_PCI_BAR  1
#define PTNETMAP_MSIX_PCI_BAR 2

/* ---- Registers of the memory: byte offsets ---- */

#define PTNET_MDEV_IO_MEMSIZE_LO       0 /* the region's size, its lower and its upper half */
#define PTNET_MDEV_IO_MEMSIZE_HI       4
#define PTNET_MDEV_IO_MEMID            8
#define PTNET_MDEV_IO_IF_POOL_OFS      64 /* of each pool: its offset, and number and size of its objects */
#define PTNET_MDEV_IO_IF_POOL_OBJNUM   68
#define PTNET_MDEV_IO_IF_POOL_OBJSZ    72
#define PTNET_MDEV_IO_RING_POOL_OFS    76
#define PTNET_MDEV_IO_RING_POOL_OBJNUM 80
#define PTNET_MDEV_IO_RING_POOL_OBJSZ  84
#define PTNET_MDEV_IO_BUF_POOL_OFS     88
#define PTNET_MDEV_IO_BUF_POOL_OBJNUM  92
#define PTNET_MDEV_IO_BUF_POOL_OBJSZ   96
#define PTNET_MDEV_IO_END              100

/* ---- Registers of the port: byte offsets ---- */

#define PTNET_IO_PTFEAT       0 /* PTNETMAP_F_* */
#define PTNET_IO_PTCTL        4 /* PTNETMAP_PTCTL_* */
#define PTNET_IO_MAC_LO       8
#define PTNET_IO_MAC_HI       12
#define PTNET_IO_CSBBAH       16 /* no longer used */
#define PTNET_IO_CSBBAL       20 /* no longer used */
#define PTNET_IO_NIFP_OFS     24 /* nr_offset */
#define PTNET_IO_NUM_TX_RINGS 28
#define PTNET_IO_NUM_RX_RINGS 32
#define PTNET_IO_NUM_TX_SLOTS 36
#define PTNET_IO_NUM_RX_SLOTS 40
#define PTNET_IO_VNET_HDR_LEN 44
#define PTNET_IO_HOSTMEMID    48
#define PTNET_IO_CSB_GH_BAH   52 /* addresses of the CSB arrays, upper and lower halves: guest to host ... */
#define PTNET_IO_CSB_GH_BAL   56
#define PTNET_IO_CSB_HG_BAH   60 /* ... and host to guest */
#define PTNET_IO_CSB_HG_BAL   64
#define PTNET_IO_END          68
#define PTNET_IO_KICK_BASE    128 /* the first ring's doorbell */
#define PTNET_IO_MASK         0xff

/* Bits of PTNET_IO_PTFEAT. */
#define PTNETMAP_F_VNET_HDR 1

/* Commands to PTNET_IO_PTCTL: start and stop the host's sync loop. */
#define PTNETMAP_PTCTL_CREATE 1
#define PTNETMAP_PTCTL_DELETE 2

#endif
