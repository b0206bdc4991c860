// Prints which ranks share memory, and moves bytes between ranks over MpiTransport: the test program of an emulated
// cluster.
//
//   ranvier_move_bytes [FROM:TO:BYTES...]
//
// All moves run at once. Each is checked by its receiver. Rank 0 prints one JSON line: the ranks of each node, as MPI
// reports them, and the time from the first send to the last arrival.
#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <utility>
#include <vector>

using namespace ranvier;
using namespace ranvier::runtime;

namespace {

struct Move {
  int from = 0;
  int to = 0;
  std::size_t bytes = 0;
};

Move parse(const char* text, int ranks) {
  Move move;
  char rest = 0;
  if (std::sscanf(text, "%d:%d:%zu%c", &move.from, &move.to, &move.bytes, &rest) != 3) {
    fail(ErrorCode::usage, "'{}' is not FROM:TO:BYTES", text);
  }
  const bool exist = std::min(move.from, move.to) >= 0 && std::max(move.from, move.to) < ranks;
  if (!exist || move.from == move.to) fail(ErrorCode::usage, "'{}' does not name two of the {} ranks", text, ranks);
  return move;
}

std::byte content(const Move& move, std::size_t i) {
  return static_cast<std::byte>(i * 31 + (i >> 12) + static_cast<std::size_t>(move.from * 7 + move.to * 3));
}

/// For every rank, the lowest rank that it shares memory with.
std::vector<int> leaders(const MpiSession& session) {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int leader = session.rank();
  MPI_Allreduce(MPI_IN_PLACE, &leader, 1, MPI_INT, MPI_MIN, node);
  MPI_Comm_free(&node);
  std::vector<int> all(static_cast<std::size_t>(session.ranks()));
  MPI_Allgather(&leader, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  return all;
}

double run(MpiSession& session, const std::vector<Move>& moves) {
  AsioLoop loop;
  MpiTransport transport(session, loop);
  int left = 0;
  const Handler done = [&] {
    if (--left == 0) loop.stop();
  };
  std::vector<std::vector<std::byte>> data(moves.size());
  const auto tag = [](std::size_t m) { return Tag{Channel::user, static_cast<std::uint32_t>(m)}; };
  for (std::size_t m = 0; m < moves.size(); ++m) {
    if (session.rank() != moves[m].from && session.rank() != moves[m].to) continue;
    data[m].resize(moves[m].bytes);
    if (session.rank() != moves[m].from) continue;
    for (std::size_t i = 0; i < data[m].size(); ++i) data[m][i] = content(moves[m], i);
  }
  session.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t m = 0; m < moves.size(); ++m) {
    if (session.rank() == moves[m].to) transport.receive(moves[m].from, tag(m), Bytes(data[m]), (++left, done));
    if (session.rank() == moves[m].from) transport.send(moves[m].to, tag(m), ConstBytes(data[m]), (++left, done));
  }
  if (left > 0) loop.run();
  session.barrier();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (std::size_t m = 0; m < moves.size(); ++m) {
    if (session.rank() != moves[m].to) continue;
    for (std::size_t i = 0; i < data[m].size(); ++i) {
      if (data[m][i] == content(moves[m], i)) continue;
      fail(ErrorCode::transport, "byte {} from rank {} to rank {} is wrong", i, moves[m].from, moves[m].to);
    }
  }
  return seconds.count();
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  try {
    std::vector<Move> moves;
    for (int a = 1; a < argc; ++a) moves.push_back(parse(argv[a], session.ranks()));
    const std::vector<int> leader = leaders(session);
    const double seconds = run(session, moves);
    std::map<int, std::vector<int>> nodes;
    for (int rank = 0; rank < session.ranks(); ++rank)
      nodes[leader[static_cast<std::size_t>(rank)]].push_back(rank);
    std::vector<std::vector<int>> groups;
    for (auto& [first, ranks] : nodes) groups.push_back(std::move(ranks));
    if (session.rank() == 0) fmt::print("{{\"nodes\": {}, \"seconds\": {:.4f}}}\n", groups, seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ranvier_move_bytes: rank %d: %s\n", session.rank(), error.what());
    session.abort(1);
  }
}
