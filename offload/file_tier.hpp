// A tier in files on one or more disks (`--nvme DIR[,DIR…]`): asynchronous, past the system's cache where the file
// system allows, large transfers cut into requests that go on beside each other and round the directories
// (ZeRO-Infinity §6.3). Each rank has folders of its own, which go with the tier.
//
// A thread of the tier submits requests and waits for them, so the loop never blocks (the kernel may block while
// it takes a request), need not poll, and learns of a completion by a post at once.
//
// Transfers go to and from memory of the host: pinned slots beside a GPU, anything on the `cpu` device.
//
// io_uring and O_DIRECT are used where the system grants them; description() says what was refused and why.
#pragma once

#include "offload/file_system.hpp"
#include "offload/nvme_tier.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::offload {

struct FileTierOptions {
  std::vector<std::filesystem::path> directories;    ///< one for each disk, at least one
  int rank = 0;                                      ///< part of the folders' names
  int depth = 32;                                    ///< requests in flight
  std::size_t request_bytes = std::size_t{1} << 20;  ///< of the largest request; also what is striped
  bool uring = true;                                 ///< ask for io_uring
  bool direct = true;                                ///< ask for O_DIRECT
  bool checksums = false;  ///< compare what is read back with what was written (block_checksums.hpp)
};

class FileTier final : public NvmeTier {
 public:
  /// Throws ErrorCode::usage for options that make no sense. The loop outlives the tier.
  FileTier(runtime::EventLoop& loop, FileTierOptions options,
           std::unique_ptr<FileSystem> system = std::make_unique<FileSystem>());
  /// Waits for the requests in flight, drops the others, removes the folders.
  ~FileTier() override;

  /// What checksums of regions of these sizes take, whole blocks each, of an item of a plan.
  [[nodiscard]] static std::size_t checksum_bytes(std::span<const std::size_t> regions,
                                                  std::size_t request_bytes = FileTierOptions{}.request_bytes);

  void plan(runtime::MemoryPlan& plan) override;
  /// Makes the folders and files. Throws ErrorCode::io, naming folder, needed and free bytes, when they do not fit.
  void start(const runtime::Arena& arena) override { start(arena, sums_); }
  void start(const runtime::Arena& arena, runtime::MemoryId sums) override;
  /// Without checksums no memory is needed.
  void start();

  [[nodiscard]] std::string description() const override;

  /// As TransferEngine::lose_next(); started.
  void lose_next_request() noexcept override;
  /// The oldest request in flight.
  [[nodiscard]] std::string place() const override;
  /// Requests.
  [[nodiscard]] std::uint64_t done() const noexcept override;

  [[nodiscard]] int cleared() const override;

  /// One for each directory, once started.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;

 protected:
  void fetch_blocks(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) override;
  void store_blocks(Region region, std::size_t offset, std::span<const std::byte> from,
                    runtime::Handler done) override;

 private:
  struct State;
  [[nodiscard]] std::vector<std::size_t> region_bytes() const;
  void start(std::span<std::uint64_t> sums);

  std::unique_ptr<State> state_;
  runtime::MemoryId sums_;
};

}  // namespace ranvier::offload
