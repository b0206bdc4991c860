// NCCL's calls without NCCL's types: what the rest of the room asks it for. The real one opens the library when it
// is made, so that a job which runs on no GPU does not load it; tests put ranks of one process in its place.
//
// Communicators are non-blocking: connect() and a group's end may leave work to NCCL's own threads, and until
// status() no longer says in_progress nothing else may be asked of that communicator but abort(). Loop thread only.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ranvier::runtime {
class Device;
}

namespace ranvier::collectives {

class NcclLibrary {
 public:
  /// NCCL's own numbers; others are passed on as they are.
  enum Result : int { success = 0, cuda_error = 1, system_error = 2, remote_error = 6, in_progress = 7 };

  /// What the members of a communicator find each other by; one of them makes it, all have the same.
  struct Id {
    std::array<std::byte, 128> bytes{};
  };

  using Handle = void*;  ///< a communicator
  using DType = runtime::DType;

  virtual ~NcclLibrary() = default;

  [[nodiscard]] virtual int version() const = 0;  ///< 22809 is 2.28.9
  [[nodiscard]] virtual Result make_id(Id& id) = 0;

  /// Whether kernels of several communicators begin on the GPU in the order of the calls, and then may overlap.
  [[nodiscard]] virtual bool keeps_launch_order() const = 0;

  /// Begins to make a communicator for the GPU of `stream`.
  [[nodiscard]] virtual Result connect(Handle& handle, const Id& id, int ranks, int rank,
                                       runtime::StreamView stream) = 0;
  /// How the last call went on, or what has gone wrong since.
  [[nodiscard]] virtual Result status(Handle handle) = 0;
  /// Waits for what peers still need, a moment at most, and frees it.
  virtual void close(Handle handle) noexcept = 0;
  /// Ends what is running on the GPU, whatever the peers do, and frees it.
  virtual void abort(Handle handle) noexcept = 0;

  /// For people; with what NCCL says of that communicator, which may be null.
  [[nodiscard]] virtual std::string describe(Result result, Handle handle) const = 0;

  // Calls between these go as one launch, in the stream's order.
  [[nodiscard]] virtual Result group_start() = 0;
  [[nodiscard]] virtual Result group_end() = 0;

  // `count` is what one rank contributes to a gather and keeps of a scatter. All of them work in place where the
  // pointers say so.
  [[nodiscard]] virtual Result all_gather(const void* from, void* to, std::size_t count, DType dtype, Handle handle,
                                          runtime::StreamView stream) = 0;
  [[nodiscard]] virtual Result reduce_scatter(const void* from, void* to, std::size_t count, DType dtype,
                                              Handle handle, runtime::StreamView stream) = 0;
  [[nodiscard]] virtual Result all_reduce(const void* from, void* to, std::size_t count, DType dtype, Handle handle,
                                          runtime::StreamView stream) = 0;
  [[nodiscard]] virtual Result broadcast(const void* from, void* to, std::size_t count, DType dtype, int root,
                                         Handle handle, runtime::StreamView stream) = 0;
  [[nodiscard]] virtual Result reduce(const void* from, void* to, std::size_t count, DType dtype, int root,
                                      Handle handle, runtime::StreamView stream) = 0;
  [[nodiscard]] virtual Result send(const void* from, std::size_t count, DType dtype, int peer, Handle handle,
                                    runtime::StreamView stream) = 0;
  [[nodiscard]] virtual Result receive(void* to, std::size_t count, DType dtype, int peer, Handle handle,
                                       runtime::StreamView stream) = 0;
};

/// "2.28.9"
[[nodiscard]] std::string nccl_version_text(int version);

// The next two are declared in every build and defined where runtime::with_nccl is true (cuda_build.hpp).

/// Opens NCCL. Throws ErrorCode::device where it is not to be had, with what was tried.
[[nodiscard]] std::unique_ptr<NcclLibrary> open_nccl();

/// A number of the GPU behind a `cuda` device, the same for all processes that use it and another one for any
/// other.
[[nodiscard]] std::int64_t gpu_identity(const runtime::Device& device);

}  // namespace ranvier::collectives
