// Text compressed in the formats of gzip and zstd.
#pragma once

#include "tests/test.hpp"

#include <zlib.h>
#include <zstd.h>

namespace ranvier::tests {

inline std::string gzipped(std::string_view text) {
  z_stream state{};
  REQUIRE(deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&state, Z_FINISH) == Z_STREAM_END);
  packed.resize(state.total_out);
  deflateEnd(&state);
  return packed;
}

/// With a checksum, in the format of the program zstd.
inline std::string zstd_packed(std::string_view text) {
  ZSTD_CCtx* const state = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t bytes = ZSTD_compress2(state, packed.data(), packed.size(), text.data(), text.size());
  ZSTD_freeCCtx(state);
  REQUIRE(ZSTD_isError(bytes) == 0);
  packed.resize(bytes);
  return packed;
}

}  // namespace ranvier::tests
