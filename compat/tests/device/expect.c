/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Wait for COUNT frames: expect PORT COUNT. More, or other than 60 bytes, are an error. */
#include "bound.h"

int main(int argc, char **argv)
{
    struct bound port;
    long left;

    NEED(argc == 3);
    port = bind_port(argv[1]);
    printf("ready\n");
    fflush(stdout);
    for (left = atol(argv[2]); left > 0;) {
        int bytes;

        NEED(poll_one(&port, POLLIN, PATIENCE_MS) == POLLIN);
        while ((bytes = take(rx(&port, 0), NULL, NULL)) >= 0) {
            CHECK(bytes == 60);
            left--;
        }
    }
    CHECK(rxsync(&port) == 0 && left == 0 && nm_ring_empty(rx(&port, 0)));
    unbind(&port);
    return CHECK_RESULT();
}
