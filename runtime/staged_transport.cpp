#include "runtime/staged_transport.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <vector>

namespace ranvier::runtime {

namespace {

/// The ranges of each piece: the bytes of the message, cut at multiples of `piece_bytes`. An empty message has one.
template <typename Range>
std::vector<std::vector<Range>> pieces_of(std::span<const Range> ranges, std::size_t piece_bytes) {
  std::vector<std::vector<Range>> pieces(1);
  std::size_t room = piece_bytes;
  for (Range range : ranges) {
    while (!range.empty()) {
      if (room == 0) {
        pieces.emplace_back();
        room = piece_bytes;
      }
      const std::size_t taken = std::min(room, range.size());
      pieces.back().push_back(range.first(taken));
      range = range.subspan(taken);
      room -= taken;
    }
  }
  return pieces;
}

template <typename Range>
std::size_t bytes_of(const std::vector<Range>& ranges) {
  std::size_t bytes = 0;
  for (const Range& range : ranges) bytes += range.size();
  return bytes;
}

/// Calls `done` when it has been called `times` times.
Handler last_of(std::size_t times, Handler done) {
  if (times == 1) return done;
  return [left = std::make_shared<std::size_t>(times), done = std::move(done)] {
    if (--*left == 0) done();
  };
}

}  // namespace

StagedTransport::StagedTransport(EventLoop& loop, Transport& host, Device& device, std::size_t piece_bytes)
    : loop_(&loop),
      host_(&host),
      device_(&device),
      piece_bytes_(piece_bytes),
      pool_(device),
      to_host_(device.make_stream("to host", StreamWidth::one)),
      to_device_(device.make_stream("to device", StreamWidth::one)) {
  expect(piece_bytes >= 1, "messages are staged in pieces of {} bytes", piece_bytes);
}

void StagedTransport::prepare(std::size_t message_bytes, std::size_t messages) {
  std::vector<std::shared_ptr<std::byte>> taken;
  for (std::size_t m = 0; m < messages; ++m) {
    for (std::size_t begin = 0; begin < message_bytes; begin += piece_bytes_)
      taken.push_back(pool_.take(std::min(piece_bytes_, message_bytes - begin)));
  }
}

void StagedTransport::send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) {
  auto pieces = pieces_of(ranges, piece_bytes_);
  const Handler piece_done = last_of(pieces.size(), std::move(done));
  for (auto& piece : pieces) send_piece(peer, tag, std::move(piece), piece_done);
}

void StagedTransport::receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) {
  auto pieces = pieces_of(ranges, piece_bytes_);
  const Handler piece_done = last_of(pieces.size(), std::move(done));
  for (auto& piece : pieces) receive_piece(peer, tag, std::move(piece), piece_done);
}

void StagedTransport::send_piece(int peer, Tag tag, std::vector<ConstBytes> ranges, Handler done) {
  const bool reached =
      std::all_of(ranges.begin(), ranges.end(), [&](ConstBytes range) { return device_->host_reaches(range.data()); });
  const Way way(peer, tag);
  if (reached && !copying_.contains(way)) return host_->send(peer, tag, ranges, std::move(done));

  std::shared_ptr<std::byte> staging;
  if (!reached) {
    const std::size_t bytes = bytes_of(ranges);
    staging = pool_.take(bytes);
    std::size_t at = 0;
    for (const ConstBytes range : ranges) {
      copy(*to_host_, staging.get() + at, range.data(), range.size());
      at += range.size();
    }
    ranges = {ConstBytes(staging.get(), bytes)};
  }
  ++copying_[way];
  to_host_->call_back([this, peer, tag, way, staging, ranges = std::move(ranges), done = std::move(done)]() mutable {
    loop_->post([this, peer, tag, way, staging = std::move(staging), ranges = std::move(ranges),
                 done = std::move(done)]() mutable {
      if (const auto here = copying_.find(way); --here->second == 0) copying_.erase(here);
      const std::span<const ConstBytes> bytes(ranges);
      host_->send(peer, tag, bytes, [staging = std::move(staging), done = std::move(done)] { done(); });
    });
  });
}

void StagedTransport::receive_piece(int peer, Tag tag, std::vector<Bytes> ranges, Handler done) {
  if (std::all_of(ranges.begin(), ranges.end(), [&](Bytes range) { return device_->host_reaches(range.data()); })) {
    return host_->receive(peer, tag, ranges, std::move(done));
  }
  const std::size_t bytes = bytes_of(ranges);
  const auto staging = pool_.take(bytes);
  host_->receive(peer, tag, Bytes(staging.get(), bytes),
                 [this, staging, ranges = std::move(ranges), done = std::move(done)] {
                   std::size_t at = 0;
                   for (const Bytes range : ranges) {
                     copy(*to_device_, range.data(), staging.get() + at, range.size());
                     at += range.size();
                   }
                   to_device_->call_back([this, staging, done] { loop_->post(done); });
                 });
}

}  // namespace ranvier::runtime
