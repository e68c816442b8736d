/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Every function that the header declares is in the library: this links, or it does not. */
#include <libnetmap.h>

#include "check.h"

typedef void (*any_function)(void);
#define IN_LIBRARY(name)          \
    {                             \
#        name, (any_function)name \
    }

static const struct {
    const char *name;
    any_function function;
} functions[] = {
    IN_LIBRARY(nmport_open),           IN_LIBRARY(nmport_close),         IN_LIBRARY(nmport_inject),
    IN_LIBRARY(nmport_prepare),        IN_LIBRARY(nmport_open_desc),     IN_LIBRARY(nmport_new),
    IN_LIBRARY(nmport_parse),          IN_LIBRARY(nmport_register),      IN_LIBRARY(nmport_mmap),
    IN_LIBRARY(nmport_delete),         IN_LIBRARY(nmport_undo_parse),    IN_LIBRARY(nmport_undo_register),
    IN_LIBRARY(nmport_undo_mmap),      IN_LIBRARY(nmport_undo_prepare),  IN_LIBRARY(nmport_undo_open_desc),
    IN_LIBRARY(nmport_clone),          IN_LIBRARY(nmport_extmem),        IN_LIBRARY(nmport_extmem_from_file),
    IN_LIBRARY(nmport_extmem_getinfo), IN_LIBRARY(nmport_offset),        IN_LIBRARY(nmport_enable_option),
    IN_LIBRARY(nmport_disable_option), IN_LIBRARY(nmreq_header_init),    IN_LIBRARY(nmreq_header_decode),
    IN_LIBRARY(nmreq_register_decode), IN_LIBRARY(nmreq_options_decode), IN_LIBRARY(nmreq_get_mem_id),
    IN_LIBRARY(nmreq_push_option),     IN_LIBRARY(nmreq_remove_option),  IN_LIBRARY(nmreq_find_option),
    IN_LIBRARY(nmreq_free_options),    IN_LIBRARY(nmreq_option_name),    IN_LIBRARY(nmctx_get),
    IN_LIBRARY(nmctx_set_default),     IN_LIBRARY(nmctx_set_threadsafe), IN_LIBRARY(nmctx_ferror),
    IN_LIBRARY(nmctx_malloc),          IN_LIBRARY(nmctx_free),           IN_LIBRARY(nmctx_lock),
    IN_LIBRARY(nmctx_unlock),
};

int main(void)
{
    size_t i;

    for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        CHECK_ROW(functions[i].name, functions[i].function != NULL);
    CHECK(nmctx_threadsafe == 0);
    return CHECK_RESULT();
}
