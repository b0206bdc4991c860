#include "collectives/communicators/quantized_communicator.hpp"

#include "collectives/communicators/executor.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::collectives {

namespace {

bool sums(Collective collective) { return collective != Collective::all_gather; }

/// Bytes of a part in a buffer: its encoded pieces, and for a sum the received ones.
std::size_t packed_part_bytes(Collective collective, std::size_t elements, runtime::BlockCode code) {
  return Executor::staged_bytes(runtime::coded_bytes(code, elements) * (sums(collective) ? 2 : 1));
}

}  // namespace

std::optional<runtime::BlockCode> block_code(WireType type) noexcept {
  if (type == WireType::same) return std::nullopt;
  return type == WireType::int8 ? runtime::BlockCode::int8 : runtime::BlockCode::int4;
}

struct QuantizedCommunicator::Running {
  Collective collective = Collective::all_gather;
  std::vector<Operand> parts;
  std::vector<std::size_t> offsets;  ///< byte offsets of the parts in the buffer
  runtime::DType dtype = runtime::DType::f32;
  std::string what;
  runtime::Handler done;
  std::uint64_t number = 0;  ///< number of the first inner operation
  runtime::SlotPool::Slot packed;
};

std::vector<OperationShape> QuantizedCommunicator::packed_shapes(const OperationShape& shape,
                                                                 runtime::BlockCode code) {
  const auto packed = [&](Collective collective) {
    OperationShape made{.collective = collective, .parts = {}, .dtype = packed_dtype};
    for (const std::size_t elements : shape.parts) {
      made.parts.push_back(runtime::coded_bytes(code, elements) / size_of(packed_dtype) *
                           (collective == Collective::all_to_all ? 2 : 1));
    }
    return made;
  };
  std::vector<OperationShape> shapes;
  if (sums(shape.collective)) shapes.push_back(packed(Collective::all_to_all));
  if (shape.collective != Collective::reduce_scatter) shapes.push_back(packed(Collective::all_gather));
  return shapes;
}

std::size_t QuantizedCommunicator::packed_bytes(std::span<const OperationShape> shapes, runtime::BlockCode code) {
  std::size_t most = 0;
  for (const OperationShape& shape : shapes) {
    std::size_t bytes = 0;
    for (const std::size_t elements : shape.parts) bytes += packed_part_bytes(shape.collective, elements, code);
    most = std::max(most, bytes);
  }
  return most;
}

QuantizedCommunicator::QuantizedCommunicator(runtime::EventLoop& loop, runtime::StreamView stream,
                                             std::unique_ptr<Communicator> inner, Options options)
    : loop_(loop), stream_(stream), inner_(std::move(inner)), options_(std::move(options)) {
  expect(team().topology.ranks() == 1 || !options_.packed.empty(), "a quantized communicator has no buffers");
}

void QuantizedCommunicator::run(Collective collective, std::span<const Operand> parts, runtime::DType dtype,
                                std::string what, runtime::Handler done) {
  const auto ranks = static_cast<std::size_t>(team().topology.ranks());
  const auto operation = std::make_shared<Running>();
  std::size_t bytes = 0;
  for (const Operand& part : parts) {
    if (part.elements == 0) continue;
    expect(part.elements % (ranks * runtime::code_block_elements) == 0,
           "{}: {} elements are not divisible into blocks of {} elements of {} ranks", what, part.elements,
           runtime::code_block_elements, ranks);
    operation->parts.push_back(part);
    operation->offsets.push_back(bytes);
    bytes += packed_part_bytes(collective, part.elements, options_.code);
  }
  if (ranks == 1 || bytes == 0) return loop_.post(std::move(done));
  expect(bytes <= options_.packed_bytes, "{}: {} needs {} bytes for packed data, but {} were planned", what,
         to_string(collective), bytes, options_.packed_bytes);
  operation->collective = collective;
  operation->dtype = dtype;
  operation->what = std::move(what);
  operation->done = std::move(done);
  operation->number = numbers_;
  numbers_ += collective == Collective::all_reduce ? 2 : 1;
  packed_.when_free([this, operation](const runtime::SlotPool::Slot& slot) {
    operation->packed = slot;
    operation->done = tracked(operation->what, loop_.now(), std::move(operation->done));
    start(operation);
  });
}

void QuantizedCommunicator::start(const Operation& operation) {
  if (!sums(operation->collective)) return gather(operation, operation->number);
  for (std::size_t p = 0; p < operation->parts.size(); ++p) {
    const auto& [data, elements, run, stride] = operation->parts[p];
    runtime::encode_blocks(stream_, options_.code, operation->packed.data(operation->offsets[p]), data,
                           operation->dtype, elements, {run, stride});
  }
  run_inner(Collective::all_to_all, operation, operation->number, [this, operation] { sum(operation); });
}

void QuantizedCommunicator::sum(const Operation& operation) {
  const Topology& topology = team().topology;
  const auto ranks = static_cast<std::size_t>(topology.ranks());
  const auto mine = static_cast<std::size_t>(topology.piece(me()));
  for (std::size_t p = 0; p < operation->parts.size(); ++p) {
    const auto& [data, elements, run, stride] = operation->parts[p];
    const std::size_t arrived = operation->offsets[p] + runtime::coded_bytes(options_.code, elements);
    runtime::add_blocks(stream_, options_.code, data, operation->dtype, operation->packed.data(arrived), ranks,
                        mine, elements / ranks, {run, stride, mine * (elements / ranks)});
  }
  if (operation->collective == Collective::all_reduce) return gather(operation, operation->number + 1);
  finish(operation);
}

void QuantizedCommunicator::gather(const Operation& operation, std::uint64_t number) {
  const Topology& topology = team().topology;
  const auto ranks = static_cast<std::size_t>(topology.ranks());
  const auto mine = static_cast<std::size_t>(topology.piece(me()));
  for (std::size_t p = 0; p < operation->parts.size(); ++p) {
    const auto& [data, elements, run, stride] = operation->parts[p];
    const std::size_t piece = elements / ranks;
    const std::size_t own = operation->offsets[p] + mine * runtime::coded_bytes(options_.code, piece);
    runtime::encode_blocks(stream_, options_.code, operation->packed.data(own), data, operation->dtype, piece,
                           {run, stride, mine * piece});
  }
  run_inner(Collective::all_gather, operation, number, [this, operation] { decode(operation); });
}

void QuantizedCommunicator::decode(const Operation& operation) {
  for (std::size_t p = 0; p < operation->parts.size(); ++p) {
    const auto& [data, elements, run, stride] = operation->parts[p];
    runtime::decode_blocks(stream_, options_.code, data, operation->dtype,
                           operation->packed.data(operation->offsets[p]), elements, {run, stride});
  }
  finish(operation);
}

void QuantizedCommunicator::run_inner(Collective collective, const Operation& operation, std::uint64_t number,
                                      runtime::Handler next) {
  const auto call = [this, collective, operation, next = std::move(next)] {
    std::vector<Operand> packed;
    for (std::size_t p = 0; p < operation->parts.size(); ++p) {
      const std::size_t words =
          runtime::coded_bytes(options_.code, operation->parts[p].elements) / size_of(packed_dtype);
      packed.push_back({operation->packed.data(operation->offsets[p]),
                        collective == Collective::all_to_all ? 2 * words : words});
    }
    inner_->run(collective, packed, packed_dtype, operation->what, next);
  };
  loop_.after_work(stream_, {"collectives", "encoding data to send"},
                   [this, number, call] { calls_.run(number, call); });
}

void QuantizedCommunicator::finish(const Operation& operation) {
  loop_.after_work(stream_, {"collectives", "decoding received data"}, [this, operation] {
    operation->packed.release();
    packed_.serve();
    operation->done();
  });
}

}  // namespace ranvier::collectives
