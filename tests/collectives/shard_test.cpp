#include "collectives/plans/shard.hpp"

#include "runtime/base/error.hpp"
#include "tests/collectives/all_shardings.hpp"
#include "tests/test.hpp"

#include <set>

using namespace ranvier;
using namespace ranvier::collectives;

namespace {

constexpr Scope scopes[] = {Scope::none, Scope::group, Scope::global};

struct Column {
  std::vector<int> node_of;
  int group_size = 1;
};

const Column columns[] = {
    {{0}, 1},
    {{0, 0, 0, 0}, 2},
    {{0, 0, 0, 0}, 4},
    {{0, 0, 1, 1}, 2},
    {{0, 0, 1, 1}, 1},
    {{0, 0, 1, 1}, 4},
    {{0, 1, 0, 1}, 2},
    {{0, 0, 0, 1, 1, 1}, 3},
    {{0, 0, 0, 1, 1, 1}, 2},
    {{0, 0, 1, 1, 2, 2}, 6},
    {{0, 0, 1, 1, 2, 2, 3, 3}, 4},
    {{0, 0, 0, 0, 1}, 5},
};

/// A column whose ranks each hold a unit of `elements`, in plain arrays.
class Ranks {
 public:
  Ranks(const Column& column, std::size_t elements) : elements_(elements) {
    for (int r = 0; r < static_cast<int>(column.node_of.size()); ++r) {
      layouts.emplace_back(column.node_of, column.group_size, r);
      data.emplace_back(elements, 0.0);
    }
  }

  /// The collective's result as MPI defines it, on the ranges of the layout.
  void run(const Hop& hop) {
    const auto before = data;
    for (std::size_t r = 0; r < layouts.size(); ++r) {
      const Team& team = layouts[r].team(hop.team);
      const Range mine =
          layouts[r].range(hop.collective == Collective::reduce_scatter ? hop.piece : hop.whole, elements_);
      for (std::size_t e = mine.begin; e < mine.begin + mine.count; ++e) {
        double sum = 0;
        for (const int member : team.members) {
          const auto m = static_cast<std::size_t>(member);
          const Range piece = layouts[m].range(hop.piece, elements_);
          const bool has = e >= piece.begin && e < piece.begin + piece.count;
          if (hop.collective != Collective::all_gather || has) sum += before[m][e];
        }
        data[r][e] = sum;
      }
    }
  }

  std::vector<ShardLayout> layouts;
  std::vector<std::vector<double>> data;

 private:
  std::size_t elements_;
};

}  // namespace

TEST_CASE("a sharding is a name or three letters, and nothing else") {
  CHECK(parse_sharding("zero1") == Sharding{Scope::none, Scope::none, Scope::global});
  CHECK(parse_sharding("paro-iig") == parse_sharding("IIG"));
  CHECK(parse_sharding("nig") == parse_sharding("paro-nig"));
  CHECK(parse_sharding("zero++").secondary_parameters);
  CHECK(to_string(parse_sharding("GIN")) == "GIN");
  for (const NamedSharding& named : named_shardings()) CHECK(to_string(named.sharding) == named.name);
  for (const char* wrong : {"", "zero4", "NN", "NNNN", "NXN"}) {
    CAPTURE(wrong);
    CHECK(ranvier::tests::says(ranvier::tests::error_of([&] { (void)parse_sharding(wrong); }),
                               ranvier::ErrorCode::usage, "paro-nig"));
  }
}

TEST_CASE("pieces of a scope cover a unit once per copy, and finer ones are parts of coarser ones") {
  for (const Column& column : columns) {
    const auto ranks = column.node_of.size();
    const std::size_t elements = ranks * 6;
    for (Scope scope : scopes) {
      std::vector<int> held(elements, 0);
      int copies = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        const ShardLayout layout(column.node_of, column.group_size, static_cast<int>(r));
        copies = layout.ranks() / layout.pieces(scope);
        const Range range = layout.range(scope, elements);
        for (std::size_t e = range.begin; e < range.begin + range.count; ++e) ++held[e];
        for (std::size_t other = 0; other < ranks; ++other) {
          const auto& group = layout.team(TeamKind::group).members;
          const bool in_group = std::ranges::find(group, static_cast<int>(other)) != group.end();
          const bool expected = scope == Scope::none ? other == r : scope == Scope::global || in_group;
          CHECK(layout.share_copy(scope, static_cast<int>(r), static_cast<int>(other)) == expected);
        }
        const Range global = layout.range(Scope::global, elements);
        CHECK(global.begin >= range.begin);
        CHECK(global.begin + global.count <= range.begin + range.count);
      }
      CHECK(std::all_of(held.begin(), held.end(), [&](int count) { return count == copies; }));
    }
  }
}

TEST_CASE("the hops of every sharding work on the pieces that their teams own") {
  for (const Column& column : columns)
    for (std::size_t r = 0; r < column.node_of.size(); ++r) {
      const ShardLayout layout(column.node_of, column.group_size, static_cast<int>(r));
      const std::size_t elements = column.node_of.size() * 4;
      for (const Sharding& sharding : tests::all_shardings()) {
        for (const bool in_blocks : {false, true}) {
          const ShardFlow flow =
              layout.flow(sharding, in_blocks ? WireTypes{.reduce = {.inter_node = WireType::int4}} : WireTypes{});
          for (const auto* hops : {&flow.gather_forward, &flow.gather_backward, &flow.reduce_microbatch,
                                   &flow.reduce_batch, &flow.gather_gradient, &flow.refresh}) {
            for (const Hop& hop : *hops) {
              const Team& team = layout.team(hop.team);
              CHECK(team.members.size() > 1);
              if (hop.collective == Collective::all_reduce) continue;
              const Range whole = layout.range(hop.whole, elements);
              const int piece = team.topology.piece(team.index_of(static_cast<int>(r)));
              const Range owned = chunk_of_piece(whole.count, static_cast<int>(team.members.size()), piece, 1, 0);
              CHECK(Range{whole.begin + owned.begin, owned.count} == layout.range(hop.piece, elements));
            }
          }
        }
      }
    }
}

TEST_CASE(
    "under every sharding optimizer steps get the column's gradient sum, and all ranks get the parameters back") {
  for (const Column& column : columns) {
    const auto count = column.node_of.size();
    const std::size_t elements = count * 2;
    for (const Sharding& sharding : tests::all_shardings()) {
      for (const bool in_blocks : {false, true}) {
        CAPTURE_ALL(to_string(sharding), in_blocks);
        Ranks gradient(column, elements);
        std::vector<std::vector<double>> kept(count, std::vector<double>(elements, 0.0));
        std::vector<double> sum(elements, 0);
        std::vector<ShardFlow> flows;
        const WireTypes wire{.reduce = {.intra_node = in_blocks ? WireType::int8 : WireType::same}};
        for (const ShardLayout& layout : gradient.layouts) flows.push_back(layout.flow(sharding, wire));
        for (int microbatch = 1; microbatch <= 2; ++microbatch) {
          for (std::size_t r = 0; r < count; ++r)
            for (std::size_t e = 0; e < elements; ++e) {
              gradient.data[r][e] = static_cast<double>((r + 1) * 100 + e * static_cast<std::size_t>(microbatch));
              sum[e] += gradient.data[r][e];
            }
          for (const Hop& hop : flows[0].reduce_microbatch) gradient.run(hop);
          for (std::size_t r = 0; r < count; ++r)
            for (std::size_t e = 0; e < elements; ++e) kept[r][e] += gradient.data[r][e];
        }
        gradient.data = kept;
        const auto forget_outside = [&](Ranks& ranks, Scope scope) {
          for (std::size_t r = 0; r < count; ++r) {
            const Range range = ranks.layouts[r].range(scope, elements);
            for (std::size_t e = 0; e < elements; ++e)
              if (e < range.begin || e >= range.begin + range.count) ranks.data[r][e] = -1e9;
          }
        };
        forget_outside(gradient, sharding.gradients);
        for (const Hop& hop : flows[0].reduce_batch) gradient.run(hop);
        forget_outside(gradient, flows[0].reduced);
        for (const Hop& hop : flows[0].gather_gradient) gradient.run(hop);
        Ranks parameter(column, elements);
        for (std::size_t r = 0; r < count; ++r) {
          const Range range = gradient.layouts[r].range(sharding.optimizer, elements);
          for (std::size_t e = range.begin; e < range.begin + range.count; ++e) {
            CHECK(gradient.data[r][e] == sum[e]);
            parameter.data[r][e] = static_cast<double>(e) + 0.5;
          }
        }
        forget_outside(parameter, sharding.optimizer);
        for (const Hop& hop : flows[0].refresh) parameter.run(hop);
        forget_outside(parameter, sharding.parameters);
        auto fresh = parameter.data;
        for (const Hop& hop : flows[0].gather_forward) parameter.run(hop);
        for (std::size_t r = 0; r < count; ++r)
          for (std::size_t e = 0; e < elements; ++e) CHECK(parameter.data[r][e] == static_cast<double>(e) + 0.5);
        if (!sharding.secondary_parameters) continue;
        forget_outside(parameter, Scope::group);
        for (const Hop& hop : flows[0].gather_backward) parameter.run(hop);
        CHECK(parameter.data[0][elements - 1] == static_cast<double>(elements - 1) + 0.5);
      }
    }
  }
}

TEST_CASE("named shardings send the volumes of the papers") {
  const std::vector<int> node_of{0, 0, 1, 1};
  const ShardLayout layout(node_of, 2, 0);
  constexpr auto gather = Collective::all_gather, scatter = Collective::reduce_scatter,
                 reduce = Collective::all_reduce;
  const auto column = TeamKind::column, group = TeamKind::group, replicas = TeamKind::replicas;
  const Scope N = Scope::none, I = Scope::group, G = Scope::global;
  using Hops = std::vector<Hop>;

  const ShardFlow zero1 = layout.flow(parse_sharding("zero1"));
  CHECK(zero1.reduce_batch == Hops{{scatter, column, N, G}});
  CHECK(zero1.refresh == Hops{{gather, column, N, G}});
  const ShardFlow mics = layout.flow(parse_sharding("mics"));
  CHECK(mics.gather_forward == Hops{{gather, group, N, I}});
  CHECK(mics.reduce_microbatch == Hops{{scatter, group, N, I}});
  CHECK(mics.reduce_batch == Hops{{reduce, replicas, I, I}});
  CHECK(mics.refresh.empty());
  const ShardFlow igg = layout.flow(parse_sharding("paro-igg"));
  CHECK(igg.reduce_microbatch == Hops{{scatter, group, N, I}, {scatter, replicas, I, G}});
  CHECK(igg.reduce_batch.empty());
  CHECK(igg.refresh == Hops{{gather, replicas, I, G}});
  const ShardFlow nig = layout.flow(parse_sharding("paro-nig"));
  CHECK(nig.reduce_batch == Hops{{scatter, replicas, I, G}});
  CHECK(nig.refresh == Hops{{gather, replicas, I, G}, {gather, group, N, I}});
  const ShardFlow zeropp = layout.flow(parse_sharding("zero++"));
  CHECK(zeropp.gather_forward == Hops{{gather, column, N, G}});
  CHECK(zeropp.gather_backward == Hops{{gather, group, N, I}});
}

TEST_CASE("gradients in blocks are reduced in groups first, and other gradients and parameters as before") {
  const ShardLayout layout(std::vector<int>{0, 0, 1, 1}, 2, 0);
  constexpr auto gather = Collective::all_gather, scatter = Collective::reduce_scatter,
                 reduce = Collective::all_reduce;
  const auto column = TeamKind::column, group = TeamKind::group, replicas = TeamKind::replicas;
  const Scope N = Scope::none, I = Scope::group, G = Scope::global;
  using Hops = std::vector<Hop>;
  const WireTypes sums{.reduce = {.inter_node = WireType::int4}}, gathers{.gather = {.intra_node = WireType::int8}};

  CHECK(layout.flow(parse_sharding("ddp"), sums).reduce_batch ==
        Hops{{scatter, group, N, I}, {reduce, replicas, I, I}, {gather, group, N, I}});
  const ShardFlow zero1 = layout.flow(parse_sharding("zero1"), sums);
  CHECK(zero1.reduce_batch == Hops{{scatter, group, N, I}, {scatter, replicas, I, G}});
  CHECK(zero1.refresh == Hops{{gather, column, N, G}});
  const ShardFlow zero3 = layout.flow(parse_sharding("zero3"), sums);
  CHECK(zero3.reduce_microbatch == Hops{{scatter, group, N, I}, {scatter, replicas, I, G}});
  CHECK(zero3.gather_forward == Hops{{gather, column, N, G}});
  CHECK(layout.flow(parse_sharding("NGN"), sums).gather_gradient ==
        Hops{{gather, replicas, I, G}, {gather, group, N, I}});
  CHECK(layout.flow(parse_sharding("ddp"), gathers).reduce_batch == Hops{{reduce, column, N, N}});
  // Groups of one rank, and a single group.
  CHECK(ShardLayout(std::vector<int>{0, 0, 1, 1}, 1, 0).flow({}, sums).reduce_batch ==
        Hops{{reduce, replicas, I, I}});
  CHECK(ShardLayout(std::vector<int>{0, 0, 1, 1}, 4, 0).flow({}, sums).reduce_batch ==
        Hops{{scatter, group, N, I}, {gather, group, N, I}});
}

TEST_CASE("messages of all teams of a kind have one type: the one between nodes if any team spans nodes") {
  const WireTypes::Links types{.intra_node = WireType::int8, .inter_node = WireType::int4};
  const auto of = [&](const std::vector<int>& node_of, int group_size, TeamKind kind) {
    std::set<WireType> found;
    for (int rank = 0; rank < static_cast<int>(node_of.size()); ++rank)
      found.insert(ShardLayout(node_of, group_size, rank).wire_type(kind, types));
    REQUIRE(found.size() == 1);
    return *found.begin();
  };
  CHECK(of({0, 0, 1, 1}, 2, TeamKind::column) == WireType::int4);
  CHECK(of({0, 0, 1, 1}, 2, TeamKind::group) == WireType::int8);
  CHECK(of({0, 0, 1, 1}, 2, TeamKind::replicas) == WireType::int4);
  CHECK(of({0, 0, 0, 0}, 2, TeamKind::column) == WireType::int8);
  CHECK(of({0, 0, 0, 0}, 2, TeamKind::replicas) == WireType::int8);
  CHECK(of({0, 0, 0, 1, 1, 1}, 2, TeamKind::group) == WireType::int4);  // one group of three spans nodes
}

TEST_CASE("rows count as neighbors only if they share a node in every column") {
  // Two columns of four rows on nodes of six ranks.
  const std::vector<int> node_of{0, 0, 0, 0, 0, 0, 1, 1};
  CHECK(common_rows(node_of, 2, 4) == std::vector<int>{0, 0, 1, 1});
  CHECK(common_rows(std::vector<int>{0, 0, 0, 0}, 2, 2) == std::vector<int>{0, 0});
}
