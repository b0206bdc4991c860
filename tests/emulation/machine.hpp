// Runs CUDA kernels on the host: a block at a time, each of its threads a fiber, all in the thread that launches.
//
// A fiber runs until a barrier or an exchange between the lanes of its warp. Which warp runs next changes from launch
// to launch, so that code that depends on the order of warps fails sooner or later. One launch at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>

namespace ranvier::emulation {

inline constexpr int lanes = 32;

/// Indices and sizes of the running fiber.
extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;
[[nodiscard]] int lane();

/// Runs every block to its end. Ends the program with a line on stderr if some threads miss a barrier, if lanes
/// exchange values while others wait elsewhere, or if a supported GPU refuses the launch. `address` identifies the
/// kernel for allow_shared_memory().
void launch(const char* name, const void* address, dim3 grid, dim3 block, std::size_t shared_bytes,
            const std::function<void()>& kernel);

/// While an object exists, launches run only the last blocks of x, for every y and z. This tests the ends of arrays
/// that are too large to compute completely. One at a time.
class OnlyLastBlocks {
 public:
  explicit OnlyLastBlocks(unsigned across);  ///< number of blocks along gridDim.x
  ~OnlyLastBlocks();
  OnlyLastBlocks(const OnlyLastBlocks&) = delete;
  OnlyLastBlocks& operator=(const OnlyLastBlocks&) = delete;
};

/// Allows launches of the kernel with this many bytes of shared memory instead of 48 KiB. Returns false if that exceeds
/// the limit of a block on architecture 80.
[[nodiscard]] bool allow_shared_memory(const void* address, std::size_t bytes);

/// __syncthreads().
void synchronize_block();

/// The block's memory of the size that its launch requested; filled with 0xff at first.
[[nodiscard]] std::byte* block_memory();

/// Maximum bytes per lane in one exchange.
inline constexpr std::size_t max_exchanged_bytes = 64;
using Exchanged = std::array<const void*, lanes>;  ///< [lane]
/// All lanes call it; the values are valid until the exchange after the next one of the warp.
[[nodiscard]] const Exchanged& exchange(const void* value, std::size_t bytes);

/// The value of another lane.
template <typename T>
[[nodiscard]] T shuffle(T value, int from) {
  static_assert(sizeof(T) <= max_exchanged_bytes);
  T found;
  std::memcpy(&found, exchange(&value, sizeof value)[static_cast<std::size_t>(from % lanes)], sizeof found);
  return found;
}

/// A copy to the block's memory that completes at once, or not before its fiber waits for it (cp.async). Null: zeros.
void copy_later(void* to, const void* from, std::size_t bytes);
void end_copy_group();
/// Waits until all but the last `groups` groups of this fiber are complete.
void wait_for_copies(int groups);

}  // namespace ranvier::emulation
