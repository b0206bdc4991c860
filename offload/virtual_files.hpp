// Simulated file tier in virtual time: transfers end when the node's disk would finish them (virtual_disk.hpp), and
// memory stays unchanged. For phantom devices. Loop thread only.
#pragma once

#include "offload/tier.hpp"
#include "runtime/simulation/virtual_disk.hpp"

#include <cstdint>
#include <string>

namespace ranvier::offload {

class VirtualFiles final : public NvmeTier {
 public:
  /// Loop and disk must outlive it.
  VirtualFiles(runtime::EventLoop& loop, runtime::VirtualDisk& disk) : loop_(&loop), disk_(&disk) {}

  void plan(runtime::MemoryPlan&) override {}
  void start(const runtime::Arena&) override { close_reservations(); }
  void start(const runtime::Arena& arena, runtime::MemoryId) override { start(arena); }
  void lose_next_request() noexcept override { lost_ = true; }
  [[nodiscard]] int cleared() const override { return 0; }
  [[nodiscard]] std::string description() const override { return "files in virtual time"; }
  [[nodiscard]] std::string place() const override { return "files in virtual time"; }
  [[nodiscard]] std::uint64_t done() const noexcept override { return done_; }

 protected:
  void fetch_blocks(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) override;
  void store_blocks(Region region, std::size_t offset, std::span<const std::byte> from,
                    runtime::Handler done) override;

 private:
  /// Handler for the disk's completion of a request.
  [[nodiscard]] runtime::Handler over(runtime::Handler done);

  runtime::EventLoop* loop_;
  runtime::VirtualDisk* disk_;
  std::uint64_t done_ = 0;
  bool lost_ = false;
};

}  // namespace ranvier::offload
