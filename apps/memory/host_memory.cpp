#include "apps/memory/host_memory.hpp"

#include "apps/program/agreement.hpp"

#include <limits>
#include <vector>

namespace ranvier::apps {
namespace {

using runtime::MemoryKind;
using runtime::MemorySpace;

std::size_t host_bytes(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan, MemoryKind kind) {
  std::size_t bytes = plan.bytes(MemorySpace::pinned, kind) + plan.bytes(MemorySpace::host, kind);
  if (!options.gpu) bytes += plan.bytes(MemorySpace::device, kind);
  return bytes;
}

}  // namespace

std::size_t host_bytes(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan) {
  std::size_t bytes = 0;
  for (int k = 0; k < runtime::memory_kinds; ++k) bytes += host_bytes(options, plan, static_cast<MemoryKind>(k));
  return bytes;
}

void check_host_memory(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan,
                       std::size_t needed_bytes, int ranks, const runtime::MemoryLimit& limit,
                       const MemoryAdvice& advice) {
  if (needed_bytes <= limit.bytes) return;
  auto largest = MemoryKind::parameters;
  for (int k = 0; k < runtime::memory_kinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    if (host_bytes(options, plan, kind) > host_bytes(options, plan, largest)) largest = kind;
  }
  fail(ErrorCode::memory,
       "this machine has too little memory: {} needed by {}, {} available: {}\n{}largest: {}, {} on this rank\n{}",
       runtime::format_bytes(needed_bytes),
       ranks == 1 ? std::string("its rank") : fmt::format("its {} ranks", ranks),
       runtime::format_bytes(limit.bytes), limit.reason, plan.table(),
       largest == MemoryKind::optimizer ? "optimizer states" : to_string(largest),
       runtime::format_bytes(host_bytes(options, plan, largest)), advice());
}

void check_host_memory(runtime::MpiSession& session, const actors::TrainerOptions& options,
                       const runtime::MemoryPlan& plan, const MemoryAdvice& advice) {
  const std::vector<long long> all = session.all(static_cast<long long>(host_bytes(options, plan)));
  const std::vector<int>& nodes = session.nodes();
  std::size_t needed = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (nodes[rank] == nodes[static_cast<std::size_t>(session.rank())])
      needed += static_cast<std::size_t>(all[rank]);
  }
  const runtime::MemoryLimit limit = runtime::memory_limit();
  // Advice takes time; only the lowest rank that fails prints its error.
  constexpr long long nobody = std::numeric_limits<long long>::max();
  const long long first = session.smallest(needed > limit.bytes ? session.rank() : nobody);
  const MemoryAdvice none = [] { return std::string(); };
  on_all_ranks(session, [&] {
    check_host_memory(options, plan, needed, session.local_ranks(), limit, first == session.rank() ? advice : none);
  });
}

}  // namespace ranvier::apps
