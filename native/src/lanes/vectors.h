// SPDX-License-Identifier: Apache-2.0
// Vectors of doubles, one number of each simulation: Lanes<8> for AVX-512, Lanes<4> for AVX2, Lanes<2>
// for SSE2 and NEON, Lanes<1> everywhere. Comparisons give masks; Select chooses by them. Included
// within a namespace of its own for each target (lanes_of.h), after the standard library's headers.
#define LANES_INLINE inline __attribute__((always_inline))

template <int W>
struct Lanes;
template <int W>
struct Mask;

template <>
struct Mask<1> {
  bool k;
};
template <>
struct Lanes<1> {
  static constexpr int kWidth = 1;
  using Bits = Mask<1>;
  double v;
  Lanes() = default;
  LANES_INLINE Lanes(double x) : v(x) {}
};
using L1 = Lanes<1>;
using M1 = Mask<1>;
LANES_INLINE L1 operator+(L1 a, L1 b) { return a.v + b.v; }
LANES_INLINE L1 operator-(L1 a, L1 b) { return a.v - b.v; }
LANES_INLINE L1 operator*(L1 a, L1 b) { return a.v * b.v; }
LANES_INLINE L1 operator/(L1 a, L1 b) { return a.v / b.v; }
LANES_INLINE L1 operator-(L1 a) { return -a.v; }
LANES_INLINE L1 Sqrt(L1 a) { return __builtin_sqrt(a.v); }
LANES_INLINE L1 Abs(L1 a) { return __builtin_fabs(a.v); }
LANES_INLINE L1 Max(L1 a, L1 b) { return a.v > b.v ? a.v : b.v; }
LANES_INLINE L1 Min(L1 a, L1 b) { return a.v < b.v ? a.v : b.v; }
LANES_INLINE L1 Round(L1 a) { return __builtin_rint(a.v); }
LANES_INLINE L1 Floor(L1 a) { return __builtin_floor(a.v); }
LANES_INLINE M1 operator<(L1 a, L1 b) { return {a.v < b.v}; }
LANES_INLINE M1 operator<=(L1 a, L1 b) { return {a.v <= b.v}; }
LANES_INLINE M1 operator==(L1 a, L1 b) { return {a.v == b.v}; }
LANES_INLINE M1 operator&(M1 a, M1 b) { return {a.k && b.k}; }
LANES_INLINE M1 operator|(M1 a, M1 b) { return {a.k || b.k}; }
LANES_INLINE M1 operator~(M1 a) { return {!a.k}; }
LANES_INLINE L1 Select(M1 m, L1 a, L1 b) { return m.k ? a : b; }
LANES_INLINE unsigned ToBits(M1 m) { return m.k; }
template <int W>
Mask<W> FromBits(unsigned bits);
template <>
LANES_INLINE M1 FromBits<1>(unsigned bits) {
  return {(bits & 1) != 0};
}

#if LANES_WIDEST == 8
template <>
struct Mask<8> {
  __mmask8 k;
};
template <>
struct Lanes<8> {
  static constexpr int kWidth = 8;
  using Bits = Mask<8>;
  __m512d v;
  Lanes() = default;
  LANES_INLINE Lanes(double x) : v(_mm512_set1_pd(x)) {}
  LANES_INLINE Lanes(__m512d x) : v(x) {}
};
using L8 = Lanes<8>;
using M8 = Mask<8>;
LANES_INLINE L8 operator+(L8 a, L8 b) { return _mm512_add_pd(a.v, b.v); }
LANES_INLINE L8 operator-(L8 a, L8 b) { return _mm512_sub_pd(a.v, b.v); }
LANES_INLINE L8 operator*(L8 a, L8 b) { return _mm512_mul_pd(a.v, b.v); }
LANES_INLINE L8 operator/(L8 a, L8 b) { return _mm512_div_pd(a.v, b.v); }
LANES_INLINE L8 operator-(L8 a) {
  return _mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(a.v), _mm512_set1_epi64(1LL << 63)));
}
LANES_INLINE L8 Sqrt(L8 a) { return _mm512_sqrt_pd(a.v); }
LANES_INLINE L8 Abs(L8 a) { return _mm512_abs_pd(a.v); }
LANES_INLINE L8 Max(L8 a, L8 b) { return _mm512_max_pd(a.v, b.v); }
LANES_INLINE L8 Min(L8 a, L8 b) { return _mm512_min_pd(a.v, b.v); }
LANES_INLINE L8 Round(L8 a) {
  return _mm512_roundscale_pd(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
LANES_INLINE L8 Floor(L8 a) {
  return _mm512_roundscale_pd(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
LANES_INLINE M8 operator<(L8 a, L8 b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ)}; }
LANES_INLINE M8 operator<=(L8 a, L8 b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_LE_OQ)}; }
LANES_INLINE M8 operator==(L8 a, L8 b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_EQ_OQ)}; }
LANES_INLINE M8 operator&(M8 a, M8 b) { return {static_cast<__mmask8>(a.k & b.k)}; }
LANES_INLINE M8 operator|(M8 a, M8 b) { return {static_cast<__mmask8>(a.k | b.k)}; }
LANES_INLINE M8 operator~(M8 a) { return {static_cast<__mmask8>(~a.k)}; }
LANES_INLINE L8 Select(M8 m, L8 a, L8 b) { return _mm512_mask_blend_pd(m.k, b.v, a.v); }
LANES_INLINE unsigned ToBits(M8 m) { return m.k; }
template <>
LANES_INLINE M8 FromBits<8>(unsigned bits) {
  return {static_cast<__mmask8>(bits)};
}
#endif

#if LANES_WIDEST == 4
template <>
struct Mask<4> {
  __m256d k;
};
template <>
struct Lanes<4> {
  static constexpr int kWidth = 4;
  using Bits = Mask<4>;
  __m256d v;
  Lanes() = default;
  LANES_INLINE Lanes(double x) : v(_mm256_set1_pd(x)) {}
  LANES_INLINE Lanes(__m256d x) : v(x) {}
};
using L4 = Lanes<4>;
using M4 = Mask<4>;
LANES_INLINE L4 operator+(L4 a, L4 b) { return _mm256_add_pd(a.v, b.v); }
LANES_INLINE L4 operator-(L4 a, L4 b) { return _mm256_sub_pd(a.v, b.v); }
LANES_INLINE L4 operator*(L4 a, L4 b) { return _mm256_mul_pd(a.v, b.v); }
LANES_INLINE L4 operator/(L4 a, L4 b) { return _mm256_div_pd(a.v, b.v); }
LANES_INLINE L4 operator-(L4 a) { return _mm256_xor_pd(a.v, _mm256_set1_pd(-0.0)); }
LANES_INLINE L4 Sqrt(L4 a) { return _mm256_sqrt_pd(a.v); }
LANES_INLINE L4 Abs(L4 a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a.v); }
LANES_INLINE L4 Max(L4 a, L4 b) { return _mm256_max_pd(a.v, b.v); }
LANES_INLINE L4 Min(L4 a, L4 b) { return _mm256_min_pd(a.v, b.v); }
LANES_INLINE L4 Round(L4 a) {
  return _mm256_round_pd(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
LANES_INLINE L4 Floor(L4 a) {
  return _mm256_round_pd(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
LANES_INLINE M4 operator<(L4 a, L4 b) { return {_mm256_cmp_pd(a.v, b.v, _CMP_LT_OQ)}; }
LANES_INLINE M4 operator<=(L4 a, L4 b) { return {_mm256_cmp_pd(a.v, b.v, _CMP_LE_OQ)}; }
LANES_INLINE M4 operator==(L4 a, L4 b) { return {_mm256_cmp_pd(a.v, b.v, _CMP_EQ_OQ)}; }
LANES_INLINE M4 operator&(M4 a, M4 b) { return {_mm256_and_pd(a.k, b.k)}; }
LANES_INLINE M4 operator|(M4 a, M4 b) { return {_mm256_or_pd(a.k, b.k)}; }
LANES_INLINE M4 operator~(M4 a) {
  return {_mm256_xor_pd(a.k, _mm256_castsi256_pd(_mm256_set1_epi64x(-1)))};
}
LANES_INLINE L4 Select(M4 m, L4 a, L4 b) { return _mm256_blendv_pd(b.v, a.v, m.k); }
LANES_INLINE unsigned ToBits(M4 m) { return static_cast<unsigned>(_mm256_movemask_pd(m.k)); }
template <>
LANES_INLINE M4 FromBits<4>(unsigned bits) {
  return {_mm256_castsi256_pd(
      _mm256_set_epi64x(-static_cast<long long>(bits >> 3 & 1), -static_cast<long long>(bits >> 2 & 1),
                        -static_cast<long long>(bits >> 1 & 1), -static_cast<long long>(bits & 1)))};
}
#endif

#if LANES_WIDEST == 2
template <>
struct Mask<2> {
  bool k[2];
};
// Plain arrays, which compilers turn into SSE2 or NEON.
template <>
struct alignas(16) Lanes<2> {
  static constexpr int kWidth = 2;
  using Bits = Mask<2>;
  double v[2];
  Lanes() = default;
  LANES_INLINE Lanes(double x) : v{x, x} {}
  LANES_INLINE Lanes(double x, double y) : v{x, y} {}
};
using L2 = Lanes<2>;
using M2 = Mask<2>;
LANES_INLINE L2 operator+(L2 a, L2 b) { return {a.v[0] + b.v[0], a.v[1] + b.v[1]}; }
LANES_INLINE L2 operator-(L2 a, L2 b) { return {a.v[0] - b.v[0], a.v[1] - b.v[1]}; }
LANES_INLINE L2 operator*(L2 a, L2 b) { return {a.v[0] * b.v[0], a.v[1] * b.v[1]}; }
LANES_INLINE L2 operator/(L2 a, L2 b) { return {a.v[0] / b.v[0], a.v[1] / b.v[1]}; }
LANES_INLINE L2 operator-(L2 a) { return {-a.v[0], -a.v[1]}; }
LANES_INLINE L2 Sqrt(L2 a) { return {__builtin_sqrt(a.v[0]), __builtin_sqrt(a.v[1])}; }
LANES_INLINE L2 Abs(L2 a) { return {__builtin_fabs(a.v[0]), __builtin_fabs(a.v[1])}; }
LANES_INLINE L2 Max(L2 a, L2 b) {
  return {a.v[0] > b.v[0] ? a.v[0] : b.v[0], a.v[1] > b.v[1] ? a.v[1] : b.v[1]};
}
LANES_INLINE L2 Min(L2 a, L2 b) {
  return {a.v[0] < b.v[0] ? a.v[0] : b.v[0], a.v[1] < b.v[1] ? a.v[1] : b.v[1]};
}
LANES_INLINE L2 Round(L2 a) { return {__builtin_rint(a.v[0]), __builtin_rint(a.v[1])}; }
LANES_INLINE L2 Floor(L2 a) { return {__builtin_floor(a.v[0]), __builtin_floor(a.v[1])}; }
LANES_INLINE M2 operator<(L2 a, L2 b) { return {{a.v[0] < b.v[0], a.v[1] < b.v[1]}}; }
LANES_INLINE M2 operator<=(L2 a, L2 b) { return {{a.v[0] <= b.v[0], a.v[1] <= b.v[1]}}; }
LANES_INLINE M2 operator==(L2 a, L2 b) { return {{a.v[0] == b.v[0], a.v[1] == b.v[1]}}; }
LANES_INLINE M2 operator&(M2 a, M2 b) { return {{a.k[0] && b.k[0], a.k[1] && b.k[1]}}; }
LANES_INLINE M2 operator|(M2 a, M2 b) { return {{a.k[0] || b.k[0], a.k[1] || b.k[1]}}; }
LANES_INLINE M2 operator~(M2 a) { return {{!a.k[0], !a.k[1]}}; }
LANES_INLINE L2 Select(M2 m, L2 a, L2 b) {
  return {m.k[0] ? a.v[0] : b.v[0], m.k[1] ? a.v[1] : b.v[1]};
}
LANES_INLINE unsigned ToBits(M2 m) { return unsigned{m.k[0]} | unsigned{m.k[1]} << 1; }
template <>
LANES_INLINE M2 FromBits<2>(unsigned bits) {
  return {{(bits & 1) != 0, (bits & 2) != 0}};
}
#endif

template <int W>
inline constexpr unsigned kAllBits = (1U << W) - 1;
template <int W>
LANES_INLINE bool Any(Mask<W> m) {
  return (ToBits(m) & kAllBits<W>) != 0;
}
template <int W>
LANES_INLINE bool All(Mask<W> m) {
  return (ToBits(m) & kAllBits<W>) == kAllBits<W>;
}

// Operators for a vector and a plain number, which stands for all lanes.
#define LANES_MIXED(Result, op)                                        \
  template <int W>                                                     \
  LANES_INLINE Result operator op(Lanes<W> a, double b) {              \
    return a op Lanes<W>(b);                                           \
  }                                                                    \
  template <int W>                                                     \
  LANES_INLINE Result operator op(double a, Lanes<W> b) {              \
    return Lanes<W>(a) op b;                                           \
  }
LANES_MIXED(Lanes<W>, +)
LANES_MIXED(Lanes<W>, -)
LANES_MIXED(Lanes<W>, *)
LANES_MIXED(Lanes<W>, /)
LANES_MIXED(Mask<W>, <)
LANES_MIXED(Mask<W>, <=)
LANES_MIXED(Mask<W>, ==)
#undef LANES_MIXED

template <int W, typename T>
LANES_INLINE Mask<W> operator>(Lanes<W> a, T b) {
  return b < a;
}
template <int W, typename T>
LANES_INLINE Mask<W> operator>=(Lanes<W> a, T b) {
  return b <= a;
}
template <int W, typename T>
LANES_INLINE Lanes<W>& operator+=(Lanes<W>& a, T b) {
  return a = a + b;
}
template <int W, typename T>
LANES_INLINE Lanes<W>& operator-=(Lanes<W>& a, T b) {
  return a = a - b;
}
template <int W, typename T>
LANES_INLINE Lanes<W>& operator*=(Lanes<W>& a, T b) {
  return a = a * b;
}
// The value where the mask is set, else zero, whatever the value is.
template <int W>
LANES_INLINE Lanes<W> Keep(Mask<W> m, Lanes<W> a) {
  return Select(m, a, Lanes<W>(0.0));
}
// Adds to a sum where the mask is set.
template <int W>
LANES_INLINE Lanes<W> AddWhere(Mask<W> m, Lanes<W> sum, Lanes<W> a) {
#if LANES_WIDEST == 8
  if constexpr (W == 8) return _mm512_mask_add_pd(sum.v, m.k, sum.v, a.v);
#endif
  return sum + Keep(m, a);
}
template <int W, typename C>
LANES_INLINE Lanes<W> Clip(Lanes<W> a, C low, C high) {
  return Min(Max(a, Lanes<W>(low)), Lanes<W>(high));
}

// Access to one lane through memory. GCC's vector types may alias doubles.
template <int W>
LANES_INLINE double* Numbers(Lanes<W>* array) {
  return reinterpret_cast<double*>(array);
}
template <int W>
LANES_INLINE const double* Numbers(const Lanes<W>* array) {
  return reinterpret_cast<const double*>(array);
}

// A lane's value of a model's number.
template <int W>
LANES_INLINE double InLane(const Lanes<W>& x, int lane) {
  return Numbers(&x)[lane];
}
LANES_INLINE double InLane(double x, int) { return x; }
// The value of the first lane, without going through memory.
template <int W>
LANES_INLINE double First(Lanes<W> x) {
  if constexpr (W == 1) {
    return x.v;
  } else {
    return x.v[0];
  }
}

// Sines for |x| at most kLargestAngle: pi/2 in three parts, then fdlibm's polynomials on [-pi/4,
// pi/4].
inline constexpr double kLargestAngle = 1e5;
template <int W>
LANES_INLINE void SinCos(Lanes<W> x, Lanes<W>& sine, Lanes<W>& cosine) {
  using D = Lanes<W>;
  const D n = Round(x * 0.63661977236758134308);
  const D r = ((x - n * 1.5707963267341256e+00) - n * 6.0771005063039660e-11) - n * 2.0222662487959506e-21;
  const D z = r * r;
  D p = 1.58969099521155010221e-10 * z - 2.50507602534068634195e-08;
  p = p * z + 2.75573137070700676789e-06;
  p = p * z - 1.98412698298579493134e-04;
  p = p * z + 8.33333333332248946124e-03;
  p = p * z - 1.66666666666666324348e-01;
  const D near_sine = r + r * z * p;
  D q = -1.13596475577881948265e-11 * z + 2.08757232129817482790e-09;
  q = q * z - 2.75573143513906633035e-07;
  q = q * z + 2.48015872894767294178e-05;
  q = q * z - 1.38888888888741095749e-03;
  q = q * z + 4.16666666666666019037e-02;
  const D near_cosine = (1.0 - z * 0.5) + z * z * q;
  const D quarter = n - 4.0 * Floor(n * 0.25);
  const auto odd = (quarter == 1.0) | (quarter == 3.0);
  const D s = Select(odd, near_cosine, near_sine);
  const D c = Select(odd, near_sine, near_cosine);
  sine = Select(quarter >= 2.0, -s, s);
  cosine = Select((quarter == 1.0) | (quarter == 2.0), -c, c);
}
