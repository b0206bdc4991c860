#include "actors/gradients/use_sum.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {

UseSum::UseSum(runtime::EventLoop& loop, runtime::Transport& transport, GradientTier& tier,
               runtime::StreamView stream, Options options)
    : loop_(&loop),
      transport_(&transport),
      tier_(&tier),
      stream_(stream),
      options_(std::move(options)),
      stretches_(tier.stretches(options_.unit, options_.message_bytes)) {}

void UseSum::run(runtime::Handler done) {
  expect(!done_, "the uses of a unit are added twice at a time");
  if (stretches_.empty()) return loop_->post(std::move(done));
  done_ = std::move(done);
  parts_.assign(stretches_.size(), {});
  begun_ = sent_ = stored_ = 0;
  for (std::byte* place : options_.places) begin_next(place);
}

void UseSum::begin_next(std::byte* place) {
  if (begun_ == stretches_.size()) return;
  const std::size_t number = begun_++;
  const GradientTier::Stretch& stretch = stretches_[number];
  std::byte* const other = place + options_.message_bytes;
  const auto there = [this, number, place] { one_there(number, place); };
  tier_->fetch(options_.unit, 0, stretch, place, [this, number, place, there] {
    parts_[number].mine = place;
    if (!options_.partner) return there();
    send_fetched();
  });
  if (options_.partner) {
    const runtime::Tag tag{runtime::Channel::tied, options_.tag};
    transport_->receive(*options_.partner, tag,
                        runtime::Bytes(other, stretch.elements() * runtime::size_of(options_.dtype)), there);
  } else {
    tier_->fetch(options_.unit, 1, stretch, other, there);
  }
}

/// In the order of the receives, whatever came from the tier first.
void UseSum::send_fetched() {
  for (; sent_ < parts_.size() && parts_[sent_].mine != nullptr; ++sent_) {
    const std::size_t number = sent_;
    std::byte* const place = parts_[number].mine;
    const runtime::Tag tag{runtime::Channel::tied, options_.tag};
    // The sum overwrites what is being sent, so both must be through.
    transport_->send(*options_.partner, tag,
                     runtime::ConstBytes(place, stretches_[number].elements() * runtime::size_of(options_.dtype)),
                     [this, number, place] { one_there(number, place); });
  }
}

void UseSum::one_there(std::size_t number, std::byte* place) {
  if (--parts_[number].missing > 0) return;
  runtime::add(stream_, place, place + options_.message_bytes, options_.dtype, stretches_[number].elements());
  loop_->after_work(stream_, {"gradients", "the sum of the uses of unit", {}, static_cast<std::int64_t>(options_.unit)},
                    [this, number, place] {
                      tier_->store(options_.unit, 0, stretches_[number], place, [this, place] {
                        if (++stored_ == stretches_.size()) return std::exchange(done_, nullptr)();
                        begin_next(place);
                      });
                    });
}

}  // namespace ranvier::actors
