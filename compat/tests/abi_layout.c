/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sizes, offsets and values of the netmap ABI (API 14, x86-64), checked by the compiler. To be compiled, not run.
 */
#define NETMAP_WITH_LIBS
#include <net/netmap_user.h>
#include <net/netmap_virt.h>
#include <libnetmap.h>
#include <stddef.h>

#include "static_check.h"

#define SIZE(type, bytes) STATIC_CHECK(sizeof(type) == (bytes))
#define FIELD(type, field, offset, bytes) \
    STATIC_CHECK(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (bytes))
#define ARRAY_AT_END(type, field, offset) STATIC_CHECK(offsetof(type, field) == (offset))
#define VALUE(name, value)                STATIC_CHECK((name) == (value))

SIZE(struct netmap_slot, 16);
FIELD(struct netmap_slot, buf_idx, 0, 4);
FIELD(struct netmap_slot, len, 4, 2);
FIELD(struct netmap_slot, flags, 6, 2);
FIELD(struct netmap_slot, ptr, 8, 8);

SIZE(struct netmap_ring, 256);
FIELD(struct netmap_ring, buf_ofs, 0, 8);
FIELD(struct netmap_ring, num_slots, 8, 4);
FIELD(struct netmap_ring, nr_buf_size, 12, 4);
FIELD(struct netmap_ring, ringid, 16, 2);
FIELD(struct netmap_ring, dir, 18, 2);
FIELD(struct netmap_ring, head, 20, 4);
FIELD(struct netmap_ring, cur, 24, 4);
FIELD(struct netmap_ring, tail, 28, 4);
FIELD(struct netmap_ring, flags, 32, 4);
FIELD(struct netmap_ring, ts, 40, 16);
FIELD(struct netmap_ring, offset_mask, 56, 8);
FIELD(struct netmap_ring, buf_align, 64, 8);
FIELD(struct netmap_ring, sem, 128, 128);
ARRAY_AT_END(struct netmap_ring, slot, 256);

SIZE(struct netmap_if, 56);
FIELD(struct netmap_if, ni_name, 0, 16);
FIELD(struct netmap_if, ni_version, 16, 4);
FIELD(struct netmap_if, ni_flags, 20, 4);
FIELD(struct netmap_if, ni_tx_rings, 24, 4);
FIELD(struct netmap_if, ni_rx_rings, 28, 4);
FIELD(struct netmap_if, ni_bufs_head, 32, 4);
FIELD(struct netmap_if, ni_host_tx_rings, 36, 4);
FIELD(struct netmap_if, ni_host_rx_rings, 40, 4);
FIELD(struct netmap_if, ni_spare1, 44, 12);
ARRAY_AT_END(struct netmap_if, ring_ofs, 56);

SIZE(struct nmreq_header, 88);
FIELD(struct nmreq_header, nr_version, 0, 2);
FIELD(struct nmreq_header, nr_reqtype, 2, 2);
FIELD(struct nmreq_header, nr_reserved, 4, 4);
FIELD(struct nmreq_header, nr_name, 8, 64);
FIELD(struct nmreq_header, nr_options, 72, 8);
FIELD(struct nmreq_header, nr_body, 80, 8);

SIZE(struct nmreq_option, 24);
FIELD(struct nmreq_option, nro_next, 0, 8);
FIELD(struct nmreq_option, nro_reqtype, 8, 4);
FIELD(struct nmreq_option, nro_status, 12, 4);
FIELD(struct nmreq_option, nro_size, 16, 8);

SIZE(struct nmreq_opt_extmem, 96);
FIELD(struct nmreq_opt_extmem, nro_usrptr, 24, 8);
FIELD(struct nmreq_opt_extmem, nro_info, 32, 64);

SIZE(struct nmreq_opt_sync_kloop_eventfds, 24);
ARRAY_AT_END(struct nmreq_opt_sync_kloop_eventfds, eventfds, 24);

SIZE(struct nmreq_opt_csb, 40);
FIELD(struct nmreq_opt_csb, csb_atok, 24, 8);
FIELD(struct nmreq_opt_csb, csb_ktoa, 32, 8);

SIZE(struct nmreq_opt_sync_kloop_mode, 32);
FIELD(struct nmreq_opt_sync_kloop_mode, mode, 24, 4);

SIZE(struct nmreq_opt_offsets, 56);
FIELD(struct nmreq_opt_offsets, nro_max_offset, 24, 8);
FIELD(struct nmreq_opt_offsets, nro_initial_offset, 32, 8);
FIELD(struct nmreq_opt_offsets, nro_offset_bits, 40, 4);
FIELD(struct nmreq_opt_offsets, nro_tx_align, 44, 4);
FIELD(struct nmreq_opt_offsets, nro_min_gap, 48, 8);

SIZE(struct nmreq_register, 56);
FIELD(struct nmreq_register, nr_offset, 0, 8);
FIELD(struct nmreq_register, nr_memsize, 8, 8);
FIELD(struct nmreq_register, nr_tx_slots, 16, 4);
FIELD(struct nmreq_register, nr_rx_slots, 20, 4);
FIELD(struct nmreq_register, nr_tx_rings, 24, 2);
FIELD(struct nmreq_register, nr_rx_rings, 26, 2);
FIELD(struct nmreq_register, nr_host_tx_rings, 28, 2);
FIELD(struct nmreq_register, nr_host_rx_rings, 30, 2);
FIELD(struct nmreq_register, nr_mem_id, 32, 2);
FIELD(struct nmreq_register, nr_ringid, 34, 2);
FIELD(struct nmreq_register, nr_mode, 36, 4);
FIELD(struct nmreq_register, nr_extra_bufs, 40, 4);
FIELD(struct nmreq_register, nr_flags, 48, 8);

SIZE(struct nmreq_port_info_get, 32);
FIELD(struct nmreq_port_info_get, nr_memsize, 0, 8);
FIELD(struct nmreq_port_info_get, nr_tx_slots, 8, 4);
FIELD(struct nmreq_port_info_get, nr_rx_slots, 12, 4);
FIELD(struct nmreq_port_info_get, nr_tx_rings, 16, 2);
FIELD(struct nmreq_port_info_get, nr_rx_rings, 18, 2);
FIELD(struct nmreq_port_info_get, nr_host_tx_rings, 20, 2);
FIELD(struct nmreq_port_info_get, nr_host_rx_rings, 22, 2);
FIELD(struct nmreq_port_info_get, nr_mem_id, 24, 2);
FIELD(struct nmreq_port_info_get, pad, 26, 6);

SIZE(struct nmreq_vale_attach, 64);
FIELD(struct nmreq_vale_attach, reg, 0, 56);
FIELD(struct nmreq_vale_attach, port_index, 56, 4);

SIZE(struct nmreq_vale_detach, 8);
FIELD(struct nmreq_vale_detach, port_index, 0, 4);

SIZE(struct nmreq_vale_list, 8);
FIELD(struct nmreq_vale_list, nr_bridge_idx, 0, 2);
FIELD(struct nmreq_vale_list, nr_port_idx, 4, 4);

SIZE(struct nmreq_port_hdr, 8);
FIELD(struct nmreq_port_hdr, nr_hdr_len, 0, 4);

SIZE(struct nmreq_vale_newif, 16);
FIELD(struct nmreq_vale_newif, nr_tx_slots, 0, 4);
FIELD(struct nmreq_vale_newif, nr_rx_slots, 4, 4);
FIELD(struct nmreq_vale_newif, nr_tx_rings, 8, 2);
FIELD(struct nmreq_vale_newif, nr_rx_rings, 10, 2);
FIELD(struct nmreq_vale_newif, nr_mem_id, 12, 2);

SIZE(struct nmreq_vale_polling, 16);
FIELD(struct nmreq_vale_polling, nr_mode, 0, 4);
FIELD(struct nmreq_vale_polling, nr_first_cpu_id, 4, 4);
FIELD(struct nmreq_vale_polling, nr_num_polling_cpus, 8, 4);

SIZE(struct nmreq_pools_info, 64);
FIELD(struct nmreq_pools_info, nr_memsize, 0, 8);
FIELD(struct nmreq_pools_info, nr_mem_id, 8, 2);
FIELD(struct nmreq_pools_info, nr_if_pool_offset, 16, 8);
FIELD(struct nmreq_pools_info, nr_if_pool_objtotal, 24, 4);
FIELD(struct nmreq_pools_info, nr_if_pool_objsize, 28, 4);
FIELD(struct nmreq_pools_info, nr_ring_pool_offset, 32, 8);
FIELD(struct nmreq_pools_info, nr_ring_pool_objtotal, 40, 4);
FIELD(struct nmreq_pools_info, nr_ring_pool_objsize, 44, 4);
FIELD(struct nmreq_pools_info, nr_buf_pool_offset, 48, 8);
FIELD(struct nmreq_pools_info, nr_buf_pool_objtotal, 56, 4);
FIELD(struct nmreq_pools_info, nr_buf_pool_objsize, 60, 4);

SIZE(struct nmreq_sync_kloop_start, 8);
FIELD(struct nmreq_sync_kloop_start, sleep_us, 0, 4);

SIZE(struct nm_csb_atok, 64);
FIELD(struct nm_csb_atok, head, 0, 4);
FIELD(struct nm_csb_atok, cur, 4, 4);
FIELD(struct nm_csb_atok, appl_need_kick, 8, 4);
FIELD(struct nm_csb_atok, sync_flags, 12, 4);

SIZE(struct nm_csb_ktoa, 64);
FIELD(struct nm_csb_ktoa, hwcur, 0, 4);
FIELD(struct nm_csb_ktoa, hwtail, 4, 4);
FIELD(struct nm_csb_ktoa, kern_need_kick, 8, 4);

SIZE(struct nmreq, 60);
FIELD(struct nmreq, nr_name, 0, 16);
FIELD(struct nmreq, nr_version, 16, 4);
FIELD(struct nmreq, nr_offset, 20, 4);
FIELD(struct nmreq, nr_memsize, 24, 4);
FIELD(struct nmreq, nr_tx_slots, 28, 4);
FIELD(struct nmreq, nr_rx_slots, 32, 4);
FIELD(struct nmreq, nr_tx_rings, 36, 2);
FIELD(struct nmreq, nr_rx_rings, 38, 2);
FIELD(struct nmreq, nr_ringid, 40, 2);
FIELD(struct nmreq, nr_cmd, 42, 2);
FIELD(struct nmreq, nr_arg1, 44, 2);
FIELD(struct nmreq, nr_arg2, 46, 2);
FIELD(struct nmreq, nr_arg3, 48, 4);
FIELD(struct nmreq, nr_flags, 52, 4);
FIELD(struct nmreq, spare2, 56, 4);

SIZE(struct nm_ifreq, 272);
FIELD(struct nm_ifreq, nifr_name, 0, 16);
FIELD(struct nm_ifreq, data, 16, 256);

SIZE(struct nm_desc, 752);
FIELD(struct nm_desc, self, 0, 8);
FIELD(struct nm_desc, fd, 8, 4);
FIELD(struct nm_desc, mem, 16, 8);
FIELD(struct nm_desc, memsize, 24, 4);
FIELD(struct nm_desc, done_mmap, 28, 4);
FIELD(struct nm_desc, nifp, 32, 8);
FIELD(struct nm_desc, first_tx_ring, 40, 2);
FIELD(struct nm_desc, last_tx_ring, 42, 2);
FIELD(struct nm_desc, cur_tx_ring, 44, 2);
FIELD(struct nm_desc, first_rx_ring, 46, 2);
FIELD(struct nm_desc, last_rx_ring, 48, 2);
FIELD(struct nm_desc, cur_rx_ring, 50, 2);
FIELD(struct nm_desc, req, 52, 60);
FIELD(struct nm_desc, hdr, 112, 56);

SIZE(struct nm_pkthdr, 56);
FIELD(struct nm_pkthdr, ts, 0, 16);
FIELD(struct nm_pkthdr, caplen, 16, 4);
FIELD(struct nm_pkthdr, len, 20, 4);
FIELD(struct nm_pkthdr, flags, 24, 8);
FIELD(struct nm_pkthdr, d, 32, 8);
FIELD(struct nm_pkthdr, slot, 40, 8);
FIELD(struct nm_pkthdr, buf, 48, 8);

SIZE(struct nmport_d, 216);
FIELD(struct nmport_d, hdr, 0, 88);
FIELD(struct nmport_d, reg, 88, 56);
FIELD(struct nmport_d, mem, 144, 8);
FIELD(struct nmport_d, ctx, 152, 8);
FIELD(struct nmport_d, register_done, 160, 4);
FIELD(struct nmport_d, mmap_done, 164, 4);
FIELD(struct nmport_d, extmem, 168, 8);
FIELD(struct nmport_d, fd, 176, 4);
FIELD(struct nmport_d, nifp, 184, 8);
FIELD(struct nmport_d, first_tx_ring, 192, 2);
FIELD(struct nmport_d, last_tx_ring, 194, 2);
FIELD(struct nmport_d, first_rx_ring, 196, 2);
FIELD(struct nmport_d, last_rx_ring, 198, 2);
FIELD(struct nmport_d, cur_tx_ring, 200, 2);
FIELD(struct nmport_d, cur_rx_ring, 202, 2);
FIELD(struct nmport_d, clist, 208, 8);

SIZE(struct nmctx, 48);
FIELD(struct nmctx, verbose, 0, 4);
FIELD(struct nmctx, error, 8, 8);
FIELD(struct nmctx, malloc, 16, 8);
FIELD(struct nmctx, free, 24, 8);
FIELD(struct nmctx, lock, 32, 8);
FIELD(struct nmctx, mem_descs, 40, 8);

SIZE(struct nmem_d, 48);
FIELD(struct nmem_d, mem_id, 0, 2);
FIELD(struct nmem_d, refcount, 4, 4);
FIELD(struct nmem_d, mem, 8, 8);
FIELD(struct nmem_d, size, 16, 8);
FIELD(struct nmem_d, is_extmem, 24, 4);
FIELD(struct nmem_d, next, 32, 8);
FIELD(struct nmem_d, prev, 40, 8);

SIZE(struct nmreq_opt_key, 16);
FIELD(struct nmreq_opt_key, key, 0, 8);
FIELD(struct nmreq_opt_key, id, 8, 4);
FIELD(struct nmreq_opt_key, flags, 12, 4);

SIZE(struct nmreq_opt_parser, 304);
FIELD(struct nmreq_opt_parser, prefix, 0, 8);
FIELD(struct nmreq_opt_parser, parse, 8, 8);
FIELD(struct nmreq_opt_parser, default_key, 16, 4);
FIELD(struct nmreq_opt_parser, nr_keys, 20, 4);
FIELD(struct nmreq_opt_parser, flags, 24, 4);
FIELD(struct nmreq_opt_parser, next, 32, 8);
FIELD(struct nmreq_opt_parser, keys, 40, 256);

SIZE(struct nmreq_parse_ctx, 144);
FIELD(struct nmreq_parse_ctx, ctx, 0, 8);
FIELD(struct nmreq_parse_ctx, token, 8, 8);
FIELD(struct nmreq_parse_ctx, keys, 16, 128);

STATIC_CHECK(__alignof__(struct netmap_ring) == NM_CACHE_ALIGN);
STATIC_CHECK(__alignof__(struct nmreq_opt_parser) == 16);

VALUE(NETMAP_API, 14);
VALUE(NETMAP_MIN_API, 14);
VALUE(NETMAP_MAX_API, 15);
VALUE(NIOCGINFO, 0xC03C6991);
VALUE(NIOCREGIF, 0xC03C6992);
VALUE(NIOCTXSYNC, 0x00006994);
VALUE(NIOCRXSYNC, 0x00006995);
VALUE(NIOCCONFIG, 0xC1106996);
VALUE(NIOCCTRL, 0xC0586997);
VALUE(NS_BUF_CHANGED, 0x0001);
VALUE(NS_REPORT, 0x0002);
VALUE(NS_FORWARD, 0x0004);
VALUE(NS_NO_LEARN, 0x0008);
VALUE(NS_INDIRECT, 0x0010);
VALUE(NS_MOREFRAG, 0x0020);
VALUE(NS_TXMON, 0x0040);
VALUE(NS_PORT_SHIFT, 8);
VALUE(NS_PORT_MASK, 0xff00);
VALUE(NETMAP_MAX_FRAGS, 64);
VALUE(NR_TIMESTAMP, 0x2);
VALUE(NR_FORWARD, 0x4);
VALUE(NI_PRIV_MEM, 1);
VALUE(NETMAP_REQ_IFNAMSIZ, 64);
VALUE(NETMAP_REQ_MAXSIZE, 4096);
VALUE(NETMAP_REQ_REGISTER, 1);
VALUE(NETMAP_REQ_PORT_INFO_GET, 2);
VALUE(NETMAP_REQ_VALE_ATTACH, 3);
VALUE(NETMAP_REQ_VALE_DETACH, 4);
VALUE(NETMAP_REQ_VALE_LIST, 5);
VALUE(NETMAP_REQ_PORT_HDR_SET, 6);
VALUE(NETMAP_REQ_PORT_HDR_GET, 7);
VALUE(NETMAP_REQ_VALE_NEWIF, 8);
VALUE(NETMAP_REQ_VALE_DELIF, 9);
VALUE(NETMAP_REQ_VALE_POLLING_ENABLE, 10);
VALUE(NETMAP_REQ_VALE_POLLING_DISABLE, 11);
VALUE(NETMAP_REQ_POOLS_INFO_GET, 12);
VALUE(NETMAP_REQ_SYNC_KLOOP_START, 13);
VALUE(NETMAP_REQ_SYNC_KLOOP_STOP, 14);
VALUE(NETMAP_REQ_CSB_ENABLE, 15);
VALUE(NETMAP_REQ_OPT_EXTMEM, 1);
VALUE(NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS, 2);
VALUE(NETMAP_REQ_OPT_CSB, 3);
VALUE(NETMAP_REQ_OPT_SYNC_KLOOP_MODE, 4);
VALUE(NETMAP_REQ_OPT_OFFSETS, 5);
VALUE(NETMAP_REQ_OPT_MAX, 6);
VALUE(NR_REG_DEFAULT, 0);
VALUE(NR_REG_ALL_NIC, 1);
VALUE(NR_REG_SW, 2);
VALUE(NR_REG_NIC_SW, 3);
VALUE(NR_REG_ONE_NIC, 4);
VALUE(NR_REG_PIPE_MASTER, 5);
VALUE(NR_REG_PIPE_SLAVE, 6);
VALUE(NR_REG_NULL, 7);
VALUE(NR_REG_ONE_SW, 8);
VALUE(NR_MONITOR_TX, 0x100);
VALUE(NR_MONITOR_RX, 0x200);
VALUE(NR_ZCOPY_MON, 0x400);
VALUE(NR_EXCLUSIVE, 0x800);
VALUE(NR_RX_RINGS_ONLY, 0x2000);
VALUE(NR_TX_RINGS_ONLY, 0x4000);
VALUE(NR_ACCEPT_VNET_HDR, 0x8000);
VALUE(NR_DO_RX_POLL, 0x10000);
VALUE(NR_NO_TX_POLL, 0x20000);
VALUE(NETMAP_POLLING_MODE_SINGLE_CPU, 1);
VALUE(NETMAP_POLLING_MODE_MULTI_CPU, 2);
VALUE(NM_OPT_SYNC_KLOOP_DIRECT_TX, 1);
VALUE(NM_OPT_SYNC_KLOOP_DIRECT_RX, 2);
VALUE(NETMAP_HW_RING, 0x4000);
VALUE(NETMAP_SW_RING, 0x2000);
VALUE(NETMAP_RING_MASK, 0x0fff);
VALUE(NETMAP_NO_TX_POLL, 0x1000);
VALUE(NETMAP_DO_RX_POLL, 0x8000);
VALUE(NETMAP_BDG_ATTACH, 1);
VALUE(NETMAP_BDG_DETACH, 2);
VALUE(NETMAP_BDG_REGOPS, 3);
VALUE(NETMAP_BDG_LIST, 4);
VALUE(NETMAP_BDG_VNET_HDR, 5);
VALUE(NETMAP_BDG_NEWIF, 6);
VALUE(NETMAP_BDG_DELIF, 7);
VALUE(NETMAP_PT_HOST_CREATE, 8);
VALUE(NETMAP_PT_HOST_DELETE, 9);
VALUE(NETMAP_BDG_POLLING_ON, 10);
VALUE(NETMAP_BDG_POLLING_OFF, 11);
VALUE(NETMAP_VNET_HDR_GET, 12);
VALUE(NETMAP_POOLS_INFO_GET, 13);
VALUE(NETMAP_BDG_HOST, 1);
VALUE(NR_REG_MASK, 0xf);
VALUE(NM_OPEN_NO_MMAP, 0x040000);
VALUE(NM_OPEN_IFNAME, 0x080000);
VALUE(NM_OPEN_ARG1, 0x100000);
VALUE(NM_OPEN_ARG2, 0x200000);
VALUE(NM_OPEN_ARG3, 0x400000);
VALUE(NM_OPEN_RING_CFG, 0x800000);
VALUE(NM_MORE_PKTS, 1);
VALUE(NM_ERRBUF_SIZE, 512);
VALUE(NMREQ_OPTK_ALLOWEMPTY, 1);
VALUE(NMREQ_OPTK_MUSTSET, 2);
VALUE(NMREQ_OPTK_DEFAULT, 4);
VALUE(NMREQ_OPTF_DISABLED, 1);
VALUE(NMREQ_OPTF_ALLOWEMPTY, 2);
VALUE(NMREQ_OPT_MAXKEYS, 16);
VALUE(PTNETMAP_PCI_VENDOR_ID, 0x1b36);
VALUE(PTNETMAP_PCI_DEVICE_ID, 0x000c);
VALUE(PTNETMAP_PCI_NETIF_ID, 0x000d);
VALUE(PTNETMAP_IO_PCI_BAR, 0);
VALUE(PTNETMAP_MEM_PCI_BAR, 1);
VALUE(PTNETMAP_MSIX_PCI_BAR, 2);
VALUE(PTNET_MDEV_IO_MEMSIZE_LO, 0);
VALUE(PTNET_MDEV_IO_MEMSIZE_HI, 4);
VALUE(PTNET_MDEV_IO_MEMID, 8);
VALUE(PTNET_MDEV_IO_IF_POOL_OFS, 64);
VALUE(PTNET_MDEV_IO_IF_POOL_OBJNUM, 68);
VALUE(PTNET_MDEV_IO_IF_POOL_OBJSZ, 72);
VALUE(PTNET_MDEV_IO_RING_POOL_OFS, 76);
VALUE(PTNET_MDEV_IO_RING_POOL_OBJNUM, 80);
VALUE(PTNET_MDEV_IO_RING_POOL_OBJSZ, 84);
VALUE(PTNET_MDEV_IO_BUF_POOL_OFS, 88);
VALUE(PTNET_MDEV_IO_BUF_POOL_OBJNUM, 92);
VALUE(PTNET_MDEV_IO_BUF_POOL_OBJSZ, 96);
VALUE(PTNET_MDEV_IO_END, 100);
VALUE(PTNET_IO_PTFEAT, 0);
VALUE(PTNET_IO_PTCTL, 4);
VALUE(PTNET_IO_MAC_LO, 8);
VALUE(PTNET_IO_MAC_HI, 12);
VALUE(PTNET_IO_CSBBAH, 16);
VALUE(PTNET_IO_CSBBAL, 20);
VALUE(PTNET_IO_NIFP_OFS, 24);
VALUE(PTNET_IO_NUM_TX_RINGS, 28);
VALUE(PTNET_IO_NUM_RX_RINGS, 32);
VALUE(PTNET_IO_NUM_TX_SLOTS, 36);
VALUE(PTNET_IO_NUM_RX_SLOTS, 40);
VALUE(PTNET_IO_VNET_HDR_LEN, 44);
VALUE(PTNET_IO_HOSTMEMID, 48);
VALUE(PTNET_IO_CSB_GH_BAH, 52);
VALUE(PTNET_IO_CSB_GH_BAL, 56);
VALUE(PTNET_IO_CSB_HG_BAH, 60);
VALUE(PTNET_IO_CSB_HG_BAL, 64);
VALUE(PTNET_IO_END, 68);
VALUE(PTNET_IO_KICK_BASE, 128);
VALUE(PTNET_IO_MASK, 0xff);
VALUE(PTNETMAP_F_VNET_HDR, 1);
VALUE(PTNETMAP_PTCTL_CREATE, 1);
VALUE(PTNETMAP_PTCTL_DELETE, 2);
