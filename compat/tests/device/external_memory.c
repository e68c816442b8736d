/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A region in the program's own memory. */
#include "bound.h"

#define BYTES (24u << 20)

static struct bound bind_in(const char *name, void *memory, struct nmreq_opt_extmem *opt)
{
    struct nmreq_register wish;
    struct bound b;

    memset(&wish, 0, sizeof(wish));
    wish.nr_mode = NR_REG_ALL_NIC;
    opt->nro_opt.nro_reqtype = NETMAP_REQ_OPT_EXTMEM;
    opt->nro_usrptr = (uintptr_t)memory;
    b.fd = device();
    b.reg = wish;
    b.error = request_with(b.fd, NETMAP_REQ_REGISTER, name, &b.reg, opt);
    b.mem = memory;
    b.nifp = b.error == 0 ? NETMAP_IF(memory, b.reg.nr_offset) : NULL;
    return b;
}

static void *anonymous(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    NEED(memory != MAP_FAILED);
    return memory;
}

int main(void)
{
    struct nmreq_opt_extmem opt;
    struct bound a, b, other = bind_port("vale0:other");
    void *memory = anonymous(BYTES), *small = anonymous(65536);
    char path[] = "/tmp/external-memory-XXXXXX";
    int file = mkstemp(path);

    memset(&opt, 0, sizeof(opt));
    opt.nro_info.nr_memsize = BYTES;
    a = bind_in("vale0:ext", memory, &opt);
    NEED(a.error == 0);
    CHECK(opt.nro_opt.nro_status == 0 && opt.nro_info.nr_buf_pool_objtotal > 4098);
    CHECK(opt.nro_info.nr_if_pool_objtotal >= 2 && opt.nro_info.nr_mem_id == a.reg.nr_mem_id);
    CHECK(opt.nro_info.nr_memsize <= BYTES);
    CHECK(put(tx(&a, 0), 60, 1, -1, 'x') && deliver(&a) == 0 && drain(&other, 0) == 1);
    CHECK(put(tx(&other, 0), 60, 2, 1, 'y') && deliver(&other) == 0 && drain(&a, 0) == 1);
    /* The same memory is the same region. */
    memset(&opt, 0, sizeof(opt));
    opt.nro_info.nr_memsize = BYTES;
    b = bind_in("vale0:ext2", memory, &opt);
    CHECK(b.error == 0 && b.reg.nr_mem_id == a.reg.nr_mem_id);
    close(b.fd);
    close(a.fd);
    /* Invalid requests. */
    memset(&opt, 0, sizeof(opt));
    opt.nro_info.nr_memsize = 65536;
    b = bind_in("vale0:ext3", small, &opt);
    CHECK(b.error == ENOMEM && opt.nro_opt.nro_status == ENOMEM);
    close(b.fd);
    memset(&opt, 0, sizeof(opt));
    opt.nro_info.nr_memsize = BYTES;
    opt.nro_info.nr_buf_pool_objsize = 100000;
    b = bind_in("vale0:ext3", memory, &opt);
    CHECK(b.error == EINVAL && opt.nro_opt.nro_status == EINVAL);
    close(b.fd);
    /* A file's memory. */
    NEED(file >= 0 && ftruncate(file, BYTES) == 0 && unlink(path) == 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    NEED(memory != MAP_FAILED);
    memset(&opt, 0, sizeof(opt));
    opt.nro_info.nr_memsize = BYTES;
    a = bind_in("vale0:file", memory, &opt);
    CHECK(a.error == 0 && put(tx(&a, 0), 60, 1, -1, 'x') && deliver(&a) == 0 && drain(&other, 0) == 1);
    close(a.fd);
    unbind(&other);
    return CHECK_RESULT();
}
