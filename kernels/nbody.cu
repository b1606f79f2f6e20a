// Gravity between all pairs: the bodies pass through a shared tile. `w` is the mass.

extern "C" __global__ void nbody(const float4* position, float4* force, unsigned n, float softening) {
    __shared__ float4 tile[64];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < n ? position[i] : make_float4(0, 0, 0, 0);
    float3 f = make_float3(0, 0, 0);
    for (unsigned j0 = 0; j0 < n; j0 += 64) {
        tile[threadIdx.x] = j0 + threadIdx.x < n ? position[j0 + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (unsigned j = 0; j < 64; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
            float s = tile[j].w * r * r * r;
            f.x += dx * s;
            f.y += dy * s;
            f.z += dz * s;
        }
        __syncthreads();
    }
    if (i < n) force[i] = make_float4(f.x, f.y, f.z, me.w);
}

// The same in double with a correctly rounded square root and division: exact, operation by operation.
extern "C" __global__ void nbody_f64(const double* position, double* force, unsigned n, double softening) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double fx = 0, fy = 0, fz = 0;
    for (unsigned j = 0; j < n; j++) {
        double dx = position[4 * j] - position[4 * i], dy = position[4 * j + 1] - position[4 * i + 1];
        double dz = position[4 * j + 2] - position[4 * i + 2];
        double d = fma(dx, dx, fma(dy, dy, fma(dz, dz, softening)));
        double s = __ddiv_rn(position[4 * j + 3], __dmul_rn(d, __dsqrt_rn(d)));
        fx = fma(dx, s, fx);
        fy = fma(dy, s, fy);
        fz = fma(dz, s, fz);
    }
    force[3 * i] = fx;
    force[3 * i + 1] = fy;
    force[3 * i + 2] = fz;
}
