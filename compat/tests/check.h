/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checks of the C tests: a failure is printed with its place, and the program exits with 1. */
#ifndef COMPAT_TESTS_CHECK_H
#define COMPAT_TESTS_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                                     \
        }                                                                   \
    } while (0)

/* A statement of a table: prints the row as well. */
#define CHECK_ROW(row, condition)                                                        \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: \"%s\": %s\n", __FILE__, __LINE__, row, #condition); \
            failures++;                                                                  \
        }                                                                                \
    } while (0)

/* Ends the test: the rest would make no sense. */
#define NEED(condition)                                                                                  \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: needed: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, \
                    strerror(errno));                                                                    \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

#define CHECK_RESULT() (failures == 0 ? 0 : 1)

#endif
