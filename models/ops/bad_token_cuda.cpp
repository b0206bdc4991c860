#include "models/ops/bad_token_cuda.hpp"

#include "runtime/device/cuda_native.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::models::cuda {

volatile unsigned long long* bad_token_place(TokenUse use) {
  constexpr std::size_t uses = 3;
  static auto* const places = [] {
    void* memory = nullptr;
    runtime::cuda::check(
        cudaHostAlloc(&memory, uses * sizeof(unsigned long long), cudaHostAllocPortable | cudaHostAllocMapped),
        "cudaHostAlloc");
    auto* words = static_cast<unsigned long long*>(memory);
    std::fill(words, words + uses, 0ull);
    return words;
  }();
  return places + static_cast<std::size_t>(use);
}

void expect_no_bad_token(runtime::StreamView stream, TokenUse use,
                         std::function<void(std::int32_t token, std::size_t index)> fail) {
  stream.call_back([place = bad_token_place(use), fail = std::move(fail)] {
    const unsigned long long found = *place;
    if (found == 0) return;
    *place = 0;
    fail(static_cast<std::int32_t>(static_cast<std::uint32_t>(found)), static_cast<std::size_t>(found >> 32) - 1);
  });
}

}  // namespace ranvier::models::cuda
