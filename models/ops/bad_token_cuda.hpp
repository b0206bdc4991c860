// How a kernel that finds a token outside its table says so: it leaves the token in a place that the host can read,
// and computes something harmless; a callback of the stream then throws, which fails the device. Only .cu and
// _cuda.cpp files include this.
//
//   auto* place = cuda::bad_token_place(TokenUse::input);
//   launch(..., kernel, ..., place);                  // *place = cuda::bad_token(index, token)
//   cuda::expect_no_bad_token(stream, TokenUse::input, [=](std::int32_t token, std::size_t index) { fail(...); });
#pragma once

#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace ranvier::models::cuda {

enum class TokenUse {
  input,
  target,
  targets,  ///< of a sample: too many; their number stands in for the token
};

/// Pinned, one per use and process, never freed. The loop thread makes them at the first call.
[[nodiscard]] volatile unsigned long long* bad_token_place(TokenUse use);

/// What a kernel stores there: of several bad tokens any one stays. Never 0.
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline unsigned long long
    bad_token(std::size_t index, std::int32_t token) {
  return static_cast<unsigned long long>(index + 1) << 32 | static_cast<std::uint32_t>(token);
}

/// Calls `fail` with the token and its index, once everything queued so far is done, if a kernel left one.
void expect_no_bad_token(runtime::StreamView stream, TokenUse use,
                         std::function<void(std::int32_t token, std::size_t index)> fail);

}  // namespace ranvier::models::cuda
