// Short transforms in the registers of one thread: X[k] = sum over j of x[j] exp(-2 pi i j k / N), or exp(+...), N a
// power of two up to 32, not normalised. Radix 2, decimated in time, unrolled: the factor of each butterfly is a
// compile-time constant, and costs nothing where it is 1 or i, and half where it lies on a diagonal.
#pragma once
#include "common.cuh"

template <class Real>
struct alignas(2 * sizeof(Real)) Complex {
  Real re, im;
};

template <class Real>
__device__ __forceinline__ Complex<Real> operator+(Complex<Real> a, Complex<Real> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class Real>
__device__ __forceinline__ Complex<Real> operator-(Complex<Real> a, Complex<Real> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class Real>
__device__ __forceinline__ Complex<Real> operator*(Complex<Real> a, Complex<Real> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// cos(2 pi k / 32), rounded once from the literal: exact to the last bit in either precision.
__device__ __forceinline__ constexpr double cosine32(int k) {
  const int folded = k % 32 > 16 ? 32 - k % 32 : k % 32, eighth = folded > 8 ? 16 - folded : folded;
  const double value = eighth == 0   ? 1.0
                       : eighth == 1 ? 0.98078528040323044913
                       : eighth == 2 ? 0.92387953251128675613
                       : eighth == 3 ? 0.83146961230254523708
                       : eighth == 4 ? 0.70710678118654752440
                       : eighth == 5 ? 0.55557023301960222474
                       : eighth == 6 ? 0.38268343236508977173
                       : eighth == 7 ? 0.19509032201612826785
                                     : 0.0;
  return folded > 8 ? -value : value;
}

// x times exp(-2 pi i k / N), k < N / 2, conjugated where INVERSE.
template <int N, bool INVERSE, class Real>
__device__ __forceinline__ Complex<Real> rotated(Complex<Real> x, int k) {
  const int turn = k * (32 / N);
  const Real c = Real(cosine32(turn)), s = Real(INVERSE ? cosine32(turn + 24) : -cosine32(turn + 24));
  if (turn == 0) return x;
  if (turn == 8) return INVERSE ? Complex<Real>{-x.im, x.re} : Complex<Real>{x.im, -x.re};
  if (turn == 4) return INVERSE ? Complex<Real>{(x.re - x.im) * c, (x.re + x.im) * c}
                                : Complex<Real>{(x.re + x.im) * c, (x.im - x.re) * c};
  if (turn == 12) return INVERSE ? Complex<Real>{(x.re + x.im) * c, (x.im - x.re) * c}
                                 : Complex<Real>{(x.re - x.im) * c, (x.re + x.im) * c};
  return x * Complex<Real>{c, s};
}

template <int N, bool INVERSE, class Real>
__device__ __forceinline__ void transform(Complex<Real> (&x)[N]) {
  if constexpr (N > 1) {
    Complex<Real> even[N / 2], odd[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) even[i] = x[2 * i], odd[i] = x[2 * i + 1];
    transform<N / 2, INVERSE>(even);
    transform<N / 2, INVERSE>(odd);
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      const Complex<Real> turned = rotated<N, INVERSE>(odd[k], k);
      x[k] = even[k] + turned;
      x[k + N / 2] = even[k] - turned;
    }
  }
}
