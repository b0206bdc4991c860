// Communicator that sends numbers in blocks of 8 or 4 bits (ZeRO++ §3.1, §3.3). It packs data and runs collectives of
// another backend on the packed bytes, so algorithms and NCCL stay as they are:
//
//   all-gather       all-gather of encoded pieces; all ranks decode all pieces, their own too, so all have equal values
//   reduce-scatter   all-to-all of encoded pieces; an owner adds the others' pieces to its own in fp32, in the order of
//                    pieces, and rounds once. Only the others' contributions lose precision, once
//   all-reduce       both: the sums are encoded and gathered
//
// Pieces and runs are multiples of 256 elements. Operations start in the order of the calls. Loop thread only.
#pragma once

#include "collectives/communicators/communicator.hpp"
#include "collectives/plans/wire_type.hpp"
#include "runtime/device/slot_pool.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/kernels/block_codec.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::collectives {

/// Blocks of messages with this type; none: messages have the type of the data.
[[nodiscard]] std::optional<runtime::BlockCode> block_code(WireType type) noexcept;

class QuantizedCommunicator final : public Communicator {
 public:
  struct Options {
    runtime::BlockCode code = runtime::BlockCode::int8;
    std::vector<std::byte*> packed;  ///< one buffer per running operation; others wait in order
    std::size_t packed_bytes = 0;    ///< bytes of each buffer
  };
  /// Type of packed data, of which blocks are multiples.
  static constexpr runtime::DType packed_dtype = runtime::DType::i32;

  /// Shapes of the operations of the other backend, in their order.
  [[nodiscard]] static std::vector<OperationShape> packed_shapes(const OperationShape& shape,
                                                                 runtime::BlockCode code);
  /// Bytes of one buffer for any of `shapes`.
  [[nodiscard]] static std::size_t packed_bytes(std::span<const OperationShape> shapes, runtime::BlockCode code);

  /// `inner` runs one operation per buffer at a time, without staging; `stream` encodes and decodes. Loop and stream
  /// must outlive it.
  QuantizedCommunicator(runtime::EventLoop& loop, runtime::StreamView stream, std::unique_ptr<Communicator> inner,
                        Options options);

  [[nodiscard]] const Team& team() const noexcept override { return inner_->team(); }
  [[nodiscard]] int me() const noexcept override { return inner_->me(); }
  void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
           runtime::Handler done) override;

 private:
  struct Running;
  using Operation = std::shared_ptr<Running>;

  void start(const Operation& operation);
  /// Adds the arrived pieces to this rank's own.
  void sum(const Operation& operation);
  /// Encodes this rank's pieces and gathers all; inner operation `number`.
  void gather(const Operation& operation, std::uint64_t number);
  void decode(const Operation& operation);
  /// Runs an inner operation, in the order of numbers, after the stream's work.
  void run_inner(Collective collective, const Operation& operation, std::uint64_t number, runtime::Handler next);
  void finish(const Operation& operation);

  runtime::EventLoop& loop_;
  runtime::StreamView stream_;
  std::unique_ptr<Communicator> inner_;
  Options options_;
  runtime::SlotPool packed_{options_.packed};
  runtime::InOrder calls_;     // starts of inner operations
  std::uint64_t numbers_ = 0;  // inner operations
};

}  // namespace ranvier::collectives
