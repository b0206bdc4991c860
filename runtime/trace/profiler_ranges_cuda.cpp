#include "runtime/trace/profiler_ranges.hpp"

#include <nvtx3/nvToolsExt.h>

namespace ranvier::runtime::profiler {
namespace {

/// NVTX domain; null if no profiler is attached. A profiler loads at the first NVTX call.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("ranvier");
  return made;
}

nvtxEventAttributes_t named(const std::string& name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.c_str();
  return attributes;
}

}  // namespace

bool attached() noexcept { return domain() != nullptr; }

std::uint64_t begin_range(const std::string& name) {
  const nvtxEventAttributes_t attributes = named(name);
  return nvtxDomainRangeStartEx(domain(), &attributes);
}

void end_range(std::uint64_t range) { nvtxDomainRangeEnd(domain(), range); }

void mark(const std::string& name) {
  const nvtxEventAttributes_t attributes = named(name);
  nvtxDomainMarkEx(domain(), &attributes);
}

}  // namespace ranvier::runtime::profiler
