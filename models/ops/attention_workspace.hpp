// Blocks and per-thread memory of the CPU's attention: 64 queries times 64 keys. Scores are stored transposed, [key,
// query], with queries along the vectors. So maxima, sums and masks of the softmax are plain vector operations, keys
// and values are read in place, and any D works.
//
// Letters: T positions, D channels of a head, i queries, j keys.
#pragma once

#include "models/ops/attention.hpp"
#include "models/ops/dropout_mask.hpp"
#include "models/ops/memory_layout.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cstddef>
#include <cstdint>

namespace ranvier::models::blockwise {

using runtime::round_up;
using simd::Floats;
using simd::lanes;

inline constexpr std::size_t block = 64;  // queries, keys
inline constexpr std::size_t step = 16;   // columns are padded to a multiple of it
static_assert(step % lanes == 0 && block == DropoutMask::block);

/// Running maximum before the first score. It is finite, also as a power of two, so that masked scores weigh nothing.
inline constexpr float lowest = -FLT_MAX / 2;

struct Sizes {
  explicit Sizes(const AttentionShape& shape)
      : T(static_cast<std::size_t>(shape.positions)),
        H(static_cast<std::size_t>(shape.heads)),
        K(static_cast<std::size_t>(shape.stored_key_heads())),
        D(static_cast<std::size_t>(shape.channels)),
        C(H * D),
        row(shape.row_channels()),
        padded_D(round_up(D, step)),
        across_stride(round_up(T, block) + 32) {}

  std::size_t T, H, K, D, C;
  std::size_t row;  ///< elements of a row of qkv
  std::size_t padded_D;
  std::size_t across_stride;  ///< bf16 elements between channels, if transposed; padded to avoid cache conflicts
};

/// Prefetches rows of a head while others are computed. They are too far apart for the hardware prefetcher.
class Prefetcher {
 public:
  Prefetcher(std::size_t rows, std::size_t row_bytes, std::size_t parts)
      : rows_(rows), row_bytes_(row_bytes), parts_(parts) {}

  /// Adds `rows` rows starting at `first`, `row_stride` bytes apart.
  void add(const void* first, std::size_t row_stride, bool writes = false) {
    regions_[count_++] = {first, row_stride, writes};
  }

  /// Prefetches the next of `parts` equal parts of all rows.
  void fetch() {
    const std::size_t begin = rows_ * part_ / parts_, end = rows_ * (part_ + 1) / parts_;
    ++part_;
    for (std::size_t r = 0; r < count_; ++r)
      for (std::size_t row = begin; row < end; ++row)
        for (std::size_t at = 0; at < row_bytes_; at += 64) {
          const auto* place = static_cast<const std::byte*>(regions_[r].first) + row * regions_[r].row_stride + at;
          if (regions_[r].writes) {
            __builtin_prefetch(place, 1, 2);
          } else {
            __builtin_prefetch(place, 0, 2);
          }
        }
  }

 private:
  struct Region {
    const void* first;
    std::size_t row_stride;
    bool writes;
  };

  std::size_t rows_, row_bytes_, parts_, part_ = 0, count_ = 0;
  Region regions_[8] = {};
};

/// A thread's scratch arrays. A unit has 32 bits: a float or a pair of bf16.
class Workspace {
 public:
  /// `begin`: address of the arrays, or null to count their bytes.
  Workspace(std::byte* begin, const Sizes& sizes) : begin_(begin), s_(sizes) {}

 private:
  template <typename T>
  T* take(std::size_t n) {
    const std::size_t offset = layout_.add(n, sizeof(T));
    return begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + offset);
  }

  std::byte* begin_;
  MemoryLayout layout_;
  const Sizes& s_;
  const std::size_t pairs_ = std::max(s_.T, s_.across_stride / 2);

 public:
  float* scores = take<float>(block * block);               ///< [key, query] scores, then their exponentials
  float* weights = take<float>(block * block);              ///< [key, query] factors of the values, in units
  float* gradients = take<float>(block * block);            ///< [key, query] gradients of the scores, in units
  float* query_columns = take<float>(s_.D * block);         ///< [D units, query]
  float* gradient_columns = take<float>(s_.D * block);      ///< [D units, query] transposed d_out
  float* query_rows = take<float>(block * s_.padded_D);     ///< [query units, padded D]
  float* gradient_rows = take<float>(block * s_.padded_D);  ///< [query units, padded D] d_out
  float* sums = take<float>(s_.D * block);                  ///< [D, query] out or d_q
  float* rows = take<float>(block * s_.D);                  ///< [query, D] the same, transposed
  float* maxima = take<float>(block);  ///< [query] maximum of the scores so far; backward: logsumexp to base 2
  float* block_maxima = take<float>(block);          ///< [query]
  float* totals = take<float>(block);                ///< [query] sum of the exponentials; backward: Σ d_out · out
  float* factors = take<float>(block);               ///< [query]
  std::uint64_t* kept = take<std::uint64_t>(block);  ///< [key] a bit per query
  // Not written if VisibleKeys::plain():
  std::int32_t* first_keys = take<std::int32_t>(block);  ///< [query] first visible key
  std::int32_t* end_keys = take<std::int32_t>(block);    ///< [query] end of the visible keys
  float* q = take<float>(s_.T * s_.D);                   ///< [T, D] copies in float
  float* k = take<float>(pairs_ * s_.D);         ///< [T, D] copy in float, [T units, D], or bf16 [D, across_stride]
  float* v = take<float>(pairs_ * s_.D);         ///< same layouts as k
  float* d_out = take<float>(s_.T * s_.D);       ///< [T, D] copy in float
  float* d_k = take<float>(s_.T * s_.padded_D);  ///< [T, padded D]
  float* d_v = take<float>(s_.T * s_.padded_D);  ///< [T, padded D]
  std::size_t bytes = runtime::round_up(layout_.bytes(), 4096);
};

/// Calls work(item, following, workspace) for every item, on any thread; the result does not depend on which.
/// `following` is the thread's next item, or at least `items` if there is none.
template <typename Units, typename Work>
void for_each_item(runtime::ComputePool& pool, std::size_t items, const Sizes& sizes, std::byte* workspace,
                   const Work& work) {
  std::atomic<std::size_t> next = 0;
  pool.run([&](int thread, int) {
    [[maybe_unused]] const typename Units::Registers registers;
    const std::size_t bytes = Workspace(nullptr, sizes).bytes;
    const Workspace own(workspace + static_cast<std::size_t>(thread) * bytes, sizes);
    for (std::size_t item = next++, following; item < items; item = following) {
      following = next++;
      work(item, following, own);
    }
  });
}

}  // namespace ranvier::models::blockwise
