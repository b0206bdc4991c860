// b is packed part by part (of K and N) in register layout. Then squares of 32 × 32 sums are computed from unpacked
// rows of a. Between parts of K, sums are stored in float.
#include "models/ops/matmul_cpu.hpp"

#include "models/ops/amx.hpp"
#include "models/ops/scratch.hpp"
#include "models/ops/transpose.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if RANVIER_AMX
#include <sys/syscall.h>
#include <unistd.h>

bool ranvier::models::amx::available() {
  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA); see Linux' Documentation/arch/x86/xstate.rst
  static const bool allowed = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return allowed;
}
#endif

namespace ranvier::models {

#if RANVIER_AMX
namespace {

using runtime::round_up;
using runtime::Share;

constexpr std::size_t edge = 32;                    // rows and columns of a square of sums: four registers
constexpr std::size_t deepest = 512, widest = 256;  // part of b that is packed at a time: 256 KiB
constexpr std::size_t tallest = 1024;               // rows with stored sums: 1 MiB
constexpr std::size_t register_numbers = amx::rows * amx::pairs * 2;

/// bf16 matrix, `stride` numbers per row.
struct Numbers {
  const std::uint16_t* data;
  std::size_t stride;

  [[nodiscard]] const std::uint16_t* at(std::size_t row, std::size_t column) const {
    return data + row * stride + column;
  }
};

__mmask32 first_lanes(std::size_t count) { return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1; }

/// Packs two registers of b: k rows and n columns (up to 32 each), filled up with zeros.
void pack_rows(std::uint16_t* to, const Numbers& b, std::size_t k, std::size_t n) {
  alignas(64) static constexpr auto order = [] {
    struct {
      std::uint16_t low[32], high[32];
    } lanes{};
    for (std::uint16_t i = 0; i < 16; ++i) {
      lanes.low[2 * i] = i, lanes.low[2 * i + 1] = i + 32;
      lanes.high[2 * i] = i + 16, lanes.high[2 * i + 1] = i + 48;
    }
    return lanes;
  }();
  const __m512i low = _mm512_loadu_si512(order.low), high = _mm512_loadu_si512(order.high);
  const __mmask32 columns = first_lanes(n);
  for (std::size_t pair = 0; pair < amx::pairs; ++pair) {
    const std::size_t row = 2 * pair;
    const __m512i first = _mm512_maskz_loadu_epi16(row < k ? columns : 0, b.at(std::min(row, k - 1), 0));
    const __m512i second = _mm512_maskz_loadu_epi16(row + 1 < k ? columns : 0, b.at(std::min(row + 1, k - 1), 0));
    _mm512_storeu_si512(to + pair * 32, _mm512_permutex2var_epi16(first, low, second));
    _mm512_storeu_si512(to + register_numbers + pair * 32, _mm512_permutex2var_epi16(first, high, second));
  }
}

/// The same for b stored as [N, K].
void pack_columns(std::uint16_t* to, const Numbers& b, std::size_t k, std::size_t n) {
  const __mmask32 depth = first_lanes(k);
  for (std::size_t half = 0; half < 2; ++half) {
    detail::Block<std::uint32_t> block;
    for (std::size_t lane = 0; lane < amx::pairs; ++lane) {
      const std::size_t column = half * amx::pairs + lane;
      const __m512i numbers = _mm512_maskz_loadu_epi16(column < n ? depth : 0, b.at(std::min(column, n - 1), 0));
      std::memcpy(&block.rows[lane], &numbers, sizeof(numbers));
    }
    detail::transpose(block);
    std::memcpy(to + half * register_numbers, block.rows, sizeof(block.rows));
  }
}

/// sums[32, 32] = or += a · b over 32 · `blocks` numbers of K. Calls the last argument with the block's number while
/// the registers multiply.
template <typename Beside>
void square(float* sums, std::size_t sums_stride, bool adds, const std::uint16_t* a, std::size_t a_stride,
            const std::uint16_t* b, std::size_t blocks, const Beside& beside) {
  const std::size_t sums_row = sums_stride * sizeof(float), a_row = a_stride * sizeof(*a);
  float* const below = sums + amx::rows * sums_stride;
  amx::fence();
  if (adds) {
    _tile_loadd(0, sums, sums_row);
    _tile_loadd(1, sums + amx::pairs, sums_row);
    _tile_loadd(2, below, sums_row);
    _tile_loadd(3, below + amx::pairs, sums_row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::size_t block = 0; block < blocks; ++block) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, a_row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + register_numbers, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + amx::rows * a_stride, a_row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    beside(block);
    a += edge;
    b += 2 * register_numbers;
  }
  _tile_stored(0, sums, sums_row);
  _tile_stored(1, sums + amx::pairs, sums_row);
  _tile_stored(2, below, sums_row);
  _tile_stored(3, below + amx::pairs, sums_row);
  amx::fence();
}

struct Memory {
  Scratch b, sums, edge;
};

/// A square of complete sums, and its address in c.
template <typename C>
struct Complete {
  const float* sums = nullptr;
  std::size_t sums_stride = 0, rows = 0, columns = 0;
  C* c = nullptr;
  std::size_t c_stride = 0;
  const runtime::Bf16* bias = nullptr;
  bool accumulate = false;

  /// Stores rows `begin` … end-1.
  void put(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < std::min(end, rows); ++i)
      for (std::size_t j = 0; j < columns; j += simd::lanes) {
        const std::size_t count = std::min(columns - j, simd::lanes);
        simd::Floats sum = simd::load(sums + i * sums_stride + j);
        if (bias != nullptr) sum += simd::load(bias + j, count);
        C* const place = c + i * c_stride + j;
        simd::store(place, accumulate ? simd::load(place, count) + sum : sum, count);
      }
  }
};

/// Prefetches the next rows of a: 32 rows are too many for the hardware prefetcher.
class Prefetcher {
 public:
  /// `lines` of 32 numbers per row, spread over `calls` calls; nothing if `next` is null.
  Prefetcher(const Numbers& next, std::size_t lines, std::size_t calls)
      : next_(next), places_(next.data == nullptr ? 0 : lines * edge), calls_(calls) {}

  void fetch() {
    ++call_;
    for (const std::size_t end = places_ * call_ / calls_; place_ < end; ++place_)
      __builtin_prefetch(next_.at(place_ % edge, place_ / edge * edge));
  }

 private:
  Numbers next_;
  std::size_t places_, calls_, call_ = 0, place_ = 0;
};

/// Computes rows and columns of c, up to `tallest` and `widest`.
template <typename C>
void multiply(const MatmulShape& shape, const MatmulArrays& arrays, const Numbers& a, const Numbers& b,
              std::size_t c_stride, Share rows, Share columns, Memory& memory) {
  const std::size_t m = rows.end - rows.begin, n = columns.end - columns.begin;
  const std::size_t panels = round_up(n, edge) / edge, sums_stride = panels * edge;
  const std::size_t depth = shape.k;
  const bool waits = depth > deepest;  // whether sums are stored between parts of K
  float* const sums = waits ? memory.sums.get<float>(round_up(m, edge) * sums_stride) : nullptr;
  auto* const packed = memory.b.get<std::uint16_t>(deepest * sums_stride);
  constexpr std::size_t copy_stride = deepest + edge;  // so that rows do not share cache sets
  auto* const copy = memory.edge.get<std::uint16_t>(edge * copy_stride);
  alignas(64) float squares[2][edge * edge];  // one is computed while the other is stored in c
  auto* const c = static_cast<C*>(arrays.c) + rows.begin * c_stride + columns.begin;
  const auto* const bias =
      arrays.bias == nullptr ? nullptr : static_cast<const runtime::Bf16*>(arrays.bias) + columns.begin;

  for (std::size_t begin = 0; begin < depth; begin += deepest) {
    const std::size_t k = std::min(deepest, depth - begin), blocks = round_up(k, edge) / edge;
    const bool last = begin + k == depth;
    const auto pack = [&](std::size_t block, std::size_t panel) {
      const std::size_t k0 = block * edge, n0 = panel * edge;
      auto* const to = packed + (panel * blocks + block) * 2 * register_numbers;
      const std::size_t depth_left = std::min(edge, k - k0), columns_left = std::min(edge, n - n0);
      if (shape.transpose_b) {
        pack_columns(to, {b.at(columns.begin + n0, begin + k0), b.stride}, depth_left, columns_left);
      } else {
        pack_rows(to, {b.at(begin + k0, columns.begin + n0), b.stride}, depth_left, columns_left);
      }
    };
    // In the order in which rows of b are stored.
    for (std::size_t outer = 0; outer < (shape.transpose_b ? panels : blocks); ++outer)
      for (std::size_t inner = 0; inner < (shape.transpose_b ? blocks : panels); ++inner)
        shape.transpose_b ? pack(inner, outer) : pack(outer, inner);

    Complete<C> complete;
    std::size_t number = 0;
    for (std::size_t row = 0; row < m; row += edge) {
      const std::size_t height = std::min(edge, m - row);
      Numbers left{a.at(rows.begin + row, begin), a.stride};
      Prefetcher ahead({row + 2 * edge <= m ? left.at(edge, 0) : nullptr, a.stride}, k / edge, panels * blocks);
      if (height < edge || k % edge != 0) {  // copies, so that nothing beyond a is read
        for (std::size_t i = 0; i < edge; ++i) {
          std::fill_n(copy + i * copy_stride, blocks * edge, std::uint16_t{0});
          if (i < height) std::memcpy(copy + i * copy_stride, left.at(i, 0), k * sizeof(*copy));
        }
        left = {copy, copy_stride};
      }
      for (std::size_t panel = 0; panel < panels; ++panel) {
        const std::size_t column = panel * edge;
        float* const place = waits ? sums + row * sums_stride + column : squares[number++ % 2];
        const std::size_t stride = waits ? sums_stride : edge;
        const auto* const right = packed + panel * blocks * 2 * register_numbers;
        square(place, stride, begin > 0, left.data, left.stride, right, blocks, [&](std::size_t block) {
          complete.put(edge * block / blocks, edge * (block + 1) / blocks);
          ahead.fetch();
        });
        if (!last) continue;
        complete = {.sums = place,
                    .sums_stride = stride,
                    .rows = height,
                    .columns = std::min(edge, n - column),
                    .c = c + row * c_stride + column,
                    .c_stride = c_stride,
                    .bias = bias == nullptr ? nullptr : bias + column,
                    .accumulate = arrays.accumulate};
      }
    }
    complete.put(0, edge);
  }
}

}  // namespace

bool amx_multiplies(const MatmulShape& shape, runtime::DType dtype) {
  return dtype == runtime::DType::bf16 && !shape.transpose_a && shape.k != 0 && amx::available();
}

void amx_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays) {
  const Numbers a{static_cast<const std::uint16_t*>(arrays.a), shape.a_row()};
  const Numbers b{static_cast<const std::uint16_t*>(arrays.b), shape.b_row()};
  pool.run([&](int thread, int threads) {
    static thread_local Memory memory;
    const amx::Registers registers;
    Share rows{0, shape.m}, columns{0, shape.n};
    // Split by rows, like the operations before and after, whose results are then in the thread's own cache. For few
    // rows, split by columns, so that not every thread packs all of b.
    const bool by_columns = shape.m < 4 * edge * static_cast<std::size_t>(threads) && shape.n > shape.m;
    (by_columns ? columns : rows) = runtime::share_of(by_columns ? shape.n : shape.m, thread, threads, edge);
    for (std::size_t row = rows.begin; row < rows.end; row += tallest)
      for (std::size_t column = columns.begin; column < columns.end; column += widest)
        runtime::with_float_type(arrays.c_dtype, [&]<typename T>(T) {
          multiply<T>(shape, arrays, a, b, shape.c_row(), {row, std::min(rows.end, row + tallest)},
                      {column, std::min(columns.end, column + widest)}, memory);
        });
  });
}

}  // namespace ranvier::models

#else

bool amx_multiplies(const MatmulShape& /*shape*/, runtime::DType /*dtype*/) { return false; }

void amx_matmul_cpu(runtime::ComputePool& /*pool*/, const MatmulShape& /*shape*/, const MatmulArrays& /*arrays*/) {
  fail(ErrorCode::internal, "this build has no products in matrix registers");
}

}  // namespace ranvier::models
#endif
