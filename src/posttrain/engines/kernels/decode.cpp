// The decoder's operations for bfloat16 on x86: one function each, plain pointers in, nothing allocated that stays.
//
// Matrix products go through torch's brgemm (oneDNN's microkernels: AMX or AVX-512 BF16) on weights packed by `pack`;
// everything else is written with the compiler's vector types and compiles for any instruction set. Threads are
// OpenMP's: torch's own runtime is the one that is loaded. Results do not depend on the number of threads.

#include <ATen/native/CPUBlas.h>

#include <memory>

#include "vectors.h"

namespace {

constexpr int64_t TILE = 64;  // columns of a packed block
constexpr int64_t ROWS = 64;  // rows of a product computed at once, at most
constexpr int64_t PAGE = 32;  // tokens of a page, as in pages.py
constexpr int64_t GROUP = 8;  // rows of one prompt that read its pages together
constexpr int64_t HEADS = 4;  // queries whose sums stay in registers together

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// C[m, TILE] = x[m, k] times block `block` of the packed weight.
inline void product(const bf16* x, const bf16* packed, int64_t m, int64_t k, int64_t block, float* c) {
    at::native::cpublas::brgemm(m, TILE, k, k, TILE, TILE, false, (const at::BFloat16*)x,
                                (const at::BFloat16*)(packed + block * TILE * k), c, true);
}

// Calls done(first row, rows, block, C) for every tile of x[rows, k] times the packed weight.
template <typename Done>
void for_tiles(const bf16* x, const bf16* packed, int64_t rows, int64_t k, int64_t blocks, int threads, Done done) {
    const int64_t row_blocks = ceil_div(rows, ROWS);
    const int64_t size = ceil_div(rows, row_blocks);
#pragma omp parallel num_threads(threads)
    {
        alignas(64) float c[ROWS * TILE];
#pragma omp for collapse(2) schedule(static)
        for (int64_t block = 0; block < blocks; ++block)
            for (int64_t part = 0; part < row_blocks; ++part) {
                const int64_t first = part * size, m = std::min(size, rows - first);
                if (m <= 0) continue;
                product(x + first * k, packed, m, k, block, c);
                done(first, m, block, c);
            }
        at::native::cpublas::brgemm_release(true);
    }
}

// scores[q * stride + t] = query q . key t for one page of dimension-major keys. Pages lie anywhere, so that the
// processor cannot guess the next one: `ahead` is fetched meanwhile, a cache line for each dimension.
template <int N, bool AHEAD>
inline void score_page(const float* q, int64_t dim, const bf16* keys, float* scores, int64_t stride,
                       const bf16* ahead_keys, const bf16* ahead_values) {
    f32v low[N] = {}, high[N] = {};
    for (int64_t d = 0; d < dim; ++d) {
        if constexpr (AHEAD) {
            __builtin_prefetch(ahead_keys + d * PAGE);
            __builtin_prefetch(ahead_values + d * PAGE);
        }
        const f32v first = load(keys + d * PAGE), second = load(keys + d * PAGE + LANES);
        for (int n = 0; n < N; ++n) {
            low[n] += q[n * dim + d] * first;
            high[n] += q[n * dim + d] * second;
        }
    }
    for (int n = 0; n < N; ++n) {
        store(scores + n * stride, low[n]);
        store(scores + n * stride + LANES, high[n]);
    }
}

// out[q, :] += sum over t < tokens of weights[q * stride + t] * values[t, :].
template <int N>
inline void mix_page(const float* weights, int64_t stride, const bf16* values, int64_t tokens, float* out, int64_t dim) {
    for (int64_t d = 0; d < dim; d += LANES) {
        f32v total[N];
        for (int n = 0; n < N; ++n) total[n] = load(out + n * dim + d);
        for (int64_t t = 0; t < tokens; ++t) {
            const f32v value = load(values + t * dim + d);
            for (int n = 0; n < N; ++n) total[n] += weights[n * stride + t] * value;
        }
        for (int n = 0; n < N; ++n) store(out + n * dim + d, total[n]);
    }
}

// Runs f with a compile-time number of queries: HEADS at a time, then what is left.
template <typename F>
inline void by_heads(int64_t count, F f) {
    int64_t done = 0;
    for (; count - done >= HEADS; done += HEADS) f.template operator()<HEADS>(done);
    switch (count - done) {
        case 3: f.template operator()<3>(done); break;
        case 2: f.template operator()<2>(done); break;
        case 1: f.template operator()<1>(done); break;
    }
}

// Turns `length` scores into weights that are not yet divided by their sum, which is returned.
inline float soften(float* scores, int64_t length) {
    const int64_t padded = ceil_div(length, LANES) * LANES;
    for (int64_t t = length; t < padded; ++t) scores[t] = -INFINITY;
    f32v high = load(scores);
    for (int64_t t = LANES; t < padded; t += LANES) {
        const f32v x = load(scores + t);
        high = x > high ? x : high;
    }
    const float top = largest(high);
    f32v total = {};
    for (int64_t t = 0; t < padded; t += LANES) {
        const f32v w = exponential(load(scores + t) - top);
        store(scores + t, w);
        total += w;
    }
    return sum(total);
}

struct Pages {
    const bf16 *keys, *values;  // [KVH, num_pages, dim, PAGE] and [KVH, num_pages, PAGE, dim]
    int64_t num_pages, dim;
    const bf16* key(int64_t head, int64_t page) const { return keys + (head * num_pages + page) * dim * PAGE; }
    const bf16* value(int64_t head, int64_t page) const { return values + (head * num_pages + page) * dim * PAGE; }
};

}  // namespace

extern "C" {

// 0 where this machine computes bfloat16 products, else 1.
int probe() {
    try {
        bf16 x[32], w[32 * TILE];
        alignas(64) float c[TILE];
        std::fill(x, x + 32, 0x3f80);
        std::fill(w, w + 32 * TILE, 0x3f80);
        product(x, w, 1, 32, 0, c);
        at::native::cpublas::brgemm_release(true);
        return c[0] == 32.0f && c[TILE - 1] == 32.0f ? 0 : 1;
    } catch (const std::exception&) {
        return 1;
    }
}

// weight [n, k] -> [ceil(n / TILE), k / 2, TILE, 2], zeros beyond n. Row r goes to column `r % TILE` of block r / TILE.
void pack(const bf16* weight, bf16* packed, int64_t n, int64_t k, int threads) {
    const int64_t blocks = ceil_div(n, TILE);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < blocks; ++block)
        for (int64_t column = 0; column < TILE; ++column) {
            const int64_t row = block * TILE + column;
            uint32_t* to = (uint32_t*)(packed + block * TILE * k) + column;
            for (int64_t pair = 0; pair < k / 2; ++pair) {
                uint32_t both = 0;
                if (row < n) std::memcpy(&both, weight + row * k + 2 * pair, sizeof both);
                to[pair * TILE] = both;
            }
        }
}

void unpack(const bf16* packed, bf16* weight, int64_t n, int64_t k, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < n; ++row) {
        const uint32_t* from = (const uint32_t*)(packed + row / TILE * TILE * k) + row % TILE;
        for (int64_t pair = 0; pair < k / 2; ++pair) std::memcpy(weight + row * k + 2 * pair, from + pair * TILE, 4);
    }
}

void norm(const float* x, const float* weight, float eps, bf16* out, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        const float* from = x + row * size;
        f32v squares = {};
        for (int64_t i = 0; i < size; i += LANES) squares += load(from + i) * load(from + i);
        const float scale = 1.0f / std::sqrt(sum(squares) / size + eps);
        for (int64_t i = 0; i < size; i += LANES) store(out + row * size + i, load(from + i) * scale * load(weight + i));
    }
}

// out [rows, n] = x . W^T, or += it.
void project(const bf16* x, const bf16* packed, float* out, int64_t rows, int64_t k, int64_t n, int add, int threads) {
    for_tiles(x, packed, rows, k, ceil_div(n, TILE), threads, [=](int64_t first, int64_t m, int64_t block, float* c) {
        const int64_t columns = std::min(TILE, n - block * TILE);
        for (int64_t row = 0; row < m; ++row) {
            float* to = out + (first + row) * n + block * TILE;
            const float* from = c + row * TILE;
            if (add)
                for (int64_t i = 0; i < columns; ++i) to[i] += from[i];
            else
                std::memcpy(to, from, columns * sizeof(float));
        }
    });
}

// out [rows, n] = silu(gate) * up; a block has TILE / 2 columns of gate, then the same of up.
void gated(const bf16* x, const bf16* packed, bf16* out, int64_t rows, int64_t k, int64_t n, int threads) {
    constexpr int64_t HALF = TILE / 2;
    for_tiles(x, packed, rows, k, n / HALF, threads, [=](int64_t first, int64_t m, int64_t block, float* c) {
        for (int64_t row = 0; row < m; ++row)
            for (int64_t i = 0; i < HALF; i += LANES) {
                const f32v gate = load(c + row * TILE + i), up = load(c + row * TILE + HALF + i);
                store(out + (first + row) * n + block * HALF + i, gate / (1.0f + exponential(-gate)) * up);
            }
    });
}

// Rotate queries and keys of qkv [rows, (heads + 2 * kv_heads) * dim] in place; keys and values go to their slots too.
void rotate_and_store(float* qkv, const float* cosines, const float* sines, bf16* keys, bf16* values,
                      const int64_t* slots, int64_t rows, int64_t heads, int64_t kv_heads, int64_t dim,
                      int64_t num_pages, int threads) {
    const int64_t half = dim / 2;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        float* x = qkv + row * (heads + 2 * kv_heads) * dim;
        const float *cosine = cosines + row * half, *sine = sines + row * half;
        for (int64_t head = 0; head < heads + kv_heads; ++head)
            for (int64_t d = 0; d < half; ++d) {
                float &a = x[head * dim + d], &b = x[head * dim + half + d];
                const float first = a * cosine[d] - b * sine[d];
                b = b * cosine[d] + a * sine[d];
                a = first;
            }
        const int64_t page = slots[row] / PAGE, offset = slots[row] % PAGE;
        for (int64_t head = 0; head < kv_heads; ++head) {
            const int64_t place = (head * num_pages + page) * dim * PAGE;
            const float *key = x + (heads + head) * dim, *value = key + kv_heads * dim;
            for (int64_t d = 0; d < dim; ++d) keys[place + d * PAGE + offset] = rounded(key[d]);
            for (int64_t d = 0; d < dim; ++d) values[place + offset * dim + d] = rounded(value[d]);
        }
    }
}

// One step's attention. Rows of one prompt are handled GROUP at a time, so that its pages stay in cache between them.
void attend(const float* qkv, bf16* out, const bf16* keys, const bf16* values, const int32_t* first_rows,
            const int32_t* prompt_pages, const int32_t* prompt_lengths, const int32_t* own_pages,
            const int32_t* own_lengths, int64_t num_prompts, int64_t max_prompt_pages, int64_t max_own_pages,
            int64_t heads, int64_t kv_heads, int64_t dim, int64_t num_pages, int threads) {
    const Pages pages{keys, values, num_pages, dim};
    const int64_t siblings = heads / kv_heads, width = (heads + 2 * kv_heads) * dim;
    const int64_t stride = (max_prompt_pages + max_own_pages) * PAGE;  // a query's scores: the prompt's, then its own
    const float scale = 1.0f / std::sqrt((float)dim);
    int64_t num_parts = 0;
    for (int64_t j = 0; j < num_prompts; ++j) num_parts += ceil_div(first_rows[j + 1] - first_rows[j], GROUP);
    std::unique_ptr<int64_t[]> parts(new int64_t[2 * num_parts]);  // (prompt, first row)
    for (int64_t j = 0, part = 0; j < num_prompts; ++j)
        for (int64_t row = first_rows[j]; row < first_rows[j + 1]; row += GROUP, ++part) {
            parts[2 * part] = j;
            parts[2 * part + 1] = row;
        }
#pragma omp parallel num_threads(threads)
    {
        std::unique_ptr<float[]> scores(new float[GROUP * siblings * stride]);
        std::unique_ptr<float[]> q(new float[GROUP * siblings * dim]), mixed(new float[GROUP * siblings * dim]);
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t part = 0; part < num_parts; ++part)
            for (int64_t head = 0; head < kv_heads; ++head) {
                const int64_t j = parts[2 * part], first = parts[2 * part + 1];
                const int64_t rows = std::min(GROUP, first_rows[j + 1] - first), count = rows * siblings;
                const int64_t length = prompt_lengths[j], prompt_size = ceil_div(length, PAGE);
                const int32_t* shared = prompt_pages + j * max_prompt_pages;
                for (int64_t row = 0; row < rows; ++row)
                    for (int64_t i = 0; i < siblings * dim; ++i)
                        q[row * siblings * dim + i] = qkv[(first + row) * width + head * siblings * dim + i] * scale;
                for (int64_t page = 0; page < prompt_size; ++page) {
                    const bf16 *key = pages.key(head, shared[page]), *value = pages.value(head, shared[page]);
                    const bf16* next = pages.key(head, shared[std::min(page + 1, prompt_size - 1)]);
                    by_heads(count, [&]<int N>(int64_t n) {
                        float* to = &scores[n * stride + page * PAGE];
                        if (n == 0) score_page<N, true>(&q[n * dim], dim, key, to, stride, next, value);
                        else score_page<N, false>(&q[n * dim], dim, key, to, stride, next, value);
                    });
                }
                std::fill(&mixed[0], &mixed[count * dim], 0.0f);
                float totals[GROUP * 64];
                for (int64_t row = 0; row < rows; ++row) {
                    const int32_t* own = own_pages + (first + row) * max_own_pages;
                    const int64_t own_length = own_lengths[first + row];
                    // A row's own scores follow the prompt's without a gap: the last prompt page may have been partial.
                    float* start = &scores[row * siblings * stride];
                    for (int64_t page = 0; page * PAGE < own_length; ++page) {
                        const bool more = (page + 1) * PAGE < own_length;
                        const int32_t next = more ? own[page + 1] : own[row + 1 < rows ? max_own_pages : page];
                        by_heads(siblings, [&]<int N>(int64_t n) {
                            score_page<N, true>(&q[(row * siblings + n) * dim], dim, pages.key(head, own[page]),
                                                start + n * stride + length + page * PAGE, stride,
                                                pages.key(head, next), pages.value(head, own[page]));
                        });
                    }
                    for (int64_t n = 0; n < siblings; ++n)
                        totals[row * siblings + n] = soften(start + n * stride, length + own_length);
                    for (int64_t page = 0; page * PAGE < own_length; ++page)
                        by_heads(siblings, [&]<int N>(int64_t n) {
                            mix_page<N>(start + n * stride + length + page * PAGE, stride, pages.value(head, own[page]),
                                        std::min(PAGE, own_length - page * PAGE), &mixed[(row * siblings + n) * dim], dim);
                        });
                }
                for (int64_t page = 0; page < prompt_size; ++page)
                    by_heads(count, [&]<int N>(int64_t n) {
                        mix_page<N>(&scores[n * stride + page * PAGE], stride, pages.value(head, shared[page]),
                                    std::min(PAGE, length - page * PAGE), &mixed[n * dim], dim);
                    });
                for (int64_t row = 0; row < rows; ++row)
                    for (int64_t n = 0; n < siblings; ++n) {
                        const int64_t query = row * siblings + n;
                        bf16* to = out + ((first + row) * heads + head * siblings + n) * dim;
                        const float share = 1.0f / totals[query];
                        for (int64_t d = 0; d < dim; d += LANES) store(to + d, load(&mixed[query * dim + d]) * share);
                    }
            }
    }
}

}  // extern "C"
