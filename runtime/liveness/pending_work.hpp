// Registry of a rank's unfinished local work: on streams, in files, on host threads. Each entry names the handler that
// waits for it. The watchdog reads from it which local work a rank waits for, since when, and whether it progresses.
// Every EventLoop has one.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

using Handler = std::function<void()>;

/// Background worker whose progress can be observed.
class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  /// Current location, for users: "stream 'compute'", "a read of 1 MiB of FILE". Callable from any thread.
  [[nodiscard]] virtual std::string place() const = 0;
  /// Number of completed pieces of work or requests; grows with any progress. Callable from any thread.
  [[nodiscard]] virtual std::uint64_t done() const noexcept = 0;
};

/// Name of a piece of work, for users: "pipeline: the forward pass of microbatch 3". Created often and rarely
/// printed, so the texts are literals or live as long as the loop.
struct WorkName {
  const char* part = "";          ///< actor that owns it
  const char* text = "";          ///< "the forward pass of microbatch", "the gradients of"
  std::string_view subject = {};  ///< "h.3"; empty: no subject
  std::int64_t number = -1;       ///< negative: no number
  int patience = 1;               ///< number of timeouts that it may take without progress
};
[[nodiscard]] std::string to_string(const WorkName& name);

/// Loop thread only.
class PendingWork {
 public:
  struct Entry {
    WorkName name;
    const ProgressSource* where = nullptr;
    Duration since{};
  };

 private:
  struct Registered {
    Entry entry;
    Handler handler;
  };

 public:
  using Item = std::list<Registered>::iterator;

  /// Registers `handler`; end() removes and returns it.
  [[nodiscard]] Item begin(const WorkName& name, const ProgressSource& where, Duration now, Handler handler);
  [[nodiscard]] Handler end(Item item);

  [[nodiscard]] bool any() const noexcept { return !work_.empty(); }
  /// Number of pieces that have ended so far.
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  /// Unfinished work, oldest first.
  [[nodiscard]] std::vector<Entry> under_way() const;

 private:
  std::list<Registered> work_, free_;  // entries are reused: nothing is allocated per piece of work
  std::uint64_t ended_ = 0;
};

}  // namespace ranvier::runtime
