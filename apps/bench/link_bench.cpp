#include "apps/bench/measurements.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::apps {

namespace {

using runtime::Channel;
using runtime::Handler;
using runtime::Tag;

constexpr Tag tag{Channel::user, 0};
constexpr std::size_t small_bytes = 8;
constexpr std::size_t message_bytes = 1 << 20;  // size of collective chunks
constexpr int window = 4;                       // messages in flight
constexpr int places = 32;                      // message buffers: larger than caches, like gradients
constexpr int min_times = 12;                   // amortizes the cost of the first message
constexpr int max_rounds = 7;
constexpr int measurements = 6;  // three values for each of two link classes

/// Peers of this rank; none if it takes no part.
struct Route {
  std::optional<int> to, from;
};

class LinkBench {
 public:
  LinkBench(BenchRank& rank, std::span<const int> node_of, double seconds)
      : rank_(rank),
        me_(rank.session().rank()),
        seconds_(seconds / measurements),
        memory_(rank.allocate(2 * places * message_bytes)) {
    for (int r = 0; r < rank.session().ranks(); ++r) ranks_of_[node_of[r]].push_back(r);
  }

  collectives::Links links() {
    collectives::Links links;
    const auto shared = std::ranges::find_if(ranks_of_, [](const auto& node) { return node.second.size() > 1; });
    if (shared != ranks_of_.end()) {
      std::size_t most = 0;
      for (const auto& [node, ranks] : ranks_of_) most = std::max(most, ranks.size());
      links.intra_node = link(shared->second[0], shared->second[1], inside(), most);
    }
    if (ranks_of_.size() > 1) {
      const auto first = ranks_of_.begin();
      std::size_t least = first->second.size();
      for (const auto& [node, ranks] : ranks_of_) least = std::min(least, ranks.size());
      links.inter_node = link(first->second[0], std::next(first)->second[0], across(least), least);
    }
    return links;
  }

 private:
  /// Measures a link between two ranks, and along `all`, with `senders` ranks sending on the busiest node.
  collectives::Link link(int left, int right, const Route& all, std::size_t senders) {
    Route pair;
    if (me_ == left) pair = {right, right};
    if (me_ == right) pair = {left, left};
    collectives::Link link;
    link.latency_seconds = seconds_of_one([&](int times) { return ping_pong(pair, me_ == left, times); }) / 2;
    const double bytes = message_bytes;
    link.bytes_per_second = bytes / seconds_of_one([&](int times) { return exchange(pair, times); });
    link.node_bytes_per_second =
        bytes * static_cast<double>(senders) / seconds_of_one([&](int times) { return exchange(all, times); });
    return link;
  }

  /// Ring of this rank's node.
  [[nodiscard]] Route inside() const {
    for (const auto& [node, ranks] : ranks_of_) {
      const std::size_t size = ranks.size();
      for (std::size_t place = 0; place < size && size > 1; ++place) {
        if (ranks[place] == me_) return {ranks[(place + 1) % size], ranks[(place + size - 1) % size]};
      }
    }
    return {};
  }

  /// Rings across nodes, one for each of `least` ranks per node.
  [[nodiscard]] Route across(std::size_t least) const {
    std::vector<const std::vector<int>*> nodes;
    for (const auto& [node, ranks] : ranks_of_) nodes.push_back(&ranks);
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      for (std::size_t place = 0; place < least; ++place) {
        if ((*nodes[node])[place] != me_) continue;
        return {(*nodes[(node + 1) % nodes.size()])[place],
                (*nodes[(node + nodes.size() - 1) % nodes.size()])[place]};
      }
    }
    return {};
  }

  /// Seconds per repetition of `work(times)`: the median of a few rounds within the time limit.
  template <typename MakeWork>
  double seconds_of_one(const MakeWork& work) {
    (void)rank_.slowest_seconds(work(1));  // connects, and touches memory
    const double estimate = rank_.slowest_seconds(work(window)) / window;
    const int times = static_cast<int>(std::clamp<double>(seconds_ / max_rounds / estimate, min_times, 1000));
    return rank_.median_seconds(work(times), max_rounds, seconds_) / times;
  }

  /// Sends 8 bytes forth and back `times` times.
  BenchRank::Work ping_pong(const Route& pair, bool begins, int times) {
    return [this, pair, begins, times](const Handler& done) {
      if (!pair.to) return rank_.loop().post(done);
      ping(*pair.to, begins, std::make_shared<int>(times), done);
    };
  }

  void ping(int peer, bool begins, const std::shared_ptr<int>& left, const Handler& done) {
    const runtime::Bytes sent(memory_.data(), small_bytes), received(memory_.data() + message_bytes, small_bytes);
    const auto next = [this, peer, begins, left, done] { --*left > 0 ? ping(peer, begins, left, done) : done(); };
    if (begins) {
      rank_.transport().receive(peer, tag, received, next);
      rank_.transport().send(peer, tag, runtime::ConstBytes(sent), [] {});
    } else {
      rank_.transport().receive(peer, tag, received, [this, peer, sent, next] {
        rank_.transport().send(peer, tag, runtime::ConstBytes(sent), next);
      });
    }
  }

  /// Sends messages of 1 MiB, several in flight in each direction.
  BenchRank::Work exchange(const Route& route, int times) {
    return [this, route, times](const Handler& done) {
      if (!route.to) return rank_.loop().post(done);
      auto flow = std::make_shared<Flow>(Flow{route, times, 0, 0, 2 * times, done});
      for (int i = 0; i < window; ++i) {
        start_next(flow, false);
        start_next(flow, true);
      }
    };
  }

  struct Flow {
    Route route;
    int times = 0;
    int sends = 0, receives = 0;  ///< number started
    int left = 0;                 ///< number not yet completed
    Handler done;
  };

  void start_next(const std::shared_ptr<Flow>& flow, bool sends) {
    int& started = sends ? flow->sends : flow->receives;
    if (started == flow->times) return;
    std::byte* const at = memory_.data() + ((sends ? 0 : places) + started++ % places) * message_bytes;
    const auto next = [this, flow, sends] {
      start_next(flow, sends);
      if (--flow->left == 0) flow->done();
    };
    if (sends) {
      rank_.transport().send(*flow->route.to, tag, runtime::ConstBytes(at, message_bytes), next);
    } else {
      rank_.transport().receive(*flow->route.from, tag, runtime::Bytes(at, message_bytes), next);
    }
  }

  BenchRank& rank_;
  int me_;
  double seconds_;                            ///< time per measurement
  runtime::Buffer memory_;                    ///< send buffers, then receive buffers
  std::map<int, std::vector<int>> ranks_of_;  ///< by node
};

}  // namespace

collectives::Links measure_links(BenchRank& rank, std::span<const int> node_of, double seconds) {
  return LinkBench(rank, node_of, seconds).links();
}

}  // namespace ranvier::apps
