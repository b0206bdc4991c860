#include "actors/watch/flops_ceiling.hpp"

#include <cmath>

namespace ranvier::actors {

double FlopsCeiling::share(std::int64_t step, double rate) {
  raised_.reset();
  if (value_ <= 0 || !std::isfinite(rate)) return 0;
  if (rate > value_) {
    raised_ = Raise{step, value_, rate};
    value_ = rate;
    if (raises_++ == 0) first_step_ = step;
    last_step_ = step;
  }
  return rate / value_;
}

}  // namespace ranvier::actors
