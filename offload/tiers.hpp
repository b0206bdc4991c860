// All tiers of one rank behind one interface. TierPlan assigns regions to tiers as part of the memory plan. Loop
// thread only.
//
//   const TierRegion moments =
//       tier_plan.reserve(TierKind::nvme, MemoryKind::optimizer, "h.3 moments", bytes, plan);
//   tier_plan.finish(files, plan);
//   Tiers tiers(loop, device, tier_plan, files, arena, rank);
//   tiers.move(IoKind::read, moments, 0, {{to_device, bytes}}, [] { … });
#pragma once

#include "offload/io_queue.hpp"
#include "offload/tier.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/slot_pool.hpp"
#include "runtime/trace/trace.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ranvier::offload {

enum class TierKind { device, host, nvme };
[[nodiscard]] const char* to_string(TierKind kind) noexcept;

/// Names a region of a TierPlan.
struct TierRegion {
  std::size_t index = 0;
};

struct FileOptions {
  std::vector<std::filesystem::path> directories;  ///< one per disk
  bool checksums = false;                          ///< verify read data
  MakeTier make = {};                              ///< null: files in the directories (FileTier)
};

class TierPlan {
 public:
  static constexpr std::size_t staging_slot_bytes = std::size_t{1} << 20;
  static constexpr std::size_t staging_slots = 16;

  struct Item {
    TierKind kind = TierKind::host;
    std::string name;
    std::size_t bytes = 0;      ///< complete blocks
    runtime::MemoryId memory;   ///< in host memory
    std::uint64_t address = 0;  ///< in files
  };

  /// Reserves a zeroed region in host memory or files. Adds it to `plan`.
  TierRegion reserve(TierKind kind, runtime::MemoryKind memory_kind, const std::string& name, std::size_t bytes,
                     runtime::MemoryPlan& plan);
  /// Adds the memory for transfers and `files`, after all reservations.
  void finish(const FileOptions& files, runtime::MemoryPlan& plan);

  [[nodiscard]] const std::vector<Item>& items() const noexcept { return items_; }
  [[nodiscard]] bool uses(TierKind kind) const noexcept;
  [[nodiscard]] std::size_t bytes(TierKind kind) const noexcept;
  /// Bytes of all regions in files, and of gaps between them.
  [[nodiscard]] std::uint64_t file_space() const noexcept { return file_space_; }
  /// Slots of staging_slot_bytes between device and files; none if there are no files.
  [[nodiscard]] const runtime::SlotPool::Plan& staging() const noexcept { return staging_; }
  [[nodiscard]] runtime::MemoryId checksums() const noexcept { return checksums_; }

 private:
  std::vector<Item> items_;
  std::uint64_t file_space_ = 0;
  runtime::SlotPool::Plan staging_;
  runtime::MemoryId checksums_;
};

class Tiers {
 public:
  /// Memory ranges that a transfer fills or reads in order.
  using StridedLayout = std::vector<std::span<std::byte>>;

  /// Allocates the space of files, or throws ErrorCode::io. `plan` must be finished for `files`; `arena` belongs to
  /// the same memory plan. All but `plan` must outlive this.
  Tiers(runtime::EventLoop& loop, runtime::Device& device, const TierPlan& plan, const FileOptions& files,
        const runtime::Arena& arena, int rank);
  ~Tiers();

  /// Reads from `offset` of the region into memory, or writes that memory; calls `done` on the loop, after this
  /// returned. `offset` is a multiple of Tier::block_bytes; lengths and addresses are arbitrary. Files access complete,
  /// block-aligned blocks that the host reaches directly, as for reading ahead; other data passes through pinned slots.
  /// Several transfers may run unless they overlap. Written data must not change until `done`. If its length is not a
  /// multiple of block_bytes, bytes up to the next block may change, so start records on blocks.
  void move(IoKind kind, TierRegion region, std::size_t offset, StridedLayout runs, runtime::Handler done);

  /// Records spans of file transfers in `trace` from now on, which must outlive this.
  void record(runtime::Trace& trace) noexcept { trace_ = &trace; }

  /// Memory of a region in the host tier: host threads can use it without a copy.
  [[nodiscard]] std::span<std::byte> memory(TierRegion region) const;

  /// Bytes of this rank's files; zeros without files.
  [[nodiscard]] FileBytes file_bytes() const noexcept { return files_ ? files_->moved() : FileBytes{}; }
  /// Description for the user: folders, and what the system refused; empty without files.
  [[nodiscard]] std::string description() const { return files_ ? files_->description() : std::string(); }
  /// Like FileTier::lose_next_request(); false: there are no files.
  bool lose_next_request() noexcept {
    if (files_) files_->lose_next_request();
    return files_ != nullptr;
  }
  /// Number of removed folders of dead jobs.
  [[nodiscard]] int cleared() const { return files_ ? files_->cleared() : 0; }

 private:
  struct Staged;

  void move_file(IoKind kind, std::uint64_t address, std::span<std::byte> memory, runtime::Handler done);
  void copy_runs(IoKind kind, const TierPlan::Item& place, std::size_t offset, const StridedLayout& runs,
                 runtime::Handler done);
  void stage(IoKind kind, std::uint64_t address, StridedLayout runs, runtime::Handler done);
  void stage_piece(const std::shared_ptr<Staged>& staged, std::size_t begin, std::size_t bytes,
                   const runtime::SlotPool::Slot& slot);
  [[nodiscard]] bool direct(const StridedLayout& runs) const;
  /// Wraps `done` in a span that starts now.
  [[nodiscard]] runtime::Handler traced(TierRegion region, runtime::Handler done) const;

  runtime::EventLoop* loop_;
  runtime::Device* device_;
  runtime::Trace* trace_ = nullptr;
  std::unique_ptr<runtime::Stream> fetch_stream_, store_stream_;
  const runtime::Arena* arena_;
  std::vector<TierPlan::Item> places_;  // by region
  runtime::SlotPool pool_;
  std::unique_ptr<Tier> files_;
};

}  // namespace ranvier::offload
