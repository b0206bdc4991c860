// A test profiler, which NVTX finds by a pointer, records the spans of a trace.
#include "runtime/device/device.hpp"
#include "runtime/trace/profiler_ranges.hpp"
#include "runtime/trace/trace.hpp"
#include "tests/test.hpp"

#include <nvtx3/nvToolsExt.h>

#include <chrono>

using namespace ranvier::runtime;

namespace {

std::vector<std::string> seen;

nvtxDomainHandle_t create_domain(const char* name) {
  seen.push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&seen);
}
nvtxRangeId_t start_range(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  seen.push_back(std::string("begin ") + event->message.ascii);
  return seen.size();
}
void end_range(nvtxDomainHandle_t, nvtxRangeId_t range) { seen.push_back("end of " + seen.at(range - 1)); }
void mark(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  seen.push_back(std::string("mark ") + event->message.ascii);
}

int attach(NvtxGetExportTableFunc_t table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int count = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &count) == 0) return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create_domain);
  *functions[NVTX_CBID_CORE2_DomainRangeStartEx] = reinterpret_cast<NvtxFunctionPointer>(start_range);
  *functions[NVTX_CBID_CORE2_DomainRangeEnd] = reinterpret_cast<NvtxFunctionPointer>(end_range);
  *functions[NVTX_CBID_CORE2_DomainMarkEx] = reinterpret_cast<NvtxFunctionPointer>(mark);
  return 1;
}

// Before NVTX is called for the first time.
[[maybe_unused]] const bool attached_here = (InitializeInjectionNvtx2_fnptr = attach) != nullptr;

}  // namespace

TEST_CASE("an attached profiler gets a trace's spans by their names, and each span once") {
  REQUIRE(profiler::attached());
  const auto device = make_inline_device();
  const auto stream = device->make_stream("compute", StreamWidth::whole);
  const SteadyClock clock;
  Trace trace(0, clock);
  trace.begin(*stream, SpanKind::forward, 4);
  trace.begin(*stream, SpanKind::optimizer);
  trace.end(*stream, SpanKind::forward, Trace::Lane::compute, 4);  // need not nest
  trace.end(*stream, SpanKind::optimizer, Trace::Lane::compute);
  const auto now = trace.now();
  trace.add(SpanKind::send, Trace::Lane::communicate, now - std::chrono::microseconds(1500), now, 7);
  CHECK(seen == std::vector<std::string>{"domain ranvier", "begin forward 4", "begin optimizer",
                                         "end of begin forward 4", "end of begin optimizer",
                                         "mark send 7, 1.500 ms"});
  CHECK(trace.spans().size() == 3);
}
