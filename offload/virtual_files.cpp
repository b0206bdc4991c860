#include "offload/virtual_files.hpp"

#include <utility>

namespace ranvier::offload {

runtime::Handler VirtualFiles::over(runtime::Handler done) {
  return [this, lost = std::exchange(lost_, false), done = std::move(done)] {
    if (lost) return;
    ++done_;
    loop_->post(done);
  };
}

void VirtualFiles::fetch_blocks(Region, std::size_t, std::span<std::byte> to, runtime::Handler done) {
  disk_->read(to.size(), over(std::move(done)));
}

void VirtualFiles::store_blocks(Region, std::size_t, std::span<const std::byte> from, runtime::Handler done) {
  disk_->write(from.size(), over(std::move(done)));
}

}  // namespace ranvier::offload
