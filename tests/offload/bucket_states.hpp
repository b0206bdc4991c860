// The states of a pipeline's buckets where a test keeps them: one region of a tier, or two where a step's answer flips
// between them: the pipeline's caller says which one counts. It has the fetch and store of a BucketPipeline.
#pragma once

#include "offload/bucket_layout.hpp"
#include "offload/bucket_pipeline.hpp"
#include "offload/tier.hpp"

#include <span>
#include <utility>
#include <vector>

namespace ranvier::offload::tests {

class BucketStates {
 public:
  /// Reserves the regions. The tier, not started yet, outlives this.
  BucketStates(Tier& tier, BucketLayout layout, CommitMode commit_mode) : tier_(tier), layout_(std::move(layout)) {
    for (int copy = 0; copy < (commit_mode == CommitMode::by_flip ? 2 : 1); ++copy)
      copies_.push_back(tier.reserve(runtime::MemoryKind::optimizer, "states", layout_.region_bytes()));
  }

  /// Brings a bucket's record from the copy that counts.
  void fetch(const BucketPass& pass, std::span<std::byte> slot, runtime::Handler done) {
    tier_.fetch(copies_[static_cast<std::size_t>(current_)], layout_.record_offset(pass.bucket),
                slot.first(layout_.record_bytes(pass.bucket)), std::move(done));
  }
  /// Puts it into the copy that the step writes.
  void store(const BucketPass& pass, std::span<const std::byte> slot, runtime::Handler done) {
    tier_.store(copies_[static_cast<std::size_t>(written())], layout_.record_offset(pass.bucket),
                slot.first(layout_.record_bytes(pass.bucket)), std::move(done));
  }

  /// The copy that counts, and the one that a step writes.
  [[nodiscard]] int current() const { return current_; }
  [[nodiscard]] int written() const { return copies_.size() == 1 ? current_ : 1 - current_; }
  /// A step counts that was written.
  void commit() { current_ = written(); }

 private:
  Tier& tier_;
  const BucketLayout layout_;
  std::vector<Region> copies_;
  int current_ = 0;
};

}  // namespace ranvier::offload::tests
