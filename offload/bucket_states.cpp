#include "offload/bucket_states.hpp"

#include <utility>

namespace ranvier::offload {

BucketStates::BucketStates(Tier& tier, BucketLayout layout, const std::string& name, Counting counting)
    : tier_(tier), layout_(std::move(layout)) {
  const int copies = counting == Counting::by_flip ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy)
    copies_.push_back(tier.reserve(runtime::MemoryKind::optimizer, copy == 0 ? name : name + ", spare copy",
                                   layout_.region_bytes()));
}

void BucketStates::fetch(const BucketPass& pass, std::span<std::byte> slot, runtime::Handler done) {
  tier_.fetch(copies_[pass.from], layout_.record_offset(pass.bucket), slot.first(layout_.record_bytes(pass.bucket)),
              std::move(done));
}

void BucketStates::store(const BucketPass& pass, std::span<const std::byte> slot, runtime::Handler done) {
  tier_.store(copies_[pass.to], layout_.record_offset(pass.bucket), slot.first(layout_.record_bytes(pass.bucket)),
              std::move(done));
}

}  // namespace ranvier::offload
