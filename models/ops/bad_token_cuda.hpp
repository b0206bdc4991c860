// Reports a token outside its table from a kernel. The kernel stores the token in pinned memory and computes a harmless
// value; a callback on the stream then throws, which fails the device. Only .cu and _cuda.cpp files include this.
//
//   auto* place = cuda::bad_token_place(TokenUse::input);
//   launch(..., kernel, ..., place);                  // *place = cuda::bad_token(index, token)
//   cuda::expect_no_bad_token(stream, TokenUse::input, [=](std::int32_t token, std::size_t index) { fail(...); });
#pragma once

#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace ranvier::models::cuda {

enum class TokenUse {
  input,
  target,
  targets,  ///< too many targets in a sample; their number replaces the token
};

/// Pinned memory, one per use and process, never freed. The loop thread allocates it at the first call.
[[nodiscard]] volatile unsigned long long* bad_token_place(TokenUse use);

/// Value that a kernel stores, never 0. If several tokens are bad, any one is reported.
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline unsigned long long
    bad_token(std::size_t index, std::int32_t token) {
  return static_cast<unsigned long long>(index + 1) << 32 | static_cast<std::uint32_t>(token);
}

/// Calls `fail` with the token and its index if a kernel stored one, after everything queued so far.
void expect_no_bad_token(runtime::StreamView stream, TokenUse use,
                         std::function<void(std::int32_t token, std::size_t index)> fail);

}  // namespace ranvier::models::cuda
