#include "actors/base/consensus.hpp"

#include "collectives/plans/recursive.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::actors {

Consensus::Consensus(runtime::EventLoop& loop, runtime::Transport& transport, Staging staging)
    : loop_(&loop),
      transport_(&transport),
      host_(runtime::make_inline_device()),
      stream_(host_->make_stream("consensus", runtime::StreamWidth::one)),
      executor_(loop, transport, *stream_),
      members_(static_cast<std::size_t>(transport.ranks())),
      staging_(std::move(staging)) {
  std::iota(members_.begin(), members_.end(), 0);
}

std::vector<Wait> Consensus::waits() const {
  if (!since_) return {};
  return {{.what = "the agreement of all ranks after a batch", .rank = std::nullopt, .since = *since_}};
}

std::vector<int> Consensus::peers() const {
  std::vector<int> peers;
  const int rank = transport_->rank();
  for (int bit = 1; bit < transport_->ranks(); bit <<= 1) {
    if ((rank & bit) != 0) {
      peers.push_back(rank - bit);
      break;
    }
    if (rank + bit < transport_->ranks()) peers.push_back(rank + bit);
  }
  return peers;
}

void Consensus::agree(std::vector<double>& values, runtime::Handler done) {
  if (!schedules_ || schedules_->front().elements != values.size()) {
    const collectives::Plan plan =
        collectives::tree_all_reduce(transport_->ranks(), values.size(), transport_->rank());
    schedules_ = std::make_shared<const std::vector<collectives::RankSchedule>>(
        1, collectives::schedule_of(plan, transport_->rank()));
  }
  collectives::Executor::Operands operands{.parts = {{reinterpret_cast<std::byte*>(values.data()), schedules_}},
                                           .members = members_,
                                           .me = transport_->rank(),
                                           .dtype = runtime::DType::f64,
                                           .channel = runtime::Channel::summary,
                                           .index = 0,
                                           .depth = 1};
  const std::size_t bytes = collectives::Executor::staging_bytes(operands);
  staging_->resize(std::max(staging_->size(), runtime::ceil_divide(bytes, sizeof(double))));
  operands.staging = reinterpret_cast<std::byte*>(staging_->data());
  since_ = loop_->now();
  executor_.run(std::move(operands), [this, done = std::move(done)] {
    since_.reset();
    done();
  });
}

}  // namespace ranvier::actors
