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

/// Advice takes time: only the lowest rank that lacks memory, which prints its error, asks for it.
MemoryAdvice advice_of_first(runtime::MpiSession& session, bool lacks, const MemoryAdvice& advice) {
  constexpr long long nobody = std::numeric_limits<long long>::max();
  if (session.smallest(lacks ? session.rank() : nobody) == session.rank()) return advice;
  return [] { return std::string(); };
}

}  // namespace

std::size_t host_bytes(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan) {
  return plan.bytes(MemorySpace::pinned) + plan.bytes(MemorySpace::host) +
         (options.gpu ? 0 : plan.bytes(MemorySpace::device));
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
  const MemoryAdvice once = advice_of_first(session, needed > limit.bytes, advice);
  on_all_ranks(session, [&] { check_host_memory(options, plan, needed, session.local_ranks(), limit, once); });
}

void check_device_memory(runtime::MpiSession& session, const runtime::Device& device,
                         const runtime::MemoryPlan& plan, const MemoryAdvice& advice) {
  const auto lack = runtime::device_memory_lack(device, plan);
  const MemoryAdvice once = advice_of_first(session, lack.has_value(), advice);
  on_all_ranks(session, [&] {
    if (lack) fail(ErrorCode::memory, "{}{}", *lack, once());
  });
}

}  // namespace ranvier::apps
