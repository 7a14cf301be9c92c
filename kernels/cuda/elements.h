// Elements of f32 or bf16 as kernels read and write them: `n` neighbours at a time, as f32.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "runtime/core/dtype.h"
#include "runtime/core/host_device.h"

namespace sixfold::kernels::cuda {

/// Neighbours that one thread takes at a time where addresses allow it: 16 bytes of f32, 8 of bf16.
inline constexpr int kPack = 4;
/// The same of kernels that read more than they compute: 16 bytes of any type.
template <typename T>
inline constexpr int kWidePack = 16 / sizeof(T);

template <typename T, int n>
struct alignas(sizeof(T) * n) Pack {
  T element[n];
};

/// values = p[0 .. n); p is aligned to n elements.
template <int n, typename T>
SIXFOLD_DEVICE void load(const T* p, float (&values)[n]) {
  const Pack<T, n> pack = *reinterpret_cast<const Pack<T, n>*>(p);
  SIXFOLD_UNROLL
  for (int i = 0; i < n; ++i) values[i] = static_cast<float>(pack.element[i]);
}

/// p[0 .. n) = values, rounded; p is aligned to n elements.
template <int n, typename T>
SIXFOLD_DEVICE void store(T* p, const float (&values)[n]) {
  Pack<T, n> pack;
  SIXFOLD_UNROLL
  for (int i = 0; i < n; ++i) pack.element[i] = static_cast<T>(values[i]);
  *reinterpret_cast<Pack<T, n>*>(p) = pack;
}

/// Whether rows of `count` elements from these addresses on can be taken `pack` at a time, 16 bytes or less.
template <int pack = kPack>
bool takes_packs(int64_t count, std::initializer_list<const void*> addresses) {
  bool aligned = count % pack == 0;
  for (const void* address : addresses) aligned &= reinterpret_cast<uintptr_t>(address) % 16 == 0;
  return aligned;
}

/// f<n>() with n = kWidePack<T> where rows of `count` elements of T from these addresses on can be taken n at a time,
/// else with n = 1.
template <typename T, typename F>
void with_wide_packs(int64_t count, std::initializer_list<const void*> addresses, const F& f) {
  if (takes_packs<kWidePack<T>>(count, addresses)) {
    f.template operator()<kWidePack<T>>();
  } else {
    f.template operator()<1>();
  }
}

}  // namespace sixfold::kernels::cuda
