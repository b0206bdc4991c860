// Interface to NCCL without NCCL's types. The real one loads the library when created, so jobs without GPUs do not
// load it; tests simulate it with ranks of one process.
//
// Communicators are non-blocking: connect() and group_end() may leave work to NCCL's threads. Until status() is no
// longer in_progress, only abort() may be called for that communicator. Loop thread only.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ranvier::runtime {
class Device;
}

namespace ranvier::collectives {

struct NcclCall {
  enum class Kind { all_gather, reduce_scatter, all_reduce, broadcast, reduce, send, receive };
  Kind kind = Kind::all_gather;
  std::byte* from = nullptr;  ///< unused by receive
  std::byte* to = nullptr;    ///< unused by send
  std::size_t count = 0;      ///< elements that one rank contributes to a gather, or keeps of a scatter
  int peer = 0;               ///< NCCL rank of the root or peer

  friend bool operator==(const NcclCall&, const NcclCall&) = default;
};

class NcclLibrary {
 public:
  /// NCCL's numbers; others are passed through.
  enum Result : int { success = 0, cuda_error = 1, system_error = 2, remote_error = 6, in_progress = 7 };

  /// Unique id with which members find each other; one member creates it.
  struct Id {
    std::array<std::byte, 128> bytes{};
  };

  using Handle = void*;  ///< a communicator
  using DType = runtime::DType;

  virtual ~NcclLibrary() = default;

  [[nodiscard]] virtual int version() const = 0;  ///< 22809 is 2.28.9
  [[nodiscard]] virtual Result make_id(Id& id) = 0;

  /// Whether kernels of several communicators start on the GPU in the order of the calls, and may then overlap.
  [[nodiscard]] virtual bool keeps_launch_order() const = 0;

  /// Starts creating a communicator for the GPU of `stream`.
  [[nodiscard]] virtual Result connect(Handle& handle, const Id& id, int ranks, int rank,
                                       runtime::StreamView stream) = 0;
  /// State of the last call, or an error since.
  [[nodiscard]] virtual Result status(Handle handle) = 0;
  /// Waits briefly for data that peers still need, then frees it.
  virtual void close(Handle handle) noexcept = 0;
  /// Aborts running operations on the GPU and frees it.
  virtual void abort(Handle handle) noexcept = 0;

  /// Description for the user, with NCCL's last error of that communicator (may be null).
  [[nodiscard]] virtual std::string describe(Result result, Handle handle) const = 0;

  // Calls between these are one launch, in the stream's order.
  [[nodiscard]] virtual Result group_start() = 0;
  [[nodiscard]] virtual Result group_end() = 0;

  /// In place if the pointers overlap accordingly.
  [[nodiscard]] virtual Result run(const NcclCall& call, DType dtype, Handle handle,
                                   runtime::StreamView stream) = 0;
};

/// "2.28.9"
[[nodiscard]] std::string nccl_version_text(int version);

// Declared in every build, defined if runtime::with_nccl is true (cuda_build.hpp).

/// Loads NCCL. Throws ErrorCode::device with the attempted names if it is missing.
[[nodiscard]] std::unique_ptr<NcclLibrary> open_nccl();

/// Number of the GPU of a `cuda` device: equal in all processes that use it, unique per GPU.
[[nodiscard]] std::int64_t gpu_identity(const runtime::Device& device);

}  // namespace ranvier::collectives
