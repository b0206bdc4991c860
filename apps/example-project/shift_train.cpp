// Language model with a custom block, outside Ranvier's tree. Embedding and head are GPT-2's. The blocks have no
// attention: each position depends on itself and the previous one. It trains on any grid, with flags of ranvier-train:
//
//   mpirun -n 2 build/shift-train --data corpus.txt --g-inter 2 --layers 4 --hidden 64 --sequence-length 64 --steps 200
#include "ranvier/apps/train/launch.hpp"
#include "ranvier/models/families/gpt.hpp"
#include "ranvier/models/ops/activation.hpp"
#include "ranvier/models/ops/matmul.hpp"
#include "ranvier/models/ops/memory_layout.hpp"
#include "ranvier/models/text/text_source.hpp"
#include "ranvier/runtime/base/error.hpp"
#include "ranvier/runtime/kernels/elementwise.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace {

using namespace ranvier;
using models::LayerCall;

/// h = x·now + before(x)·previous + bias and y = x + gelu(h)·out; before(x) is x at the previous position.
/// Letters: N = B·T rows, C channels, W = 4C. x and y are [N, C], h is [N, W].
class ShiftBlock : public models::Layer {
 public:
  ShiftBlock(int index, std::size_t channels, models::Precision precision)
      : Layer(fmt::format("shift.{}", index)), channels_(channels), width_(4 * channels), precision_(precision) {
    const models::Initializer normal{models::Initializer::Kind::normal, 0.02f};
    set_units({{name(),
                {{name() + ".now", {channels_, width_}, normal, true},
                 {name() + ".previous", {channels_, width_}, normal, true},
                 {name() + ".bias", {width_}},
                 {name() + ".out", {width_, channels_}, normal, true}}}});
  }

  double flops_per_sample(int positions) const override {
    return 6.0 * 3 * static_cast<double>(channels_ * width_) * positions;
  }
  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }

  models::LayerMemory memory(models::MicrobatchShape shape) const override {
    const Arrays at(*this, shape);
    return {at.saved.bytes(), at.deferred.bytes(), at.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* x, std::byte* y) override {
    const Arrays at(*this, call.shape);
    std::byte *const h = call.saved + at.h, *const work = call.workspace + at.scratch;
    put_before(call, work, x);
    product(call, {.m = at.rows, .n = width_, .k = channels_}, h, x, parameter(call, now), parameter(call, bias));
    product(call, {.m = at.rows, .n = width_, .k = channels_}, h, work, parameter(call, previous), nullptr, true);
    models::gelu_forward(call.stream, precision_.compute, work, h, at.rows * width_);
    product(call, {.m = at.rows, .n = channels_, .k = width_}, y, work, parameter(call, out));
    runtime::add(call.stream, y, x, precision_.compute, at.rows * channels_);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* dy, std::byte* dx) override {
    const Arrays at(*this, call.shape);
    std::byte *const dh = call.deferred + at.dh, *const work = call.workspace + at.scratch;
    runtime::copy(call.stream, call.deferred + at.dy, dy, at.rows * channels_ * element());
    product(call, {.m = at.rows, .n = width_, .k = channels_, .transpose_b = true}, dh, dy, parameter(call, out));
    models::gelu_backward(call.stream, precision_.compute, dh, call.saved + at.h, call.saved + at.h,
                          at.rows * width_);
    product(call, {.m = at.rows, .n = channels_, .k = width_, .transpose_b = true}, dx, dh, parameter(call, now));
    runtime::add(call.stream, dx, dy, precision_.compute, at.rows * channels_);
    product(call, {.m = at.rows, .n = channels_, .k = width_, .transpose_b = true}, work, dh,
            parameter(call, previous));
    add_after(call, dx, work);
  }

  void backward_weight(const LayerCall& call, const std::byte* x) override {
    const Arrays at(*this, call.shape);
    const std::byte* const dh = call.deferred + at.dh;
    const std::byte* const gelu = call.saved + at.h;  // written by backward_input
    std::byte* const work = call.workspace + at.scratch;
    put_before(call, work, x);
    weight_gradient(call, {.m = channels_, .n = width_, .k = at.rows, .transpose_a = true}, now, x, dh);
    weight_gradient(call, {.m = channels_, .n = width_, .k = at.rows, .transpose_a = true}, previous, work, dh);
    weight_gradient(call, {.m = width_, .n = channels_, .k = at.rows, .transpose_a = true}, out, gelu,
                    call.deferred + at.dy);
    models::column_sums(call.stream, gradient(call, bias), precision_.gradient, dh, precision_.compute, at.rows,
                        width_, call.accumulate);
  }

 private:
  enum Parameter : std::size_t { now, previous, bias, out };

  /// Offsets of a call's arrays.
  struct Arrays {
    Arrays(const ShiftBlock& block, const models::MicrobatchShape& shape)
        : rows(static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions)) {
      h = saved.add(rows * block.width_, block.element());
      dh = deferred.add(rows * block.width_, block.element());
      dy = deferred.add(rows * block.channels_, block.element());
      scratch = workspace.add(rows * block.width_, block.element());
    }

    std::size_t rows;
    models::MemoryLayout saved, deferred, workspace;
    std::size_t h, dh, dy, scratch;
  };

  std::size_t element() const { return runtime::size_of(precision_.compute); }
  const std::byte* parameter(const LayerCall& call, Parameter p) const {
    return call.parameters[0] + units()[0].offset(p) * element();
  }
  std::byte* gradient(const LayerCall& call, Parameter p) const {
    return call.gradients[0] + units()[0].offset(p) * runtime::size_of(precision_.gradient);
  }

  void product(const LayerCall& call, const models::MatmulShape& shape, std::byte* c, const std::byte* a,
               const std::byte* b, const std::byte* added = nullptr, bool accumulate = false) const {
    const runtime::DType dtype = precision_.compute;
    models::matmul(
        call.stream, shape,
        {.c = c, .c_dtype = dtype, .a = a, .b = b, .dtype = dtype, .bias = added, .accumulate = accumulate});
  }
  void weight_gradient(const LayerCall& call, const models::MatmulShape& shape, Parameter p, const std::byte* a,
                       const std::byte* b) const {
    models::matmul(call.stream, shape,
                   {.c = gradient(call, p),
                    .c_dtype = precision_.gradient,
                    .a = a,
                    .b = b,
                    .dtype = precision_.compute,
                    .accumulate = call.accumulate});
  }

  /// to[b, t] = from[b, t - 1], and 0 for t = 0.
  void put_before(const LayerCall& call, std::byte* to, const std::byte* from) const {
    const std::size_t position = channels_ * element();
    const std::size_t sample = static_cast<std::size_t>(call.shape.positions) * position;
    for (int b = 0; b < call.shape.samples; ++b, to += sample, from += sample) {
      runtime::fill_zero(call.stream, to, position);
      runtime::copy(call.stream, to + position, from, sample - position);
    }
  }

  /// to[b, t] += from[b, t + 1]
  void add_after(const LayerCall& call, std::byte* to, const std::byte* from) const {
    const auto positions = static_cast<std::size_t>(call.shape.positions);
    const std::size_t position = channels_ * element();
    for (int b = 0; b < call.shape.samples; ++b, to += positions * position, from += positions * position)
      runtime::add(call.stream, to, from + position, precision_.compute, (positions - 1) * channels_);
  }

  std::size_t channels_, width_;
  models::Precision precision_;
};

/// Builds the same job on every rank.
apps::Job make_job(const apps::TrainOptions& options) {
  if (options.data.data.empty())
    fail(ErrorCode::usage,
         "--data is missing; add --data PATH, a text file, a folder of text files or a token file");
  models::GptOptions gpt = options.model.gpt();
  gpt.precision = options.trainer.precision;

  models::Architecture model = models::make_gpt(gpt);  // for its embedding and head
  apps::Job job;
  job.architecture.name = fmt::format("{} blocks without attention", gpt.layers);
  job.architecture.positions = gpt.sequence_length;
  job.architecture.precision = gpt.precision;
  job.architecture.layers.push_back(std::move(model.layers.front()));
  for (int l = 0; l < gpt.layers; ++l) {
    job.architecture.layers.push_back(
        std::make_unique<ShiftBlock>(l, static_cast<std::size_t>(gpt.hidden), gpt.precision));
  }
  job.architecture.layers.push_back(std::move(model.layers.back()));

  models::TextDataOptions data{
      .path = options.data.data,
      .tokenizer = options.data.gpt2,
      .reading = {.format = options.data.reading.format, .json_field = options.data.reading.json_field},
      .sequence_length = gpt.sequence_length,
      .vocab_size = gpt.vocab_size,
      .documents = options.data.documents,
      .document_end = options.data.document_end,
      .validation_split = options.data.validation_split};
  if (options.data.shuffle) data.shuffle_seed = options.trainer.seed;
  models::TextData text = models::open_text_data(data);
  job.source = std::move(text.training);
  job.validation = std::move(text.validation);
  job.sample = job.source->sample_bytes();
  job.files = text.files;
  return job;
}

}  // namespace

int main(int argc, char** argv) { return apps::launch("shift-train", argc, argv, make_job); }
