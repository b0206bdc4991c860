// Which of the library's algorithms a GPU takes for each matrix product. Left alone, products take the library's
// first answer. Measured, they take the fastest of its first answers, and operations that are a product and more
// (fused_matmul.hpp) do both at once where that is faster. A sum's order is its algorithm's: so one rank measures,
// and all ranks take what it chose, before the first step.
//
//   std::vector<std::byte> chosen;
//   if (rank == 0) chosen = measure_products(stream, [&] { /* everything once */ });
//   /* rank 0's to all */
//   adopt_products(stream, chosen);
//
// Declared in every build, defined where with_cuda is true (runtime/cuda_build.hpp). Loop thread only.
#pragma once

#include "runtime/stream.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace ranvier::models {

/// Runs `work`, which queues products on `stream` of a GPU: one whose shape, types and alignment are new is tried
/// by several algorithms, several times, so results mean nothing. Products of fp32 are not measured: their bits are
/// the same in every run. Blocks. What this process now does on that GPU.
[[nodiscard]] std::vector<std::byte> measure_products(runtime::StreamView stream,
                                                      const std::function<void()>& work);

/// From now on products on the stream's GPU are done as measure_products() of another rank says. What its cuBLAS
/// cannot do here, or a cuBLAS of another version chose, is left out: those take the library's first answer. Throws
/// ErrorCode::internal for bytes that are no choices.
void adopt_products(runtime::StreamView stream, std::span<const std::byte> choices);

}  // namespace ranvier::models
