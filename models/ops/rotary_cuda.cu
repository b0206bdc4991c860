// A thread rotates packs of pairs: one position and one offset in the half of a head, for several heads.
#include "models/ops/rotary.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/base/arithmetic.hpp"

namespace ranvier::models {
namespace {

constexpr int threads = 256;
constexpr int heads_per_thread = 4;  // heads that share sines and cosines

struct SineCosine {
  float sine, cosine;
};

/// Sine and cosine of an angle of up to 2^31 radians. The quadrant is computed in double (polynomials of Cephes).
__device__ SineCosine sine_cosine(float angle) {
  const double quarters = static_cast<double>(angle) * 0.63661977236758134;
  const double nearest = rint(quarters);
  const auto quadrant = static_cast<unsigned>(static_cast<long long>(nearest));
  const float x = static_cast<float>(quarters - nearest) * 1.57079632679f;
  const float square = x * x;
  float s = -1.9515295891e-4f;
  s = s * square + 8.3321608736e-3f;
  s = s * square - 1.6666654611e-1f;
  s = s * square * x + x;
  float c = 2.443315711809948e-5f;
  c = c * square - 1.388731625493765e-3f;
  c = c * square + 4.166664568298827e-2f;
  c = c * square * square - 0.5f * square + 1.0f;
  const float sine = (quadrant & 1u) != 0 ? c : s, cosine = (quadrant & 1u) != 0 ? s : c;
  return {(quadrant & 2u) != 0 ? -sine : sine, ((quadrant + 1u) & 2u) != 0 ? -cosine : cosine};
}

template <int width, typename T>
__global__ void __launch_bounds__(threads)
    rotary_kernel(T* x, RotaryShape shape, const __grid_constant__ RotaryFrequencies frequencies, float sign,
                  const std::int32_t* positions, int first_position, std::size_t count) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= count) return;
  const int half = frequencies.channels / 2, packs = half / width;
  const int shares = runtime::ceil_divide(shape.heads, heads_per_thread);
  const auto c = static_cast<int>(at % static_cast<std::size_t>(packs)) * width;
  const auto first_head =
      static_cast<int>(at / static_cast<std::size_t>(packs) % static_cast<std::size_t>(shares)) * heads_per_thread;
  const std::size_t row = at / static_cast<std::size_t>(packs) / static_cast<std::size_t>(shares);
  const int position = positions != nullptr
                           ? positions[row]
                           : first_position + static_cast<int>(row % static_cast<std::size_t>(shape.positions));
  float sine[width], cosine[width];
#pragma unroll
  for (int e = 0; e < width; ++e) {
    const SineCosine turned = sine_cosine(__fmul_rn(static_cast<float>(position), frequencies.of_pair[c + e]));
    sine[e] = sign * turned.sine;
    cosine[e] = turned.cosine;
  }
  const int end = min(first_head + heads_per_thread, shape.heads);
  for (int head = first_head; head < end; ++head) {
    T* const low = x + row * shape.row_channels + static_cast<std::size_t>(head) * frequencies.channels + c;
    float a[width], b[width], turned_a[width], turned_b[width];
    cuda::load(a, low);
    cuda::load(b, low + half);
#pragma unroll
    for (int e = 0; e < width; ++e) {
      turned_a[e] = a[e] * cosine[e] - b[e] * sine[e];
      turned_b[e] = b[e] * cosine[e] + a[e] * sine[e];
    }
    cuda::store(low, turned_a);
    cuda::store(low + half, turned_b);
  }
}

}  // namespace

void rotary_cuda(runtime::StreamView stream, const RotaryShape& shape, runtime::DType dtype, void* x,
                 const RotaryFrequencies& frequencies, Rotation rotation, const std::int32_t* positions,
                 int first_position) {
  const std::size_t rows = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
  const auto half = static_cast<std::size_t>(frequencies.channels) / 2;
  const std::size_t shares = cuda::ceil_divide(static_cast<std::size_t>(shape.heads), heads_per_thread);
  cuda::with_type(dtype, [&]<typename T>(T) {
    const bool wide = half % cuda::full_width<T> == 0 && shape.row_channels % cuda::full_width<T> == 0;
    cuda::with_width<T>(wide && cuda::aligned(x), [&](auto width) {
      const std::size_t count = rows * shares * (half / width());
      cuda::launch_each<threads>("rotary", stream, count, rotary_kernel<width(), T>, x, shape, frequencies,
                                 rotation == Rotation::forward ? 1.0f : -1.0f, positions, first_position, count);
    });
  });
}

}  // namespace ranvier::models
