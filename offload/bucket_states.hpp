// The states of a pipeline's buckets where they are kept: one region of a tier, or two where a step's answer flips
// between them. It has the fetch and store of a BucketPipeline. Loop thread only.
#pragma once

#include "offload/bucket_layout.hpp"
#include "offload/bucket_pipeline.hpp"
#include "offload/tier.hpp"

#include <span>
#include <string>
#include <vector>

namespace ranvier::offload {

class BucketStates {
 public:
  /// Reserves the regions. The tier, not started yet, outlives this.
  BucketStates(Tier& tier, BucketLayout layout, const std::string& name, Counting counting);

  [[nodiscard]] const BucketLayout& layout() const noexcept { return layout_; }

  /// Brings a bucket's record from the copy that counts. `slot` has layout().slot_bytes() and is on a block.
  void fetch(const BucketPass& pass, std::span<std::byte> slot, runtime::Handler done);
  /// Puts it into the copy that the step writes.
  void store(const BucketPass& pass, std::span<const std::byte> slot, runtime::Handler done);

 private:
  Tier& tier_;
  const BucketLayout layout_;
  std::vector<Region> copies_;
};

}  // namespace ranvier::offload
