/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* nmctx_ferror takes a variable number of arguments, which Rust can call but not define. */
#include <libnetmap.h>
#include <stdarg.h>
#include <stdio.h>

/* nmctx_ferror itself jumps here: a symbol of C would not be exported from the library. */
void ringroad_formatted_error(struct nmctx *ctx, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void ringroad_formatted_error(struct nmctx *ctx, const char *format, ...)
{
    char message[1024];
    va_list values;

    if (ctx == NULL || ctx->verbose == 0)
        return;
    va_start(values, format);
    vsnprintf(message, sizeof(message), format, values);
    va_end(values);
    if (ctx->error != NULL)
        ctx->error(ctx, message);
    else
        fprintf(stderr, "%s\n", message);
}
