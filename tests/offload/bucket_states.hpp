// Stores the states of a pipeline's buckets: one region of a tier, or two with speculative updates; the pipeline's
// caller chooses the current one. It has the fetch and store of a BucketPipeline.
#pragma once

#include "offload/bucket_layout.hpp"
#include "offload/bucket_pipeline.hpp"
#include "offload/tier.hpp"
#include "tests/test.hpp"

namespace ranvier::offload::tests {

class BucketStates {
 public:
  /// Reserves the regions. The tier must not be started yet and must outlive this object.
  BucketStates(Tier& tier, BucketLayout layout, CommitMode commit_mode) : tier_(tier), layout_(std::move(layout)) {
    for (int copy = 0; copy < (commit_mode == CommitMode::by_flip ? 2 : 1); ++copy)
      copies_.push_back(tier.reserve(runtime::MemoryKind::optimizer, "states", layout_.region_bytes()));
  }

  /// Fetches a bucket's states from the current copy.
  void fetch(const BucketPass& pass, std::span<std::byte> slot, runtime::Handler done) {
    tier_.fetch(copies_[static_cast<std::size_t>(current_)], layout_.record_offset(pass.bucket),
                slot.first(layout_.record_bytes(pass.bucket)), std::move(done));
  }
  /// Stores them in the copy that the step writes.
  void store(const BucketPass& pass, std::span<const std::byte> slot, runtime::Handler done) {
    tier_.store(copies_[static_cast<std::size_t>(written())], layout_.record_offset(pass.bucket),
                slot.first(layout_.record_bytes(pass.bucket)), std::move(done));
  }

  /// The current copy, and the one that a step writes.
  [[nodiscard]] int current() const { return current_; }
  [[nodiscard]] int written() const { return copies_.size() == 1 ? current_ : 1 - current_; }
  /// Commits the copy that the step wrote.
  void commit() { current_ = written(); }

 private:
  Tier& tier_;
  const BucketLayout layout_;
  std::vector<Region> copies_;
  int current_ = 0;
};

}  // namespace ranvier::offload::tests
