// State of incremental decoding with a key-value cache. It comes with a LayerCall whose rows are consecutive new tokens
// of one text. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct Decoding {
  int past = 0;  ///< tokens already in the cache; unknown if past_place is given
  /// Device address of `past`, read when the work runs, so that the same work serves consecutive positions
  /// (runtime::Stream::repeat).
  const std::int32_t* past_place = nullptr;
  int capacity = 1;                              ///< T: capacity of the cache in positions
  std::byte *keys = nullptr, *values = nullptr;  ///< [K, T, D] each: the layer's cache
};

}  // namespace ranvier::models
