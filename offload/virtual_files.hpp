// Simulated file tier in virtual time: transfers end when the node's disk would finish them (virtual_disk.hpp), and
// memory stays unchanged. For phantom devices. Loop thread only.
#pragma once

#include "offload/tier.hpp"
#include "runtime/simulation/virtual_disk.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace ranvier::offload {

class VirtualFiles final : public Tier {
 public:
  /// Loop and disk must outlive it.
  VirtualFiles(runtime::EventLoop& loop, runtime::VirtualDisk& disk) : loop_(&loop), disk_(&disk) {}

  void lose_next_request() noexcept override { lost_ = true; }
  [[nodiscard]] int cleared() const override { return 0; }
  [[nodiscard]] std::string description() const override { return "files in virtual time"; }
  [[nodiscard]] std::string place() const override { return "files in virtual time"; }
  [[nodiscard]] std::uint64_t done() const noexcept override { return done_; }

 protected:
  void allocate(std::uint64_t, std::span<std::uint64_t>) override {}
  void move_blocks(IoKind kind, std::uint64_t, std::span<std::byte> memory, runtime::Handler done) override {
    auto over = [this, lost = std::exchange(lost_, false), done = std::move(done)] {
      if (lost) return;
      ++done_;
      loop_->post(done);
    };
    kind == IoKind::read ? disk_->read(memory.size(), std::move(over))
                         : disk_->write(memory.size(), std::move(over));
  }

 private:
  runtime::EventLoop* loop_;
  runtime::VirtualDisk* disk_;
  std::uint64_t done_ = 0;
  bool lost_ = false;
};

}  // namespace ranvier::offload
