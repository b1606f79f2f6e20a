// Conjugate gradients, preconditioned by the diagonal, in double precision: what the example `solve` runs.
//
// An iteration is two kernels, after Chronopoulos and Gear, who bring all of its dot products together:
//
//     cg_multiply   w = A u, and a partial sum per block of r.u, w.u and r.r
//     cg_update     sums the partials, decides whether to go on, and then takes the step:
//                   p = u + beta p, s = w + beta s (which is A p), x += alpha p, r -= alpha s, u = r / diagonal
//
// Sums are taken in one order whatever the device does first, and no product is left to be fused with a sum or not as
// the compiler likes: results are the same on every run, and on every device. Unless `go` is GO both return at once, so
// that a loop over several iterations may run past the last.
//
// The recurrences drift: after many iterations r is no longer b - A x. cg_restart, between two iterations, computes r
// anew from x, and has the next iteration be a first one. If `every` is not 0, the device pauses for it: after so many
// iterations since the last restart, and where r is small enough but may have drifted. Only cg_restart ends a pause.
//
// Of a matrix that several devices share, each has the rows of a part: vectors that the matrix is multiplied with go on
// behind the part's own rows with what it needs of others', which cg_pack gathers there to be sent. Each sums partials
// of its own rows, and cg_update reads those that were summed over all devices.
//
// Each block has the rows from `blockIdx.x * rows` on, `rows` of them. There are at most `blocks` blocks, a multiple of
// BLOCKS.

constexpr unsigned BLOCKS = 128, THREADS = 256, WARP = 32, LANES = 16, AHEAD = 8;

enum Status : unsigned { RUNNING, CONVERGED, LIMIT_REACHED, NOT_POSITIVE, NOT_FINITE, ROUNDED_OFF, PAUSED };

// What `go` says: loops end where it is STOP, and iterations do nothing unless it is GO.
enum Go : unsigned { STOP, GO, WAIT };

// What an iteration leaves to the next.
struct Turn {
    double gamma, alpha;       // r.u and the length of the step before
    double first, residual;    // r.r at the start and now
    double curvature;          // p.Ap
    double refuted;            // r.r computed anew, where r last only seemed small enough
    unsigned iterations, status;
    unsigned since;            // iterations since the last restart
    unsigned claimed;          // 1 while a restart is to check an r that is small enough
};

// `now` is read by every block of cg_update, whose first block writes `next`; cg_multiply makes that the present.
struct State {
    Turn now, next;
    double tolerance;
    unsigned limit, every;
};

// What a first iteration goes by: the step before was endless, so that beta is 0, and the direction is u.
__device__ void forget_direction(Turn& turn) {
    turn.gamma = INFINITY;
    turn.alpha = INFINITY;
}

// The sum of `COUNT` values `stride` apart, always in pairs, and pairs of pairs: few additions wait for each other.
template <unsigned COUNT> __device__ double in_pairs(const double* values, unsigned stride) {
    if constexpr (COUNT == 1) return *values;
    else return in_pairs<COUNT / 2>(values, stride) + in_pairs<COUNT / 2>(values + COUNT / 2 * stride, stride);
}

// The product of a row, whose entries are `at` to `end`, and `vector`. Entries are fetched AHEAD at a time: most rows
// wait once for them, and once for what they are multiplied by.
__device__ __forceinline__ double product(const unsigned* columns, const double* values, const double* vector,
                                          unsigned at, unsigned end) {
    double sum = 0.0;
    for (; at < end; at += AHEAD) {
        double value[AHEAD], factor[AHEAD];
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++) {
            value[k] = factor[k] = 0.0;
            if (at + k < end) {
                value[k] = values[at + k];
                factor[k] = vector[columns[at + k]];
            }
        }
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++) sum += value[k] * factor[k];
    }
    return sum;
}

// x = 0, so that the residual is b.
extern "C" __global__ void cg_start(unsigned n, unsigned rows, const double* b, const double* inverse, double* x,
                                    double* r, double* u, double* p, double* s, State* state, unsigned* go,
                                    unsigned* pause, volatile unsigned long long* progress, double tolerance,
                                    unsigned limit, unsigned every) {
    unsigned from = blockIdx.x * rows, to = min(n, from + rows);
    for (unsigned i = from + threadIdx.x; i < to; i += THREADS) {
        double value = b[i];
        x[i] = 0.0;
        r[i] = value;
        u[i] = value * inverse[i];
        p[i] = 0.0;
        s[i] = 0.0;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        state->next = Turn{};
        state->next.refuted = INFINITY;
        forget_direction(state->next);
        state->tolerance = tolerance;
        state->limit = limit;
        state->every = every;
        *go = GO;
        *pause = 0;
        *progress = 0;
    }
}

// `partials` holds `blocks` sums of each kind; those of blocks that there are not stay 0.
extern "C" __global__ void __launch_bounds__(THREADS)
    cg_multiply(unsigned n, unsigned rows, unsigned blocks, const unsigned* starts, const unsigned* columns,
                const double* values, const double* u, const double* r, double* w, double* partials, State* state,
                const unsigned* go) {
    __shared__ double sums[3][THREADS];
    unsigned thread = threadIdx.x, first = blockIdx.x * rows, to = min(n, first + rows);
    unsigned row = first + thread;
    // Read before `go` is looked at, so that all is waited for at once.
    Turn turn = {};
    if (row == 0) turn = state->next;
    unsigned at = row < to ? starts[row] : 0, end = row < to ? starts[row + 1] : 0;
    unsigned going = *go;
    if (going == STOP) return;
    if (row == 0) state->now = turn;
    if (going == WAIT) return;

    double gamma = 0.0, delta = 0.0, residual = 0.0;
    while (row < to) {
        double u_row = u[row], r_row = r[row], w_row = product(columns, values, u, at, end);
        w[row] = w_row;
        gamma += r_row * u_row;
        delta += w_row * u_row;
        residual += r_row * r_row;
        row += THREADS;
        if (row < to) {
            at = starts[row];
            end = starts[row + 1];
        }
    }

    sums[0][thread] = gamma;
    sums[1][thread] = delta;
    sums[2][thread] = residual;
#pragma unroll 1
    for (unsigned width = THREADS / LANES; width > 0; width /= LANES) {
        __syncthreads();
        if (thread < width) {
            for (unsigned kind = 0; kind < 3; kind++) {
                double sum = in_pairs<LANES>(&sums[kind][thread], width);
                sums[kind][thread] = sum;
                if (width == 1) partials[kind * blocks + blockIdx.x] = sum;
            }
        }
    }
}

// Gathers values of a vector, to be sent to other devices.
extern "C" __global__ void __launch_bounds__(THREADS)
    cg_pack(unsigned n, const unsigned* places, const double* vector, double* packed) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) packed[i] = vector[places[i]];
}

// What cg_update reads of a row.
struct Row {
    double u, w, p, s, x, r, inverse;
};

// `pause` is set where `go` becomes WAIT. `progress` is host memory: the iterations below, and above, as a float, how
// often the residual's square is that of the start.
extern "C" __global__ void __launch_bounds__(THREADS)
    cg_update(unsigned n, unsigned rows, unsigned blocks, const double* inverse, const double* w,
              const double* partials, double* x, double* r, double* u, double* p, double* s, State* state,
              volatile unsigned* go, unsigned* pause, volatile unsigned long long* progress) {
    constexpr unsigned EACH = BLOCKS / LANES;
    __shared__ double sums[3][LANES], step[2], tolerance;
    __shared__ Turn before;
    __shared__ unsigned limit, every;
    __shared__ bool stop;
    unsigned thread = threadIdx.x;
    // All that is read up to the first wait is waited for at once: the first of this thread's rows, the sums by one
    // warp, what the step before has left by another.
    unsigned first = blockIdx.x * rows, to = min(n, first + rows), i = first + thread;
    Row row = {};
    if (i < to) row = {u[i], w[i], p[i], s[i], x[i], r[i], inverse[i]};
    if (thread < LANES) {
        double sum[3] = {};
        const double* own = partials + thread * EACH;
        for (unsigned at = 0; at < blocks; at += BLOCKS) {
            for (unsigned kind = 0; kind < 3; kind++) sum[kind] += in_pairs<EACH>(own + kind * blocks + at, 1);
        }
        for (unsigned kind = 0; kind < 3; kind++) sums[kind][thread] = sum[kind];
    }
    if (thread == WARP) {
        before = state->now;
        tolerance = state->tolerance;
        limit = state->limit;
        every = state->every;
        // The first block may clear `go` in this very launch. So one thread reads it for the whole block: if each
        // thread did, some of a block could go on without the others' sums. A pause is not read from it: the first
        // block may begin one in this launch, too, and the others take the step before it all the same.
        stop = *go == STOP || before.status == PAUSED;
    }
    __syncthreads();
    if (thread == 0 && !stop) {
        Turn turn = before;
        double gamma = in_pairs<LANES>(sums[0], 1), delta = in_pairs<LANES>(sums[1], 1);
        double residual = in_pairs<LANES>(sums[2], 1);
        if (turn.iterations == 0) turn.first = residual;
        double beta = gamma / turn.gamma;
        double curvature = fma(-beta, gamma / turn.alpha, delta);
        turn.residual = residual;
        bool small = residual <= tolerance * tolerance * turn.first, steps = false;
        if (!isfinite(residual) || !isfinite(gamma))
            turn.status = NOT_FINITE;
        else if (small && every > 0 && turn.since > 0) {
            turn.status = PAUSED;
            turn.claimed = 1;
        } else if (small)
            turn.status = CONVERGED;
        else if (turn.claimed && residual > turn.refuted / 4.0)
            turn.status = ROUNDED_OFF;  // refuted again, and hardly smaller than the time before
        else if (!isfinite(curvature))
            turn.status = NOT_FINITE;
        else if (turn.iterations >= limit)
            turn.status = LIMIT_REACHED;
        else if (curvature <= 0.0)
            turn.status = NOT_POSITIVE;
        else {
            steps = true;
            turn.iterations++;
            turn.since++;
            if (turn.claimed) turn.refuted = residual;
            turn.claimed = 0;
            if (turn.since == every) turn.status = PAUSED;
        }
        turn.curvature = curvature;
        turn.gamma = gamma;
        turn.alpha = gamma / curvature;
        step[0] = turn.alpha;
        step[1] = beta;
        stop = !steps;
        if (blockIdx.x == 0) {
            state->next = turn;
            if (turn.status == PAUSED) {
                *go = WAIT;
                *pause = 1;
            } else if (stop)
                *go = STOP;
            if (stop || turn.iterations % 16 == 0) {
                float square = turn.first > 0.0 ? (float)(residual / turn.first) : 0.0f;
                *progress = (unsigned long long)__float_as_uint(square) << 32 | turn.iterations;
            }
        }
    }
    __syncthreads();
    if (stop) return;

    double alpha = step[0], beta = step[1];
    while (i < to) {
        row.p = row.u + beta * row.p;
        row.s = row.w + beta * row.s;
        row.r = fma(-alpha, row.s, row.r);
        x[i] = row.x + alpha * row.p;
        r[i] = row.r;
        u[i] = row.inverse * row.r;
        p[i] = row.p;
        s[i] = row.s;
        i += THREADS;
        if (i < to) row = {u[i], w[i], p[i], s[i], x[i], r[i], inverse[i]};
    }
}

// r = b - A x, where cg_update has kept an r that rounding errors part from it; the directions are forgotten, and a
// pause ends. What is told of the iterations stays as it is.
extern "C" __global__ void __launch_bounds__(THREADS)
    cg_restart(unsigned n, unsigned rows, const unsigned* starts, const unsigned* columns, const double* values,
               const double* b, const double* inverse, const double* x, double* r, double* u, double* p, double* s,
               State* state, volatile unsigned* go, unsigned* pause) {
    if (*go == STOP) return;
    unsigned from = blockIdx.x * rows, to = min(n, from + rows);
    for (unsigned i = from + threadIdx.x; i < to; i += THREADS) {
        double value = b[i] - product(columns, values, x, starts[i], starts[i + 1]);
        r[i] = value;
        u[i] = value * inverse[i];
        p[i] = 0.0;
        s[i] = 0.0;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        forget_direction(state->next);
        state->next.status = RUNNING;
        state->next.since = 0;
        *go = GO;
        *pause = 0;
    }
}
