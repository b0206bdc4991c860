#include "actors/consensus.hpp"

#include "collectives/tree.hpp"

#include <numeric>

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
  if (!plans_ || plans_->front().elements != values.size()) {
    plans_ = std::make_shared<const std::vector<collectives::Plan>>(
        1, collectives::tree_all_reduce(transport_->ranks(), values.size()));
    const std::size_t bytes =
        collectives::Executor::staging_bytes(*plans_, transport_->rank(), runtime::DType::f64, 1);
    staging_.resize((bytes + sizeof(double) - 1) / sizeof(double));
  }
  executor_.run({.plans = plans_,
                 .members = members_,
                 .me = transport_->rank(),
                 .data = reinterpret_cast<std::byte*>(values.data()),
                 .staging = reinterpret_cast<std::byte*>(staging_.data()),
                 .dtype = runtime::DType::f64,
                 .channel = runtime::Channel::summary,
                 .index = 0,
                 .depth = 1},
                std::move(done));
}

}  // namespace ranvier::actors
