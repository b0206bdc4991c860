#include "actors/gradients/device_tied_gradient_sum.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace ranvier::actors {

DeviceTiedGradientSum::DeviceTiedGradientSum(const RankContext& context, const UnitState& unit, Options options)
    : loop_(&context.loop),
      transport_(&context.transport),
      stream_(context.compute),
      unit_(&unit),
      options_(std::move(options)),
      message_elements_(options_.message_bytes / runtime::size_of(unit.gradients.front().dtype)) {}

void DeviceTiedGradientSum::run(runtime::Handler done) {
  expect(!done_, "the uses of {} are added twice at a time", unit_->spec->name);
  const UnitView& sum = unit_->gradients.front();
  if (!options_.partner) {
    runtime::add(stream_, sum.data, unit_->gradients.at(1).data, sum.dtype, sum.range.count);
    return loop_->after_work(stream_, {"gradients", "the sum of the uses of", unit_->spec->name}, std::move(done));
  }
  done_ = std::move(done);
  since_ = loop_->now();
  begun_ = 0;
  missing_ = runtime::ceil_divide(sum.range.count, message_elements_);
  const std::size_t at_once = std::min(options_.places.size(), missing_);
  for (std::size_t p = 0; p < at_once; ++p) exchange_next(options_.places[p]);
}

void DeviceTiedGradientSum::exchange_next(std::byte* place) {
  const UnitView& sum = unit_->gradients.front();
  const std::size_t width = runtime::size_of(sum.dtype);
  const std::size_t begin = begun_++ * message_elements_;
  const std::size_t count = std::min(message_elements_, sum.range.count - begin);
  std::byte* mine = sum.data + begin * width;
  const runtime::Tag tag{runtime::Channel::tied, static_cast<std::uint32_t>(unit_->global_index)};
  // The sum overwrites the sent data, so send and receive must both be finished.
  const auto half_done = [this, place, mine, count, halves = std::make_shared<int>(2)] {
    if (--*halves > 0) return;
    runtime::add(stream_, mine, place, unit_->gradients.front().dtype, count);
    loop_->after_work(stream_, {"gradients", "the sum of the uses of", unit_->spec->name}, [this, place] {
      if (--missing_ == 0) return std::exchange(done_, nullptr)();
      if (begun_ * message_elements_ < unit_->gradients.front().range.count) exchange_next(place);
    });
  };
  transport_->receive(*options_.partner, tag, runtime::Bytes(place, count * width), half_done);
  transport_->send(*options_.partner, tag, runtime::ConstBytes(mine, count * width), half_done);
}

std::vector<Wait> DeviceTiedGradientSum::waits() const {
  if (!done_) return {};
  return {{fmt::format("the gradients of the other use of {}", unit_->spec->name), options_.partner, since_}};
}

}  // namespace ranvier::actors
