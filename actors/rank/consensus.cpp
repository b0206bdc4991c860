#include "actors/rank/consensus.hpp"

#include "collectives/tree.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::actors {

Consensus::Consensus(runtime::EventLoop& loop, runtime::Transport& transport)
    : transport_(&transport),
      host_(runtime::make_inline_device()),
      stream_(host_->make_stream("consensus", runtime::StreamWidth::one)),
      executor_(loop, transport, *stream_),
      members_(static_cast<std::size_t>(transport.ranks())) {
  std::iota(members_.begin(), members_.end(), 0);
}

void Consensus::agree(std::vector<double>& values, runtime::Handler done) {
  if (!scripts_ || scripts_->front().elements != values.size()) {
    const collectives::Plan plan = collectives::tree_all_reduce(transport_->ranks(), values.size());
    scripts_ = std::make_shared<const std::vector<collectives::Script>>(
        1, collectives::script_of(plan, transport_->rank()));
  }
  collectives::Executor::Operands operands{.parts = {{reinterpret_cast<std::byte*>(values.data()), scripts_}},
                                           .members = members_,
                                           .me = transport_->rank(),
                                           .dtype = runtime::DType::f64,
                                           .channel = runtime::Channel::summary,
                                           .index = 0,
                                           .depth = 1};
  const std::size_t bytes = collectives::Executor::staging_bytes(operands);
  staging_.resize(std::max(staging_.size(), (bytes + sizeof(double) - 1) / sizeof(double)));
  operands.staging = reinterpret_cast<std::byte*>(staging_.data());
  executor_.run(std::move(operands), std::move(done));
}

}  // namespace ranvier::actors
