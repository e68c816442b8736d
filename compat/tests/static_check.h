/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checks by the compiler, in every language version that the headers are for. */
#ifndef COMPAT_TESTS_STATIC_CHECK_H
#define COMPAT_TESTS_STATIC_CHECK_H

#define STATIC_CHECK_NAME2(line) static_check_##line
#define STATIC_CHECK_NAME(line)  STATIC_CHECK_NAME2(line)
#if defined(__cplusplus)
#    define STATIC_CHECK(condition) static_assert(condition, #    condition)
#elif __STDC_VERSION__ >= 201112L
#    define STATIC_CHECK(condition) _Static_assert(condition, #    condition)
#else
#    define STATIC_CHECK(condition) extern char STATIC_CHECK_NAME(__LINE__)[(condition) ? 1 : -1]
#endif

#endif
