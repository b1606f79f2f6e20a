// What a launch of a product needs, which CUTLASS works out on the host.

#pragma once

struct Problem {
    int m, n, k;
    void *a, *b, *c, *d;
    float alpha, beta;
};

struct Launch {
    int grid[3], threads, shared, cluster[3], bytes;
    // The kernel's one parameter.
    alignas(128) unsigned char parameter[4096];
};
