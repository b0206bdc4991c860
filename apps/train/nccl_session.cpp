#include "apps/train/nccl_session.hpp"

#include "apps/job/devices.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/flag_names.hpp"
#include "runtime/device/cuda_build.hpp"

#include <algorithm>

namespace ranvier::apps {

NcclSession::NcclSession(const RankRun& run, runtime::Device& device) : run_(run), device_(device) {}

NcclSession::~NcclSession() { close(); }

void NcclSession::open() {
  if (!may_use_nccl(run_.options)) return;
  if constexpr (runtime::with_nccl) {
    try {
      library_ = collectives::open_nccl();
    } catch (const Error& error) {
      if (run_.options.device.collectives == CollectiveBackend::nccl) throw;
      obstacle_ = message_of(error);
    }
  } else {
    obstacle_ = "this build has no NCCL";
  }
}

void NcclSession::choose() {
  if (run_.options.device.device != DeviceFlag::cuda) return;
  on_all_ranks(run_.session, [&] { open(); });
  NcclSituation situation{.obstacle = obstacle_};
  const long long version = library_ ? library_->version() : 0;
  if (run_.session.smallest(version) == run_.session.largest(version) && version > 0)
    situation.version = static_cast<int>(version);
  long long gpu = 0;
  if constexpr (runtime::with_nccl) gpu = collectives::gpu_identity(device_);
  const auto gpus = run_.session.all(gpu);
  situation.gpus.assign(gpus.begin(), gpus.end());
  on_all_ranks(run_.session, [&] { choice_ = choose_collectives(run_.options, situation); });
  if (run_.speaks() && run_.session.ranks() > 1 && !choice_.line.empty()) fmt::print("{}\n", choice_.line);
}

collectives::CommunicatorFactory* NcclSession::prepare(std::span<const int> column) {
  if (!choice_.nccl) return nullptr;
  const auto& names = run_.options.trainer.algorithms;
  column_ = std::make_unique<collectives::NcclColumn>(
      run_.loop, run_.transport, device_, *library_,
      collectives::NcclColumn::Options{
          .ranks = {column.begin(), column.end()},
          .ways = {collectives::nccl_mode(names.all_gather), collectives::nccl_mode(names.reduce_scatter),
                   collectives::nccl_mode(names.all_reduce)},
          .timeout = run_.timeout()});
  return column_.get();
}

void NcclSession::connect() {
  if (!column_) return;
  run_.session.barrier();  // ranks that share a GPU have allocated their plans
  close_memory(device_, runtime::MemorySpace::pinned);
  if constexpr (runtime::with_nccl) free_before_ = runtime::cuda_free_bytes(device_);
  column_->connect([this] { run_.loop.stop(); });
  run_.loop.run();
  run_.session.barrier();
  const long long taken = run_.session.largest(static_cast<long long>(taken_bytes()));
  if (run_.speaks()) fmt::print("{}\n\n", nccl_memory_line(static_cast<std::size_t>(taken)));
}

std::size_t NcclSession::taken_bytes() const {
  if constexpr (runtime::with_nccl) return free_before_ - std::min(free_before_, runtime::cuda_free_bytes(device_));
  return 0;
}

std::vector<runtime::Transport::Pending> NcclSession::waited_for() const {
  return column_ ? column_->waited_for() : std::vector<runtime::Transport::Pending>();
}

void NcclSession::close() noexcept {
  if (column_) column_->close();
}

}  // namespace ranvier::apps
