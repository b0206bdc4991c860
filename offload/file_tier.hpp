// Tier in files on one or more disks (`nvme` DIR[,DIR…]). Large transfers are split into parallel requests, striped
// over the directories (ZeRO-Infinity §6.3). Each rank has separate folders, removed with the tier.
//
// A thread submits requests and waits for them; completions are posted to the loop, which never blocks. Transfers use
// host memory: pinned slots for a GPU, any memory on the `cpu` device. Uses io_uring and O_DIRECT if available;
// description() names the refused one and the reason. Loop thread only.
#pragma once

#include "offload/file_system.hpp"
#include "offload/tier.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::offload {

struct FileTierOptions {
  std::vector<std::filesystem::path> directories;    ///< one per disk, at least one
  int rank = 0;                                      ///< part of the folder names
  int depth = 32;                                    ///< requests in flight
  std::size_t request_bytes = std::size_t{1} << 20;  ///< size of the largest request and of a stripe
  bool uring = true;                                 ///< request io_uring
  bool direct = true;                                ///< request O_DIRECT
  bool checksums = false;                            ///< verify read data with checksums (block_checksums.hpp)
};

class FileTier final : public Tier {
 public:
  /// Throws ErrorCode::usage for invalid options. The loop must outlive the tier.
  FileTier(runtime::EventLoop& loop, FileTierOptions options,
           std::unique_ptr<FileSystem> system = std::make_unique<FileSystem>());
  /// Waits for requests in flight, drops the others, removes the folders.
  ~FileTier() override;

  /// Bytes of checksums for regions of these sizes (complete blocks each).
  [[nodiscard]] static std::size_t checksum_bytes(std::span<const std::size_t> regions,
                                                  std::size_t request_bytes = FileTierOptions{}.request_bytes);

  /// Creates the folders and files. Throws ErrorCode::io, naming folder, needed and free bytes, if they do not fit.
  void start(const runtime::Arena& arena, runtime::MemoryId sums) override;
  /// Starts without memory for checksums.
  void start();

  [[nodiscard]] std::string description() const override;

  /// Like TransferEngine::lose_next(); only after start().
  void lose_next_request() noexcept override;
  /// Description of the oldest request in flight.
  [[nodiscard]] std::string place() const override;
  /// Number of completed requests.
  [[nodiscard]] std::uint64_t done() const noexcept override;

  [[nodiscard]] int cleared() const override;

  /// One file per directory, after start().
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
};

}  // namespace ranvier::offload
