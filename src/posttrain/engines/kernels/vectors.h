// Sixteen float32 lanes in the compiler's own vector type, bfloat16 as its 16 bits, and the exponential function.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t LANES = 16;

using bf16 = uint16_t;
using f32v = float __attribute__((vector_size(64)));
using u32v = uint32_t __attribute__((vector_size(64)));
using i32v = int32_t __attribute__((vector_size(64)));
using u16v = uint16_t __attribute__((vector_size(32)));

inline f32v load(const float* from) { f32v x; std::memcpy(&x, from, sizeof x); return x; }
inline void store(float* to, f32v x) { std::memcpy(to, &x, sizeof x); }

inline f32v load(const bf16* from) {
    u16v raw;
    std::memcpy(&raw, from, sizeof raw);
    return (f32v)(__builtin_convertvector(raw, u32v) << 16);
}

inline u16v rounded(f32v x) {  // to nearest, ties to even; a NaN stays one
    const u32v bits = (u32v)x;
    const u32v nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return __builtin_convertvector(x == x ? nearest : (u32v{} + 0x7fc0), u16v);
}

inline void store(bf16* to, f32v x) { const u16v raw = rounded(x); std::memcpy(to, &raw, sizeof raw); }

inline bf16 rounded(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return x == x ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0;
}

inline f32v broadcast(float x) { return x - f32v{}; }  // x + 0 would have to be computed: it turns -0 into 0

// exp, relative error about 1e-7; 0 below -87, exp(88) above 88, a NaN stays one. Cephes' reduction and polynomial.
inline f32v exponential(f32v given) {
    const i32v zero = given < -87.0f;
    f32v x = zero ? broadcast(-87.0f) : given;
    x = x > 88.0f ? broadcast(88.0f) : x;
    const f32v shifted = x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: the sum's low bits are the rounded power
    const i32v power = (i32v)shifted - 0x4b400000;
    const f32v n = shifted - 12582912.0f;
    const f32v r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    f32v p = broadcast(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const f32v result = (f32v)((i32v)p + (power << 23));
    return given != given ? given : zero ? f32v{} : result;
}

inline float sum(f32v x) {
    float total = 0;
    for (int64_t i = 0; i < LANES; ++i) total += x[i];
    return total;
}

inline float largest(f32v x) {
    float best = x[0];
    for (int64_t i = 1; i < LANES; ++i) best = std::max(best, x[i]);
    return best;
}

}  // namespace
