#include "apps/plan/search.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <queue>
#include <thread>
#include <tuple>

namespace ranvier::apps {

namespace {

/// Simulations per round, fixed so that the choice does not depend on the number of threads.
constexpr std::size_t round_size = 8;

struct Entry {
  Bound bound;
  std::size_t candidate = 0;
  bool planned = false;

  [[nodiscard]] auto key() const { return std::tuple(bound.estimate, !planned, candidate); }
  friend bool operator<(const Entry& a, const Entry& b) { return a.key() > b.key(); }  // the smallest key is on top
};

class Search {
 public:
  Search(std::size_t count, const SearchSteps& steps, const SearchLimits& limits)
      : steps_(&steps), limits_(&limits), count_(count) {
    for (std::size_t i = 0; i < count; ++i) queue_.push({steps.bound(i), i, false});
  }

  SearchResult run() {
    while (const std::size_t wanted = next_round()) simulate(wanted);
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      leave(entry);
    }
    for (const Entry& entry : cut_) leave(entry);
    std::erase_if(result_.best, [this](const SearchResult::Found& found) { return found.seconds > limit_; });
    return std::move(result_);
  }

 private:
  void tell(std::size_t simulating = 0) const {
    if (limits_->progress) limits_->progress({count_, result_.planned, result_.simulated, simulating});
  }
  void update_limit() {
    if (limits_->limit) {
      limit_ = limits_->limit(result_.best);
    } else if (result_.best.size() >= limits_->best) {
      limit_ = result_.best.back().seconds;
    }
    const auto back = std::ranges::partition(cut_, [this](const Entry& entry) { return beaten(entry); }).begin();
    for (auto entry = back; entry != cut_.end(); ++entry) queue_.push(*entry);
    cut_.erase(back, cut_.end());
  }
  [[nodiscard]] bool beaten(const Entry& entry) const {
    return !limits_->exhaustive && entry.bound.seconds > limit_;
  }
  void leave(const Entry& entry) {
    if (beaten(entry)) {
      ++result_.cut;
      return;
    }
    result_.min_open = result_.open == 0 ? entry.bound.seconds : std::min(result_.min_open, entry.bound.seconds);
    ++result_.open;
  }

  /// Fills the round with the most promising planned candidates; returns their number.
  std::size_t next_round() {
    round_.clear();
    std::size_t most = round_size;
    if (limits_->simulations > 0) most = std::min(most, limits_->simulations - result_.simulated);
    while (round_.size() < most && !queue_.empty()) {
      Entry entry = queue_.top();
      queue_.pop();
      if (beaten(entry)) {
        cut_.push_back(entry);
      } else if (entry.planned) {
        round_.push_back(entry);
      } else {
        const auto bound = steps_->plan(entry.candidate);
        ++result_.planned;
        if (bound) queue_.push({*bound, entry.candidate, true});
        tell();
      }
    }
    return round_.size();
  }

  void simulate(std::size_t count) {
    std::vector<std::optional<double>> seconds(count);
    std::vector<std::exception_ptr> errors(count);
    tell(count);
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < count; i = next++) {
        try {
          seconds[i] = steps_->simulate(round_[i].candidate);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> others;
      for (int t = 1; t < std::min<int>(limits_->threads, static_cast<int>(count)); ++t) others.emplace_back(work);
      work();
    }
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    result_.simulated += count;
    for (std::size_t i = 0; i < count; ++i)
      if (seconds[i]) add({round_[i].candidate, *seconds[i]}, round_[i].bound.seconds);
    update_limit();
  }

  void add(const SearchResult::Found& found, double bound) {
    if (found.seconds > 0)
      result_.largest_bound_share = std::max(result_.largest_bound_share, bound / found.seconds);
    const auto key = [](const SearchResult::Found& one) { return std::tuple(one.seconds, one.candidate); };
    auto& best = result_.best;
    best.insert(
        std::ranges::upper_bound(best, found, [&](const auto& a, const auto& b) { return key(a) < key(b); }),
        found);
    if (!limits_->limit && best.size() > limits_->best) best.pop_back();
  }

  const SearchSteps* steps_;
  const SearchLimits* limits_;
  std::size_t count_;
  SearchResult result_;
  std::priority_queue<Entry> queue_;
  std::vector<Entry> round_;
  std::vector<Entry> cut_;  // until the limit rises above their bounds
  double limit_ = std::numeric_limits<double>::infinity();
};

}  // namespace

SearchResult search(std::size_t count, const SearchSteps& steps, const SearchLimits& limits) {
  return Search(count, steps, limits).run();
}

}  // namespace ranvier::apps
