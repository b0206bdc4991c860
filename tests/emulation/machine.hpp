// Runs CUDA kernels on the host: a block at a time, each of its threads a fiber, all in the thread that launches.
//
// A fiber runs until a barrier or an exchange between the lanes of its warp. Which warp goes on first changes from
// launch to launch, so that what only the order of warps makes right goes wrong sooner or later. One launch at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>

namespace ranvier::emulation {

inline constexpr int lanes = 32;

/// Of the fiber that runs.
extern uint3 thread_index, block_index;
extern dim3 block_size, grid_size;
[[nodiscard]] int lane();

/// Runs every block to its end. What a kernel may not do ends the program with a line on stderr: a barrier that some
/// threads do not reach, lanes of a warp that exchange values while others wait elsewhere, a launch that one of the
/// GPUs does not take which code is made for. `address` is the kernel's, by which allow_shared_memory() knows it.
void launch(const char* name, const void* address, dim3 grid, dim3 block, std::size_t shared_bytes,
            const std::function<void()>& kernel);

/// While one lives, launches run the last blocks only, and those of every y and z: what comes last in arrays that no
/// test could go through. One at a time.
class OnlyLastBlocks {
 public:
  explicit OnlyLastBlocks(unsigned across);  ///< of gridDim.x
  ~OnlyLastBlocks();
  OnlyLastBlocks(const OnlyLastBlocks&) = delete;
  OnlyLastBlocks& operator=(const OnlyLastBlocks&) = delete;
};

/// From now on the kernel may be launched with so many bytes of shared memory: without it 48 KiB. False if that is more
/// than a GPU of architecture 80 has for a block.
[[nodiscard]] bool allow_shared_memory(const void* address, std::size_t bytes);

/// __syncthreads().
void synchronize_block();

/// The block's memory of the size that its launch asked for; 0xff at first.
[[nodiscard]] std::byte* block_memory();

/// What lanes say to each other at a time: at most this many bytes.
inline constexpr std::size_t max_exchanged_bytes = 64;
using Exchanged = std::array<const void*, lanes>;  ///< [lane]
/// All lanes call it; the values stay until the next but one exchange of the warp.
[[nodiscard]] const Exchanged& exchange(const void* value, std::size_t bytes);

/// The value of another lane.
template <typename T>
[[nodiscard]] T shuffle(T value, int from) {
  static_assert(sizeof(T) <= max_exchanged_bytes);
  T found;
  std::memcpy(&found, exchange(&value, sizeof value)[static_cast<std::size_t>(from % lanes)], sizeof found);
  return found;
}

/// A copy to the block's memory that is over at once, or not before its fiber waits for it (cp.async). Null: zeros.
void copy_later(void* to, const void* from, std::size_t bytes);
void end_copy_group();
/// Until all but the last `groups` groups of this fiber are there.
void wait_for_copies(int groups);

}  // namespace ranvier::emulation
