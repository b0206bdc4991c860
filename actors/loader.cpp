#include "actors/loader.hpp"

namespace ranvier::actors {

void Loader::load_inputs(std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  load(&models::SampleSource::read_inputs, first, count, to, std::move(done));
}

void Loader::load_targets(std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  load(&models::SampleSource::read_targets, first, count, to, std::move(done));
}

void Loader::load(Read read, std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  stream_.launch([source = source_, read, first, count, to](runtime::ComputePool&) {
    (source->*read)(first, count, to);
  });
  ++reads_;
  stream_.call_back([this, done = std::move(done)] {
    loop_->post([this, done] {
      --reads_;
      done();
    });
  });
}

}  // namespace ranvier::actors
