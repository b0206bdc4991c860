// Tier in files on one or more disks (`nvme` DIR[,DIR…]). Large transfers are split into parallel requests, striped
// over the directories (ZeRO-Infinity §6.3). Each rank has separate folders, removed with the tier.
//
// A thread submits requests and waits for them; completions are posted to the loop, which never blocks. Transfers use
// host memory: pinned slots for a GPU, any memory on the `cpu` device. Uses io_uring and O_DIRECT if available;
// description() names the refused one and the reason. Loop thread only.
#pragma once

#include "offload/file_system.hpp"
#include "offload/job_directory.hpp"
#include "offload/stripes.hpp"
#include "offload/tier.hpp"
#include "offload/transfer_engine.hpp"
#include "runtime/files/file_descriptor.hpp"

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
  /// Throws ErrorCode::usage for invalid options. start() creates the folders and files; it throws ErrorCode::io,
  /// naming folder, needed and free bytes, if they do not fit. The loop must outlive the tier, which at its end waits
  /// for requests in flight, drops the others, and removes the folders.
  FileTier(runtime::EventLoop& loop, FileTierOptions options,
           std::unique_ptr<FileSystem> system = std::make_unique<FileSystem>());

  [[nodiscard]] std::string description() const override;

  /// Like TransferEngine::lose_next(); only after start().
  void lose_next_request() noexcept override { engine_->lose_next(); }
  /// Description of the oldest request in flight.
  [[nodiscard]] std::string place() const override { return engine_ ? engine_->oldest() : "files"; }
  /// Number of completed requests.
  [[nodiscard]] std::uint64_t done() const noexcept override { return engine_ ? engine_->done() : 0; }

  [[nodiscard]] int cleared() const override;

 protected:
  void allocate(std::uint64_t bytes, std::span<std::uint64_t> sums) override;
  void move_blocks(IoKind kind, std::uint64_t address, std::span<std::byte> memory, runtime::Handler done) override;

 private:
  /// A directory and the file in it.
  struct Store {
    std::unique_ptr<JobDirectory> folder;  ///< removed after the file was closed
    runtime::FileDescriptor file;
    std::uint64_t bytes = 0;
    int direct_refused = 0;  ///< errno
  };

  [[nodiscard]] Store make_store(const std::filesystem::path& directory, std::uint64_t bytes) const;

  runtime::EventLoop& loop_;
  const FileTierOptions options_;
  const std::unique_ptr<FileSystem> system_;
  const Stripes stripes_;
  std::vector<Store> stores_;
  int uring_refused_ = 0;                   ///< errno
  std::unique_ptr<TransferEngine> engine_;  ///< destroyed before the stores close: waits for requests in flight
};

}  // namespace ranvier::offload
