// Dual active set on the Gram matrix, one warp for each problem (the method of kernel.py, with the inverse of the active Gram matrix
// kept explicitly: its updates are rank one and use all lanes, where a triangular solve would be sequential).
//
//   min 1/2 lam^T G lam - b^T lam,   lam >= 0 (free on equality rows, no lam where there is no row)
//
// The answer is a guess of the active rows with multipliers, or a ray: the caller refines and checks it on the rows.
// Compiled by NVRTC, through PyTorch.

#define LANES 32
#define DEVICE __device__ __forceinline__
DEVICE void warp_sync() { __syncwarp(); }
DEVICE double sum(double x) {
    for (int w = 16; w; w >>= 1) x += __shfl_xor_sync(0xffffffffu, x, w);
    return x;
}
DEVICE void least(double& x, int& at) {  // smallest x over the lanes and where; ties to the smaller index
    for (int w = 16; w; w >>= 1) {
        double y = __shfl_xor_sync(0xffffffffu, x, w);
        int other = __shfl_xor_sync(0xffffffffu, at, w);
        if (y < x || (y == x && other < at)) { x = y; at = other; }
    }
}

#define EPSILON 2.220446049250313e-16
#define DEPENDENT 1e-10   // squared distance of a row to the span of the active ones, relative to its square
#define NEGLIGIBLE 1e-11  // multiplier changes below this never block
#define NOWHERE 0x7fffffff
enum { ABSENT = 0, INEQUALITY = 1, EQUALITY = 2 };     // kinds of rows, as in base.py
enum { OPTIMAL = 0, INFEASIBLE = 1, UNSURE = 2 };      // verdicts, as in base.py

DEVICE void solve_one(int lane, int m, const double* G, const double* b, const signed char* kind, const double* weight,
                      const double* tolerance, double* out, signed char* verdict, int* steps_out, double* K,
                      double* values, double* r, double* g, double* slack, int* active, signed char* inside) {
    for (int k = lane; k < m; k += LANES) { out[k] = 0.0; inside[k] = 0; }
    warp_sync();
    int q = 0, steps = 0, ignored = 0, stalled = 0, answer = UNSURE;
    double best = -1e300;
    const int limit = 10 * m + 50;
    while (steps <= limit) {
        // slack of every row, the dual value, the worst row (equality rows before the others)
        double total = 0.0, value = 0.0;
        for (int a = lane; a < q; a += LANES) { total += fabs(values[a]); value += values[a] * b[active[a]]; }
        total = sum(total);
        value = sum(value);
        const double noise = 4.0 * EPSILON * total;
        double worst = 0.0;
        int j = NOWHERE;
        for (int k = lane; k < m; k += LANES) {
            double s = -b[k];
            for (int a = 0; a < q; ++a) s += values[a] * G[active[a] * m + k];
            slack[k] = s;
            if (kind[k] == ABSENT || inside[k]) continue;
            double missing = kind[k] == EQUALITY ? -fabs(s) : s;
            if (missing >= -(tolerance[k] + noise)) continue;
            double score = missing * weight[k] * (kind[k] == EQUALITY ? 1e100 : 1.0);
            if (score < worst) { worst = score; j = k; }
        }
        least(worst, j);
        warp_sync();
        if (j == NOWHERE) { answer = OPTIMAL; break; }
        if (value > best) { best = value; stalled = 0; }
        else if (++stalled > 10 + ignored) break;
        const double sign = slack[j] < 0.0 ? 1.0 : -1.0;
        const double square = G[j * m + j];
        double missing = -fabs(slack[j]), entering = 0.0;
        bool finished = false;
        while (true) {
            if (++steps > limit) break;
            for (int a = lane; a < q; a += LANES) g[a] = G[j * m + active[a]];
            warp_sync();
            double inner = 0.0, scale = 0.0;
            for (int a = lane; a < q; a += LANES) {
                double x = 0.0;
                for (int c = 0; c < q; ++c) x += K[c * m + a] * g[c];
                r[a] = sign * x;
                inner += x * g[a];
                scale += fabs(x);
            }
            const double delta = square - sum(inner);
            scale = 1.0 + sum(scale);
            const bool dependent = delta <= DEPENDENT * square;
            double step = 1e300;
            int p = NOWHERE;
            for (int a = lane; a < q; a += LANES) {
                if (r[a] > NEGLIGIBLE && kind[active[a]] != EQUALITY) {
                    double t = values[a] / r[a];
                    if (t < step) { step = t; p = a; }
                }
            }
            least(step, p);
            if (dependent && p == NOWHERE) {
                if (entering == 0.0 && -missing <= 1e4 * EPSILON * scale * fmax(total, 1.0)) {
                    warp_sync();
                    if (lane == 0) inside[j] = 2;  // a redundant row, violated by round-off only
                    ++ignored;
                    warp_sync();
                    break;
                }
                answer = INFEASIBLE;
                for (int a = lane; a < q; a += LANES)
                    out[active[a]] = kind[active[a]] == EQUALITY ? -r[a] : fmax(-r[a], 0.0);
                if (lane == 0) out[j] = sign;
                finished = true;
                break;
            }
            const double full = dependent ? 1e300 : -missing / delta;
            const bool enters = full <= step;
            if (enters) step = full;
            entering += step;
            warp_sync();
            for (int a = lane; a < q; a += LANES) {
                double x = values[a] - step * r[a];
                values[a] = kind[active[a]] == EQUALITY ? x : fmax(x, 0.0);
            }
            if (enters) {  // bordered inverse
                const double inverse = 1.0 / delta;
                for (int c = 0; c < q; ++c) {
                    const double x = r[c] * inverse;
                    for (int a = lane; a < q; a += LANES) K[c * m + a] += x * r[a];
                }
                for (int a = lane; a < q; a += LANES) K[a * m + q] = K[q * m + a] = -sign * r[a] * inverse;
                warp_sync();
                if (lane == 0) { K[q * m + q] = inverse; values[q] = sign * entering; active[q] = j; inside[j] = 1; }
                ++q;
                if (ignored) {  // the span has changed: look at them again
                    for (int k = lane; k < m; k += LANES) if (inside[k] == 2) inside[k] = 0;
                    ignored = 0;
                }
                warp_sync();
                break;
            }
            missing += dependent ? 0.0 : step * delta;
            // row p leaves: Schur complement, then the last row takes its place
            const double pivot = 1.0 / K[p * m + p];
            for (int a = lane; a < q; a += LANES) g[a] = K[p * m + a];
            warp_sync();
            for (int c = 0; c < q; ++c) {
                const double x = g[c] * pivot;
                for (int a = lane; a < q; a += LANES) K[c * m + a] -= x * g[a];
            }
            if (lane == 0) inside[active[p]] = 0;
            warp_sync();
            --q;
            if (p < q) {
                for (int a = lane; a < q; a += LANES) g[a] = a == p ? K[q * m + q] : K[q * m + a];
                warp_sync();
                for (int a = lane; a < q; a += LANES) K[p * m + a] = K[a * m + p] = g[a];
                if (lane == 0) { values[p] = values[q]; active[p] = active[q]; }
            }
            warp_sync();
        }
        if (finished) break;
    }
    if (answer != INFEASIBLE)
        for (int a = lane; a < q; a += LANES) out[active[a]] = values[a];
    if (lane == 0) { *verdict = (signed char)answer; *steps_out = steps; }
}

extern "C" __global__ void active_set(const double* G, const double* b, const signed char* kind, const double* weight,
                                                            const double* tolerance, double* out, signed char* verdict, int* steps, int m) {
    extern __shared__ double memory[];
    const long long problem = blockIdx.x;
    double* values = memory + m * m;
    int* active = (int*)(values + 4 * m);
    solve_one(threadIdx.x, m, G + problem * m * m, b + problem * m, kind + problem * m, weight + problem * m,
              tolerance + problem * m, out + problem * m, verdict + problem, steps + problem, memory, values, values + m,
              values + 2 * m, values + 3 * m, active, (signed char*)(active + m));
}
