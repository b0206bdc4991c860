// Work of one rank's own that has begun and not ended, with the handler that waits for its end: on a stream, in
// files, on threads of the host. So it is known at any time what a rank waits for besides messages, since when, and
// whether anything moves there. An EventLoop has one of these.
#pragma once

#include "runtime/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

using Handler = std::function<void()>;

/// Something that does work in the background and can be watched while it does.
class Workplace {
 public:
  virtual ~Workplace() = default;
  /// For people, as it is now: "stream 'compute'", "a read of 1 MiB at offset 4096 of FILE". Any thread.
  [[nodiscard]] virtual std::string place() const = 0;
  /// Counts what was done there: pieces of work, requests. It grows whenever something moves. Any thread.
  [[nodiscard]] virtual std::uint64_t done() const noexcept = 0;
};

/// What a piece of work is, for people: "pipeline: the forward pass of microbatch 3". Made often and read seldom,
/// so the texts are literals, or live as long as the loop.
struct WorkName {
  const char* part = "";          ///< whose it is
  const char* text = "";          ///< "the forward pass of microbatch", "the gradients of"
  std::string_view subject = {};  ///< "h.3"; empty: none
  std::int64_t number = -1;       ///< below zero: none
  int patience = 1;               ///< timeouts that it may take without a sign of progress
};
[[nodiscard]] std::string to_string(const WorkName& name);

/// Loop thread only.
class OwnWork {
 public:
  struct Entry {
    WorkName name;
    const Workplace* where = nullptr;
    Duration since{};
  };

  /// Keeps `handler` for end(), which gives it back.
  [[nodiscard]] std::size_t begin(const WorkName& name, const Workplace& where, Duration now, Handler handler);
  [[nodiscard]] Handler end(std::size_t entry);

  [[nodiscard]] bool any() const noexcept { return under_way_ > 0; }
  /// Pieces that have ended so far.
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  /// What is under way, the oldest first.
  [[nodiscard]] std::vector<Entry> under_way() const;

 private:
  struct Registered {
    Entry entry;
    Handler handler;
    std::uint64_t order = 0;  // of the begin(); 0: free
  };
  std::vector<Registered> slots_;
  std::vector<std::size_t> free_;
  std::size_t under_way_ = 0;
  std::uint64_t begun_ = 0, ended_ = 0;
};

}  // namespace ranvier::runtime
