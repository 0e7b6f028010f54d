// Compute what is between the matrix products of a training step on a CPU (GELU, layer norm, attention, Adam), each in
// one pass over memory instead of one pass per operation.
//
// `kernels.py` compiles this file. Its class `Kernels` has the same functions as the end of this file, in torch, with a
// description. Arrays are float32 and contiguous, with the members one after the other. Parameters and their gradients
// are slices of the stack's flat array, so members are `stride` floats apart. Work is divided among torch's threads in
// parts that do not depend on the number of threads, and sums have a fixed order, so neither do the results.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define ALONE __restrict__  // no other pointer refers to the same memory

namespace {

constexpr long BLOCK = 32;  // number of rows that a thread processes at a time
constexpr long LANES = 16;  // number of floats of a SIMD vector; the compiler splits it if the processor's are shorter

inline long least(long a, long b) { return a < b ? a : b; }
inline long whole_vectors(long n) { return (n + LANES - 1) / LANES * LANES; }

// ---- functions of one number ----

inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float k = std::nearbyint(x * 1.44269504f), r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(k) + 127) << 23;
    float power;  // 2^k
    std::memcpy(&power, &bits, 4);
    return p * power;
}

inline float error_function(float x) {
    x = x > 4.0f ? 4.0f : x;
    x = x < -4.0f ? -4.0f : x;
    const float y = x * x;
    float p = 2.1237322e-06f, q = 3.8918573e-05f;
    p = p * y + 2.8619796e-04f;
    p = p * y + 3.6580483e-03f;
    p = p * y + 5.2433021e-02f;
    p = p * y + 1.87416077e-01f;
    p = p * y + 1.12837911f;
    q = q * y + 1.14329602e-03f;
    q = q * y + 1.47520881e-02f;
    q = q * y + 1.12945676e-01f;
    q = q * y + 4.99425799e-01f;
    q = q * y + 1.0f;
    x = x * p / q;
    x = x > 1.0f ? 1.0f : x;
    return x < -1.0f ? -1.0f : x;
}

// GELU(x) is x times the normal distribution function, `below`; `slope` is the derivative of GELU
inline float below(float x) { return 0.5f + 0.5f * error_function(x * 0.70710678f); }
inline float slope(float x, float below_x) { return below_x + x * 0.39894228f * exponential(-0.5f * x * x); }

// ---- rows ----

template <class Work> void in_blocks(long members, long rows, Work work) {
    const long blocks = (rows + BLOCK - 1) / BLOCK;
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < members * blocks; i++) {
        const long first = i % blocks * BLOCK;
        work(i / blocks, first, least(BLOCK, rows - first), i);
    }
}

// Sums over the rows of each member. Every block of rows has its own partial sums, which `into` adds in a fixed order.
struct Sums {
    long members, blocks, width;
    std::vector<float> parts;

    Sums(long members, long rows, long width)
        : members(members), blocks((rows + BLOCK - 1) / BLOCK), width(width), parts(members * blocks * width) {}

    float* of(long block) { return parts.data() + block * width; }

    void into(float* out, long stride, long from, long count) const {
        for (long e = 0; e < members; e++)
            for (long i = 0; i < count; i++) {
                double sum = 0;
                for (long k = 0; k < blocks; k++) sum += parts[(e * blocks + k) * width + from + i];
                out[e * stride + i] = static_cast<float>(sum);
            }
    }
};

void gelu_rows(float* ALONE y, const float* ALONE x, const float* ALONE bias, long rows, long d) {
    for (long r = 0; r < rows; r++, x += d, y += d)
        for (long i = 0; i < d; i++) {
            const float s = x[i] + bias[i];
            y[i] = s * below(s);
        }
}

void gelu_rows_backward(float* ALONE x, float* ALONE dy, const float* ALONE bias, float* ALONE dbias, long rows,
                        long d) {
    for (long r = 0; r < rows; r++, x += d, dy += d)
        for (long i = 0; i < d; i++) {
            const float s = x[i] + bias[i], p = below(s), g = dy[i] * slope(s, p);
            x[i] = s * p;
            dy[i] = g;
            dbias[i] += g;
        }
}

template <bool GELU>
void norm_rows(float* ALONE y, float* ALONE unit, float* ALONE inverse, const float* ALONE x, const float* ALONE branch,
               const float* ALONE bias, const float* ALONE scale, const float* ALONE shift, long rows, long d) {
    for (long r = 0; r < rows; r++, x += d, branch += d, unit += d, y += d) {
        float mean = 0, square = 0;
        #pragma omp simd reduction(+ : mean)
        for (long i = 0; i < d; i++) {
            const float s = branch[i] + bias[i], sum = x[i] + (GELU ? s * below(s) : s);
            unit[i] = sum;
            mean += sum;
        }
        mean /= d;
        #pragma omp simd reduction(+ : square)
        for (long i = 0; i < d; i++) square += (unit[i] - mean) * (unit[i] - mean);
        const float by = 1.0f / std::sqrt(square / d + 1e-5f);
        inverse[r] = by;
        for (long i = 0; i < d; i++) {
            unit[i] = (unit[i] - mean) * by;
            y[i] = unit[i] * scale[i] + shift[i];
        }
    }
}

template <bool GELU>
void norm_rows_backward(float* ALONE dx, float* ALONE branch, const float* ALONE dy, const float* ALONE unit,
                        const float* ALONE inverse, const float* ALONE bias, const float* ALONE scale,
                        float* ALONE dscale, float* ALONE dshift, float* ALONE dbias, long rows, long d) {
    for (long r = 0; r < rows; r++, dx += d, branch += d, dy += d, unit += d) {
        float mean = 0, along = 0;
        #pragma omp simd reduction(+ : mean, along)
        for (long i = 0; i < d; i++) {
            const float g = dy[i] * scale[i];
            mean += g;
            along += g * unit[i];
        }
        mean /= d;
        along /= d;
        for (long i = 0; i < d; i++) {
            dscale[i] += dy[i] * unit[i];
            dshift[i] += dy[i];
            float g = inverse[r] * (dy[i] * scale[i] - mean - unit[i] * along);
            dx[i] = g;
            if (GELU) {
                const float s = branch[i] + bias[i];
                g *= slope(s, below(s));
                branch[i] = g;
            }
            dbias[i] += g;
        }
    }
}

// ---- attention: arrays of an example are transposed to one row per feature; rows are padded to whole vectors ----

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Vector& vector(float* a) { return *reinterpret_cast<Vector*>(a); }
inline const Vector& vector(const float* a) { return *reinterpret_cast<const Vector*>(a); }

// Write the transpose of a (16, 16) to b. Rows of a are `lda` floats apart, and rows of b `ldb`.
inline void turn_tile(float* b, long ldb, const float* a, long lda) {
    Vector x[LANES], y[LANES];
    #pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) x[i] = vector(a + i * lda);
    #pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
        #pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            const Vector l = x[i], r = x[i + 8];
            y[2 * i] = __builtin_shufflevector(l, r, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            y[2 * i + 1] = __builtin_shufflevector(l, r, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        #pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) x[i] = y[i];
    }
    #pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) vector(b + i * ldb) = x[i];
}

// Write the transpose of a (rows, columns) to b. With `fill`, rows of b are padded with zeros to whole vectors.
void turn(float* b, long ldb, const float* a, long lda, long rows, long columns, bool fill) {
    for (long i = 0; i < rows; i += LANES)
        for (long k = 0; k < columns; k += LANES) {
            const float* from = a + i * lda + k;
            float* to = b + k * ldb + i;
            const long high = least(rows - i, LANES), wide = least(columns - k, LANES);
            if (high == LANES && wide == LANES) {
                turn_tile(to, ldb, from, lda);
                continue;
            }
            float tile[LANES * LANES] = {};
            for (long r = 0; r < high; r++) std::memcpy(tile + r * LANES, from + r * lda, 4 * wide);
            turn_tile(tile, LANES, tile, LANES);
            for (long r = 0; r < wide; r++) std::memcpy(to + r * ldb, tile + r * LANES, 4 * (fill ? LANES : high));
        }
}

// Compute V vectors in each of U rows of `out`. Row j is the sum over k of a[j, k] b[k], or of a[k, j] b[k] if TURNED.
template <int V, int U, bool TURNED>
inline void product_rows(float* ALONE out, const float* ALONE a, long lda, const float* ALONE b, long row, long count) {
    Vector sum[U][V] = {};
    for (long k = 0; k < count; k++)
        for (int w = 0; w < V; w++) {
            const Vector part = vector(b + k * row + w * LANES);
            #pragma GCC unroll 16
            for (int j = 0; j < U; j++) sum[j][w] += (TURNED ? a[k * lda + j] : a[j * lda + k]) * part;
        }
    for (int j = 0; j < U; j++)
        for (int w = 0; w < V; w++) vector(out + j * row + w * LANES) = sum[j][w];
}

template <int V, bool TURNED>
inline void product_columns(float* out, const float* a, long lda, const float* b, long row, long rows, long count) {
    constexpr int U = V == 1 ? 16 : V == 2 ? 8 : 4;
    const long next = TURNED ? 1 : lda;
    long j = 0;
    for (; j + U <= rows; j += U) product_rows<V, U, TURNED>(out + j * row, a + j * next, lda, b, row, count);
    for (; j + 4 <= rows; j += 4) product_rows<V, 4, TURNED>(out + j * row, a + j * next, lda, b, row, count);
    for (; j < rows; j++) product_rows<V, 1, TURNED>(out + j * row, a + j * next, lda, b, row, count);
}

// Compute out (rows, row) = a b for b (count, row) and a (rows, count), or the transpose of a (count, rows) if TURNED.
// `row` must be a multiple of LANES.
template <bool TURNED>
void product(float* out, const float* a, long lda, const float* b, long row, long rows, long count) {
    long w = 0;
    for (; w + 4 * LANES <= row; w += 4 * LANES) product_columns<4, TURNED>(out + w, a, lda, b + w, row, rows, count);
    switch ((row - w) / LANES) {
        case 1: return product_columns<1, TURNED>(out + w, a, lda, b + w, row, rows, count);
        case 2: return product_columns<2, TURNED>(out + w, a, lda, b + w, row, rows, count);
        case 3: return product_columns<3, TURNED>(out + w, a, lda, b + w, row, rows, count);
    }
}

// Queries, keys and values of an example, with one row per token. Rows may be slices of longer rows.
template <class Float> struct Parts {
    Float *q, *k, *v;
    long q_row, k_row, v_row;

    Parts of(long tokens) const {
        return {q + tokens * q_row, k + tokens * k_row, v + tokens * v_row, q_row, k_row, v_row};
    }
};

// Write the transposed queries with the bias added, (d, row), to `out`.
void turn_queries(float* out, const float* q, long q_row, const float* bias, long n, long d, long row) {
    turn(out, row, q, q_row, n, d, true);
    for (long i = 0; i < d; i++)
        for (long j = 0; j < row; j += LANES) vector(out + i * row + j) += bias[i];
}

void attend_example(float* mixed, float* weights, const Parts<const float>& from, const float* bias, long n, long h,
                    long c, float* room) {
    const long d = h * c, row = whole_vectors(n);
    float *q = room, *out = q + d * row;
    const float scale = 1.0f / std::sqrt(static_cast<float>(c));
    turn_queries(q, from.q, from.q_row, bias, n, d, row);
    for (long m = 0; m < h; m++, weights += n * row) {
        const long head = m * c * row;
        product<false>(weights, from.k + m * c, from.k_row, q + head, row, n, c);  // (keys, queries)
        for (long w = 0; w < row; w += LANES) {
            float* s = weights + w;
            Vector top = vector(s), sum = {};
            for (long j = 1; j < n; j++) top = vector(s + j * row) > top ? vector(s + j * row) : top;
            for (long j = 0; j < n; j++)
                for (int i = 0; i < LANES; i++) s[j * row + i] = exponential((s[j * row + i] - top[i]) * scale);
            for (long j = 0; j < n; j++) sum += vector(s + j * row);
            sum = 1.0f / sum;
            for (long j = 0; j < n; j++) vector(s + j * row) *= sum;
        }
        product<true>(out + head, from.v + m * c, from.v_row, weights, row, c, n);
    }
    turn(mixed, d, out, row, d, n, false);
}

void attend_example_backward(const Parts<float>& into, const float* dmixed, const float* weights,
                             const Parts<const float>& from, const float* bias, long n, long h, long c, bool residual,
                             float* room) {
    const long d = h * c, row = whole_vectors(n);
    float *q = room, *g = q + d * row, *dq = g + d * row, *dk = dq + d * row, *dv = dk + d * row;
    float *ds = dv + d * row, *square = ds + n * row;
    const float scale = 1.0f / std::sqrt(static_cast<float>(c));
    turn_queries(q, from.q, from.q_row, bias, n, d, row);
    turn(g, row, dmixed, d, n, d, true);
    for (long m = 0; m < h; m++, weights += n * row) {
        const long head = m * c * row;
        product<false>(ds, from.v + m * c, from.v_row, g + head, row, n, c);
        for (long w = 0; w < row; w += LANES) {
            const float* p = weights + w;
            float* s = ds + w;
            Vector sum = {};
            for (long j = 0; j < n; j++) sum += vector(p + j * row) * vector(s + j * row);
            for (long j = 0; j < n; j++)
                vector(s + j * row) = vector(p + j * row) * (vector(s + j * row) - sum) * scale;
        }
        product<true>(dq + head, from.k + m * c, from.k_row, ds, row, c, n);
        turn(square, row, ds, row, n, n, true);
        product<false>(dk + head, q + head, row, square, row, c, n);
        turn(square, row, weights, row, n, n, true);
        product<false>(dv + head, g + head, row, square, row, c, n);
    }
    for (long i = 0; residual && i < d * row; i += LANES) vector(dk + i) += vector(g + i);
    turn(into.q, into.q_row, dq, row, d, n, false);
    turn(into.k, into.k_row, dk, row, d, n, false);
    turn(into.v, into.v_row, dv, row, d, n, false);
}

// Write the sum over k of a[k] b[k] to `out` (d), or add it if `add` is true. Numbers of a are `lda` floats apart, and
// rows of b `ldb`.
inline void weigh(float* ALONE out, const float* ALONE a, long lda, const float* ALONE b, long ldb, long count, long d,
                  bool add) {
    long i = 0;
    for (; i + LANES <= d; i += LANES) {
        Vector sum = {};
        for (long k = 0; k < count; k++) sum += a[k * lda] * vector(b + k * ldb + i);
        vector(out + i) = add ? vector(out + i) + sum : sum;
    }
    for (; i < d; i++) {
        float sum = 0;
        for (long k = 0; k < count; k++) sum += a[k * lda] * b[k * ldb + i];
        out[i] = add ? out[i] + sum : sum;
    }
}

// Compute `attend_one` for one example, with tokens x (n, d) and queries (h, d) whose rows are `apart` floats apart.
void attend_one_example(float* means, float* weights, const float* query, long apart, const float* x, long n, long h,
                        long d, float* room) {
    const long row = whole_vectors(n);
    float *turned = room, *scores = turned + d * row;
    turn(turned, row, x, d, n, d, true);
    product<false>(scores, query, apart, turned, row, h, d);
    for (long m = 0; m < h; m++) {
        float *s = scores + m * row, *p = weights + m * n, top = s[0], sum = 0;
        for (long j = 1; j < n; j++) top = s[j] > top ? s[j] : top;
        for (long j = 0; j < row; j++) s[j] = exponential(s[j] - top);
        for (long j = 0; j < n; j++) sum += s[j];
        for (long j = 0; j < n; j++) p[j] = s[j] / sum;
        weigh(means + m * apart, p, 1, x, d, n, d, false);
    }
}

void attend_one_example_backward(float* dx, float* dquery, const float* dmeans, const float* weights,
                                 const float* query, long apart, const float* x, long n, long h, long d, float* room) {
    const long row = whole_vectors(n);
    float *turned = room, *scores = turned + d * row;
    turn(turned, row, x, d, n, d, true);
    product<false>(scores, dmeans, apart, turned, row, h, d);
    for (long m = 0; m < h; m++) {
        const float* p = weights + m * n;
        float *s = scores + m * row, sum = 0;
        for (long j = 0; j < n; j++) sum += p[j] * s[j];
        for (long j = 0; j < n; j++) s[j] = p[j] * (s[j] - sum);
        weigh(dquery + m * apart, s, 1, x, d, n, d, false);
    }
    for (long j = 0; j < n; j++) {
        weigh(dx + j * d, weights + j, n, dmeans, apart, h, d, false);
        weigh(dx + j * d, scores + j, row, query, apart, h, d, true);
    }
}

template <class Work> void in_examples(long count, long room, Work work) {
    #pragma omp parallel
    {
        std::vector<float> memory(room);
        #pragma omp for schedule(static)
        for (long i = 0; i < count; i++) work(i, memory.data());
    }
}

}  // namespace

extern "C" {

void gelu(float* y, const float* x, const float* bias, long members, long rows, long d, long stride) {
    in_blocks(members, rows, [=](long e, long first, long count, long) {
        const long at = (e * rows + first) * d;
        gelu_rows(y + at, x + at, bias + e * stride, count, d);
    });
}

void gelu_backward(float* x, float* dy, const float* bias, float* dbias, long members, long rows, long d, long stride) {
    Sums sums(members, rows, d);
    in_blocks(members, rows, [&](long e, long first, long count, long block) {
        const long at = (e * rows + first) * d;
        gelu_rows_backward(x + at, dy + at, bias + e * stride, sums.of(block), count, d);
    });
    sums.into(dbias, stride, 0, d);
}

void norm(float* y, float* unit, float* inverse, const float* x, const float* branch, const float* bias,
          const float* scale, const float* shift, long members, long rows, long d, long bias_stride,
          long stride, long with_gelu) {
    const auto work = with_gelu ? norm_rows<true> : norm_rows<false>;
    in_blocks(members, rows, [=](long e, long first, long count, long) {
        const long at = (e * rows + first) * d;
        work(y + at, unit + at, inverse + e * rows + first, x + at, branch + at, bias + e * bias_stride,
             scale + e * stride, shift + e * stride, count, d);
    });
}

void norm_backward(float* dx, float* branch, const float* dy, const float* unit, const float* inverse,
                   const float* bias, const float* scale, float* dscale, float* dshift, float* dbias, long members,
                   long rows, long d, long bias_stride, long stride, long with_gelu) {
    const auto work = with_gelu ? norm_rows_backward<true> : norm_rows_backward<false>;
    Sums sums(members, rows, 3 * d);
    in_blocks(members, rows, [&](long e, long first, long count, long block) {
        const long at = (e * rows + first) * d;
        float* sum = sums.of(block);
        work(dx + at, branch + at, dy + at, unit + at, inverse + e * rows + first, bias + e * bias_stride,
             scale + e * stride, sum, sum + d, sum + 2 * d, count, d);
    });
    sums.into(dscale, stride, 0, d);
    sums.into(dshift, stride, d, d);
    sums.into(dbias, stride, 2 * d, d);
}

void attend(float* mixed, float* weights, const float* q, const float* k, const float* v, const float* bias,
            long members, long examples, long n, long h, long c, long q_row, long k_row, long v_row, long stride) {
    const long d = h * c, row = whole_vectors(n);
    const Parts<const float> from = {q, k, v, q_row, k_row, v_row};
    in_examples(members * examples, 2 * d * row, [=](long i, float* room) {
        attend_example(mixed + i * n * d, weights + i * h * n * row, from.of(i * n), bias + i / examples * stride, n, h,
                       c, room);
    });
}

void attend_backward(float* dq, float* dk, float* dv, const float* dmixed, const float* weights, const float* q,
                     const float* k, const float* v, const float* bias, long members, long examples, long n, long h,
                     long c, long q_row, long k_row, long v_row, long stride, long residual) {
    const long d = h * c, row = whole_vectors(n);
    const Parts<float> into = {dq, dk, dv, q_row, k_row, v_row};
    const Parts<const float> from = {q, k, v, q_row, k_row, v_row};
    in_examples(members * examples, (5 * d + 2 * n) * row, [=](long i, float* room) {
        attend_example_backward(into.of(i * n), dmixed + i * n * d, weights + i * h * n * row, from.of(i * n),
                                bias + i / examples * stride, n, h, c, residual, room);
    });
}

void attend_one(float* means, float* weights, const float* query, const float* x, long members, long examples, long n,
                long h, long d) {
    in_examples(members * examples, (d + h) * whole_vectors(n), [=](long i, float* room) {
        const long at = (i / examples * h * examples + i % examples) * d;
        attend_one_example(means + at, weights + i * h * n, query + at, examples * d, x + i * n * d, n, h, d, room);
    });
}

void attend_one_backward(float* dx, float* dquery, const float* dmeans, const float* weights, const float* query,
                         const float* x, long members, long examples, long n, long h, long d) {
    in_examples(members * examples, (d + h) * whole_vectors(n), [=](long i, float* room) {
        const long at = (i / examples * h * examples + i % examples) * d;
        attend_one_example_backward(dx + i * n * d, dquery + at, dmeans + at, weights + i * h * n, query + at,
                                    examples * d, x + i * n * d, n, h, d, room);
    });
}

void adam(float* weights, const float* gradient, float* first, float* second, const float* settings, long members,
          long columns, long encoding_columns) {
    constexpr long CHUNK = 1 << 14;
    const long chunks = (columns + CHUNK - 1) / CHUNK;
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < members * chunks; i++) {
        const float* s = settings + i / chunks * 7;
        const float keep = s[0], keep2 = s[1], correction = s[2], correction2 = 1.0f / s[3], epsilon = s[4];
        const long row = i / chunks * columns, start = i % chunks * CHUNK, end = least(start + CHUNK, columns);
        const long middle = least(end, start > encoding_columns ? start : encoding_columns);
        float *ALONE w = weights + row, *ALONE m = first + row, *ALONE v = second + row;
        const float* ALONE g = gradient + row;
        const auto update = [=](long from, long to, float rate) {
            for (long k = from; k < to; k++) {
                m[k] += (1 - keep) * (g[k] - m[k]);
                v[k] = keep2 * v[k] + (1 - keep2) * g[k] * g[k];
                w[k] -= rate * (m[k] / ((std::sqrt(v[k]) * correction2 + epsilon) * correction));
            }
        };
        update(start, middle, s[5]);
        update(middle, end, s[6]);
    }
}

}  // extern "C"
