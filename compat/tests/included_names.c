/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What programs use without including its header: <net/netmap_user.h> brings it. To be compiled, not run.
 */
#if !defined(_GNU_SOURCE)
#    define _GNU_SOURCE
#endif
#define NETMAP_WITH_LIBS
#include <net/netmap_user.h>

int use(char character);

int use(char character)
{
    char name[IFNAMSIZ];
    struct pollfd entry;
    struct timeval now;

    memset(name, character, sizeof(name));
    entry.fd = open(name, O_RDWR);
    entry.events = POLLIN;
    if (poll(&entry, 1, 0) < 0 || signal(SIGINT, SIG_DFL) == SIG_ERR || gettimeofday(&now, NULL) < 0)
        exit(errno);
    return isdigit((unsigned char)character);
}
