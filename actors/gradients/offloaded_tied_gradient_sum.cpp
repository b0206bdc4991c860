#include "actors/gradients/offloaded_tied_gradient_sum.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {

OffloadedTiedGradientSum::OffloadedTiedGradientSum(const RankContext& context, const UnitStates& states,
                                                   GradientRecords& records, Options options)
    : loop_(&context.loop),
      transport_(&context.transport),
      stream_(context.compute),
      unit_(&states.all()[options.unit]),
      records_(&records),
      options_(std::move(options)),
      tag_{runtime::Channel::tied, static_cast<std::uint32_t>(unit_->global_index)},
      dtype_(states.precision().gradient),
      stretches_(records.stretches(options_.unit, options_.message_bytes)) {}

void OffloadedTiedGradientSum::run(runtime::Handler done) {
  expect(!done_, "the uses of {} are added twice at a time", unit_->spec->name);
  if (stretches_.empty()) return loop_->post(std::move(done));
  done_ = std::move(done);
  exchanges_.assign(stretches_.size(), {});
  since_ = loop_->now();
  begun_ = sent_ = stored_ = 0;
  for (std::byte* place : options_.places) begin_next(place);
}

void OffloadedTiedGradientSum::begin_next(std::byte* place) {
  if (begun_ == stretches_.size()) return;
  const std::size_t number = begun_++;
  const GradientRecords::Stretch& stretch = stretches_[number];
  std::byte* const other = place + options_.message_bytes;
  const auto there = [this, number, place] { one_there(number, place); };
  records_->fetch(options_.unit, 0, stretch, place, [this, number, place, there] {
    exchanges_[number].mine = place;
    if (!options_.partner) return there();
    send_fetched();
  });
  if (options_.partner) {
    transport_->receive(*options_.partner, tag_,
                        runtime::Bytes(other, stretch.elements() * runtime::size_of(dtype_)), there);
  } else {
    records_->fetch(options_.unit, 1, stretch, other, there);
  }
}

/// Sends fetched stretches in the order of the receives, regardless of the order in which fetches finish.
void OffloadedTiedGradientSum::send_fetched() {
  for (; sent_ < exchanges_.size() && exchanges_[sent_].mine != nullptr; ++sent_) {
    const std::size_t number = sent_;
    std::byte* const place = exchanges_[number].mine;
    // The sum overwrites the sent data, so send and receive must both be finished.
    transport_->send(*options_.partner, tag_,
                     runtime::ConstBytes(place, stretches_[number].elements() * runtime::size_of(dtype_)),
                     [this, number, place] { one_there(number, place); });
  }
}

void OffloadedTiedGradientSum::one_there(std::size_t number, std::byte* place) {
  if (--exchanges_[number].missing > 0) return;
  runtime::add(stream_, place, place + options_.message_bytes, dtype_, stretches_[number].elements());
  loop_->after_work(stream_, {"gradients", "the sum of the uses of", unit_->spec->name}, [this, number, place] {
    records_->store(options_.unit, 0, stretches_[number], place, [this, place] {
      if (++stored_ == stretches_.size()) return std::exchange(done_, nullptr)();
      begin_next(place);
    });
  });
}

std::vector<Wait> OffloadedTiedGradientSum::waits() const {
  if (!done_ || !options_.partner) return {};
  return {{fmt::format("the gradients of the other use of {}", unit_->spec->name), options_.partner, since_}};
}

}  // namespace ranvier::actors
