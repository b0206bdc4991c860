#include "actors/gradients/tied_gradients.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using offload::IoKind;

TiedGradientSum::TiedGradientSum(const RankContext& context, const UnitStates& states, GradientRecords* records,
                                 Options options)
    : context_(&context),
      unit_(&states.all()[options.unit]),
      records_(records),
      options_(std::move(options)),
      tag_{runtime::Channel::tied, static_cast<std::uint32_t>(unit_->global_index)},
      dtype_(states.precision().gradient) {
  if (records != nullptr) {
    stretches_ = records->stretches(options_.unit, options_.message_bytes);
  } else {
    const std::size_t all = unit_->gradients.front().range.count, most = options_.message_bytes / size_of(dtype_);
    for (std::size_t begin = 0; begin < all; begin += most)
      stretches_.push_back({0, begin, std::min(all, begin + most)});
  }
  sends_ = runtime::InOrder(stretches_.size());
}

void TiedGradientSum::run(runtime::Handler done) {
  expect(!done_, "the uses of {} are added twice at a time", unit_->spec->name);
  if (records_ == nullptr && !options_.partner) {
    const UnitView& sum = unit_->gradients.front();
    runtime::add(context_->compute, sum.data, unit_->gradients.at(1).data, dtype_, sum.range.count);
    return context_->loop.after_work(context_->compute, {"gradients", "the sum of the uses of", unit_->spec->name},
                                     std::move(done));
  }
  if (stretches_.empty()) return context_->loop.post(std::move(done));
  done_ = std::move(done);
  exchanges_.assign(stretches_.size(), {});
  since_ = context_->loop.now();
  begun_ = summed_ = 0;
  for (std::byte* place : options_.places) begin_next(place);
}

void TiedGradientSum::begin_next(std::byte* place) {
  if (begun_ == stretches_.size()) return;
  const std::size_t number = begun_++;
  const GradientRecords::Stretch& stretch = stretches_[number];
  Exchange& exchange = exchanges_[number];
  const auto there = [this, number] { one_there(number); };
  if (records_ != nullptr) {
    exchange = {.place = place, .mine = place, .other = place + options_.message_bytes};
    records_->move(IoKind::read, options_.unit, 0, stretch, exchange.mine, [this, number, there] {
      if (!options_.partner) return there();
      send(number);
    });
  } else {
    std::byte* const mine = unit_->gradients.front().data + stretch.begin * size_of(dtype_);
    exchange = {.place = place, .mine = mine, .other = place};
  }
  if (options_.partner) {
    context_->transport.receive(*options_.partner, tag_,
                                runtime::Bytes(exchange.other, stretch.elements() * size_of(dtype_)), there);
    if (records_ == nullptr) send(number);
  } else {
    records_->move(IoKind::read, options_.unit, 1, stretch, exchange.other, there);
  }
}

/// Sends a fetched stretch, in the order of the receives.
void TiedGradientSum::send(std::size_t number) {
  // The sum overwrites the sent data, so send and receive must both be finished.
  sends_.run(number, [this, number] {
    context_->transport.send(
        *options_.partner, tag_,
        runtime::ConstBytes(exchanges_[number].mine, stretches_[number].elements() * size_of(dtype_)),
        [this, number] { one_there(number); });
  });
}

void TiedGradientSum::one_there(std::size_t number) {
  Exchange& exchange = exchanges_[number];
  if (--exchange.missing > 0) return;
  runtime::add(context_->compute, exchange.mine, exchange.other, dtype_, stretches_[number].elements());
  const auto stored = [this, place = exchange.place] {
    if (++summed_ == stretches_.size()) return std::exchange(done_, nullptr)();
    begin_next(place);
  };
  context_->loop.after_work(
      context_->compute, {"gradients", "the sum of the uses of", unit_->spec->name}, [this, number, stored] {
        if (records_ == nullptr) return stored();
        records_->move(IoKind::write, options_.unit, 0, stretches_[number], exchanges_[number].mine, stored);
      });
}

std::vector<Wait> TiedGradientSum::waits() const {
  if (!done_ || !options_.partner) return {};
  return {{fmt::format("the gradients of the other use of {}", unit_->spec->name), options_.partner, since_}};
}

void TiedGradientCopy::run(const std::vector<runtime::Bytes>& runs, runtime::Handler done) {
  const auto bucket = std::make_shared<Bucket>(Bucket{0, std::move(done)});
  std::size_t room = 0;
  for (runtime::Bytes run : runs) {
    while (!run.empty()) {
      if (room == 0) {
        waiting_.push_back({{}, bucket});
        ++bucket->missing;
        room = options_.message_bytes;
      }
      const runtime::Bytes range = run.first(std::min(room, run.size()));
      waiting_.back().ranges.push_back(range);
      run = run.subspan(range.size());
      room -= range.size();
    }
  }
  expect(bucket->missing > 0, "a tied unit's bucket without elements is copied");
  if (under_way_ == 0) since_ = context_->loop.now();
  while (under_way_ < options_.depth && !waiting_.empty()) begin_next();
}

void TiedGradientCopy::begin_next() {
  const Message message = std::move(waiting_.front());
  waiting_.pop_front();
  ++under_way_;
  auto through = [this, bucket = message.bucket] {
    --under_way_;
    if (!waiting_.empty()) begin_next();
    if (--bucket->missing == 0) bucket->done();
  };
  if (!options_.sends)
    return context_->transport.receive(options_.partner, options_.tag, message.ranges, std::move(through));
  const std::vector<runtime::ConstBytes> ranges(message.ranges.begin(), message.ranges.end());
  context_->transport.send(options_.partner, options_.tag, ranges, std::move(through));
}

std::vector<Wait> TiedGradientCopy::waits() const {
  if (under_way_ == 0) return {};
  return {{fmt::format("the reduced gradients of {}, {} the other stage", options_.unit,
                       options_.sends ? "which go to" : "which come from"),
           options_.partner, since_}};
}

}  // namespace ranvier::actors
