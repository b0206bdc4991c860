// What parts are told of a text that is read piece by piece with a key-value cache, beside a LayerCall whose rows are
// the tokens that are read now, one after another. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct Decoding {
  int past = 0;  ///< tokens that were read before; not known where past_place is given
  /// In the device's memory: `past` when the work runs, so that the same work serves one position after another
  /// (runtime::Stream::repeat).
  const std::int32_t* past_place = nullptr;
  int capacity = 1;                              ///< T: positions that the cache has room for
  std::byte *keys = nullptr, *values = nullptr;  ///< [K, T, D] each: the layer's cache
};

}  // namespace ranvier::models
