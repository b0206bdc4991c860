// All tiers of one rank behind one fetch and one store, whatever lies where. What lies where is planned as data
// before anything exists (TierPlan), in the memory plan with everything else; files of all kinds of states lie in
// one folder per disk.
//
//   const TierRegion moments =
//       tier_plan.reserve(TierKind::nvme, MemoryKind::optimizer, "h.3 moments", bytes, plan);
//   tier_plan.finish(files, plan);
//   Tiers tiers(loop, device, tier_plan, files, arena, rank);
//   tiers.fetch(moments, 0, {to_device, bytes}, [] { … });
//
// Offsets are multiples of Tier::block_bytes; lengths and addresses are not bound: what files cannot take as it is
// passes through a few slots of pinned memory. A store of a length that is no multiple of a block may change what
// lies behind it up to the next one, so records begin on blocks. Loop thread only.
#pragma once

#include "offload/staging_pool.hpp"
#include "offload/nvme_tier.hpp"
#include "offload/tier.hpp"
#include "runtime/device.hpp"
#include "runtime/trace.hpp"

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
  std::vector<std::filesystem::path> directories;  ///< one for each disk
  bool checksums = false;                          ///< of what is read back
  MakeNvmeTier make = {};                          ///< null: files in the directories (FileTier)
};

class TierPlan {
 public:
  static constexpr std::size_t staging_slot_bytes = std::size_t{1} << 20;
  static constexpr std::size_t staging_slots = 16;

  struct Item {
    TierKind kind = TierKind::host;
    runtime::MemoryKind memory_kind = runtime::MemoryKind::optimizer;
    std::string name;
    std::size_t bytes = 0;  ///< whole blocks
    runtime::MemoryId memory;
  };

  /// Space for a region, zero at first, in host memory or in files. Adds it to `plan`.
  TierRegion reserve(TierKind kind, runtime::MemoryKind memory_kind, const std::string& name, std::size_t bytes,
                     runtime::MemoryPlan& plan);
  /// Adds what transfers and `files` need, once everything is reserved.
  void finish(const FileOptions& files, runtime::MemoryPlan& plan);

  [[nodiscard]] const std::vector<Item>& items() const noexcept { return items_; }
  [[nodiscard]] bool uses(TierKind kind) const noexcept;
  [[nodiscard]] std::size_t bytes(TierKind kind) const noexcept;
  [[nodiscard]] runtime::MemoryId staging() const noexcept { return staging_; }
  [[nodiscard]] runtime::MemoryId checksums() const noexcept { return checksums_; }

 private:
  std::vector<Item> items_;
  runtime::MemoryId staging_, checksums_;
};

/// Bytes that were read from files, and written to them, so far; whole blocks.
struct FileBytes {
  std::uint64_t read = 0, written = 0;
};

class Tiers {
 public:
  /// Runs of memory that a transfer fills, or takes, one after another.
  using StridedLayout = std::vector<std::span<std::byte>>;

  /// Takes the space of files, or throws ErrorCode::io. `plan` was finished for `files`; `arena` was made from the
  /// plan that `plan` is part of. All but `plan` outlive this.
  Tiers(runtime::EventLoop& loop, runtime::Device& device, const TierPlan& plan, const FileOptions& files,
        const runtime::Arena& arena, int rank);
  ~Tiers();

  /// Brings bytes from `offset` of the region to device memory; calls `done` on the loop, after this returned.
  /// Several transfers run at a time, those that overlap must not.
  void fetch(TierRegion region, std::size_t offset, StridedLayout to, runtime::Handler done);
  void fetch(TierRegion region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) {
    fetch(region, offset, StridedLayout{to}, std::move(done));
  }
  /// The other way round. What is stored may change once `done` was called.
  void store(TierRegion region, std::size_t offset, StridedLayout from, runtime::Handler done);
  void store(TierRegion region, std::size_t offset, std::span<std::byte> from, runtime::Handler done) {
    store(region, offset, StridedLayout{from}, std::move(done));
  }

  /// Whole blocks to pinned memory that begins on a block: the first half of a fetch, for those who read ahead.
  void fetch_to_host(TierRegion region, std::size_t offset, std::span<std::byte> to, runtime::Handler done);

  /// The other way round.
  void store_from_host(TierRegion region, std::size_t offset, std::span<std::byte> from, runtime::Handler done);

  /// Spans of what is on its way from and to files go there from here on; it outlives this.
  void record(runtime::Trace& trace) noexcept { trace_ = &trace; }

  [[nodiscard]] TierKind kind(TierRegion region) const { return places_.at(region.index).kind; }
  /// A region in host memory itself: work on host threads needs no copy of it.
  [[nodiscard]] std::span<std::byte> memory(TierRegion region) const;

  /// Of this rank's files; zeros where it has none.
  [[nodiscard]] FileBytes file_bytes() const noexcept;
  /// For people: where files are, and what the system refused; empty: no files.
  [[nodiscard]] std::string description() const;
  /// As FileTier::lose_next_request(); false: there are no files.
  bool lose_next_request() noexcept;
  /// Folders of dead jobs that were removed from the directories.
  [[nodiscard]] int cleared() const;

 private:
  struct Holding {
    TierKind kind = TierKind::host;
    std::size_t bytes = 0;
    std::span<std::byte> memory;  // of the host tier
    Region region;                // of the file tier
  };
  struct Staged;

  void fetch_file(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done);
  void store_file(Region region, std::size_t offset, std::span<const std::byte> from, runtime::Handler done);
  void copy_runs(TierRegion region, std::size_t offset, const StridedLayout& runs, bool fetches,
                 runtime::Handler done);
  void stage(TierRegion region, std::size_t offset, StridedLayout runs, bool fetches, runtime::Handler done);
  void stage_piece(const std::shared_ptr<Staged>& staged, std::size_t begin, std::size_t bytes, std::size_t slot);
  [[nodiscard]] bool direct(const StridedLayout& runs) const;
  /// `done`, with a span from now on.
  [[nodiscard]] runtime::Handler traced(TierRegion region, runtime::Handler done) const;

  runtime::EventLoop* loop_;
  runtime::Trace* trace_ = nullptr;
  bool host_addressable_;  // device memory, by the file system
  std::unique_ptr<runtime::Stream> fetch_stream_, store_stream_;
  std::vector<Holding> places_;  // by region
  std::unique_ptr<StagingPool> pool_;
  std::unique_ptr<NvmeTier> files_;
};

}  // namespace ranvier::offload
