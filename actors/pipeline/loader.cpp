#include "actors/pipeline/loader.hpp"

#include "runtime/kernels/elementwise.hpp"

#include <utility>

namespace ranvier::actors {

void Loader::load_inputs(std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  load(&models::SampleSource::read_inputs, places_->inputs, first, count,
       static_cast<std::size_t>(count) * source_->input_bytes(), to, std::move(done));
}

void Loader::load_targets(std::int64_t first, int count, std::byte* to, runtime::Handler done) {
  load(&models::SampleSource::read_targets, places_->targets, first, count,
       static_cast<std::size_t>(count) * source_->target_bytes(), to, std::move(done));
}

void Loader::load(Read read, runtime::PinnedPool& places, std::int64_t first, int count, std::size_t bytes,
                  std::byte* to, runtime::Handler done) {
  if (!stream_.device().host_reaches(to)) {
    return read_and_copy(read, places, first, count, bytes, to, std::move(done));
  }
  stream_.launch([source = source_, read, first, count, to](runtime::ComputePool&) {
    (source->*read)(first, count, to);
  });
  loop_->after_work(stream_, {"loader", "the samples from", {}, first}, std::move(done));
  announce_next(stream_, first, count);
}

void Loader::announce_next(runtime::StreamView reader, std::int64_t first, int count) {
  if (stride_ == 0) return;
  reader.launch([source = source_, next = first + stride_, count](runtime::ComputePool&) {
    source->will_read(next, count);
  });
}

void Loader::read_and_copy(Read read, runtime::PinnedPool& places, std::int64_t first, int count, std::size_t bytes,
                           std::byte* to, runtime::Handler done) {
  if (!reader_) {
    runtime::Device* device = &stream_.device();
    if (device->kind() == runtime::DeviceKind::cuda) {
      host_ = runtime::make_cpu_device({.threads = 1});
      host_->on_failure([loop = loop_](std::exception_ptr error) { loop->stop(std::move(error)); });
      device = host_.get();
    }
    reader_ = device->make_stream("reader", runtime::StreamWidth::one);
  }
  // Given back before anybody hears of it, whoever keeps a copy of the handlers.
  const auto place = std::make_shared<std::shared_ptr<std::byte>>(places.take(bytes));
  reader_->launch([source = source_, read, first, count, to_place = place->get()](runtime::ComputePool&) {
    (source->*read)(first, count, to_place);
  });
  loop_->after_work(*reader_, {"loader", "the samples from", {}, first},
                    [this, place, first, bytes, to, done = std::move(done)] {
                      runtime::copy(stream_, to, place->get(), bytes);
                      loop_->after_work(stream_, {"loader", "the copy to the device of the samples from", {}, first},
                                        [place, done] {
                                          place->reset();
                                          done();
                                        });
                    });
  announce_next(*reader_, first, count);
}

}  // namespace ranvier::actors
