#include "actors/loader.hpp"

#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {

void Loader::load_inputs(std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  load(&models::SampleSource::read_inputs, first, count, static_cast<std::size_t>(count) * source_->input_bytes(), to,
       std::move(done));
}

void Loader::load_targets(std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  load(&models::SampleSource::read_targets, first, count, static_cast<std::size_t>(count) * source_->target_bytes(), to,
       std::move(done));
}

void Loader::load(Read read, std::int64_t first, int count, std::size_t bytes, std::byte* to, runtime::Handler done) {
  ++reads_;
  runtime::Handler loaded = [this, done = std::move(done)] {
    --reads_;
    done();
  };
  if (!stream_.device().host_reaches(to)) return read_and_copy(read, first, count, bytes, to, std::move(loaded));
  stream_.launch([source = source_, read, first, count, to](runtime::ComputePool&) {
    (source->*read)(first, count, to);
  });
  stream_.call_back([this, loaded = std::move(loaded)] { loop_->post(loaded); });
  announce_next(stream_, first, count);
}

void Loader::announce_next(runtime::StreamView reader, std::int64_t first, int count) {
  if (stride_ == 0) return;
  reader.launch([source = source_, next = first + stride_, count](runtime::ComputePool&) {
    source->will_read(next, count);
  });
}

void Loader::read_and_copy(Read read, std::int64_t first, int count, std::size_t bytes, std::byte* to,
                           runtime::Handler done) {
  if (!reader_) {
    host_ = runtime::make_cpu_device({.threads = 1});
    host_->on_failure([loop = loop_](std::exception_ptr error) { loop->stop(std::move(error)); });
    reader_ = host_->make_stream("reader", runtime::StreamWidth::one);
  }
  const auto place = pinned_.take(bytes);
  reader_->launch([source = source_, read, first, count, place](runtime::ComputePool&) {
    (source->*read)(first, count, place.get());
  });
  reader_->call_back([this, place, bytes, to, done = std::move(done)] {
    loop_->post([this, place, bytes, to, done] {
      runtime::copy(stream_, to, place.get(), bytes);
      stream_.call_back([this, place, done] { loop_->post(done); });
    });
  });
  announce_next(*reader_, first, count);
}

}  // namespace ranvier::actors
