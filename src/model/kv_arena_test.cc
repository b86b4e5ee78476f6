// SPDX-License-Identifier: Apache-2.0
#include "model/kv_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/prng.h"

namespace pagewise::model {
namespace {

kv::Geometry two_groups(uint32_t block_tokens) {
  kv::Geometry geometry;
  geometry.block_tokens = block_tokens;
  geometry.groups.push_back({.layers = 3,
                             .kv_heads = 2,
                             .key_dim = 8,
                             .value_dim = 12,
                             .window = 0,
                             .key_type = KvType::kF16,
                             .value_type = KvType::kF32});
  geometry.groups.push_back({.layers = 1,
                             .kv_heads = 1,
                             .key_dim = 64,
                             .value_dim = 64,
                             .window = 512,
                             .key_type = KvType::kBF16,
                             .value_type = KvType::kBF16});
  return geometry;
}

std::unique_ptr<KvArena> make(uint32_t block_tokens, uint32_t blocks) {
  const std::vector<uint32_t> counts = {blocks, blocks + 1};
  auto arena = KvArena::create(two_groups(block_tokens), counts);
  EXPECT_TRUE(arena.has_value());
  return std::move(*arena);
}

bool all_zero(const KvArena& arena, uint32_t group, BlockId id) {
  std::vector<std::byte> bytes(arena.geometry().block_bytes(group));
  arena.read(group, id, bytes);
  for (const std::byte byte : bytes) {
    if (byte != std::byte{0}) return false;
  }
  return true;
}

TEST(KvArena, GrowsInPlaceUpToWhatIsReservedAndKeepsWhatIsThere) {
  const std::vector<uint32_t> blocks = {2, 3}, reserved = {1'000'000, 1'000'000};
  auto created = KvArena::create(two_groups(16), blocks, reserved);
  ASSERT_TRUE(created.has_value());
  KvArena& arena = **created;
  const BlockId last(1);
  arena.commit(0, std::span(&last, 1));
  std::byte* const place = arena.block(0, last);
  std::vector<std::byte> bytes(arena.geometry().block_bytes(0), std::byte{42}), read(bytes.size());
  arena.write(0, last, bytes);

  const std::vector<uint32_t> more = {40, 2};
  ASSERT_TRUE(arena.grow(more).has_value());
  EXPECT_EQ(arena.blocks(0), 40U);
  EXPECT_EQ(arena.blocks(1), 3U) << "ids never become fewer";
  EXPECT_EQ(arena.block(0, last), place);
  arena.read(0, last, read);
  EXPECT_EQ(read, bytes);
  EXPECT_EQ(arena.committed(0), 1U) << "growing takes no memory";
  EXPECT_EQ(arena.committed_bytes(), arena.geometry().block_stride(0));
  const BlockId new_one(39);
  arena.commit(0, std::span(&new_one, 1));
  EXPECT_TRUE(all_zero(arena, 0, new_one));
  arena.release(0, std::span(&last, 1));
  EXPECT_EQ(arena.committed_bytes(), arena.geometry().block_stride(0));

  const std::vector<uint32_t> too_many = {1'000'001, 3};
  EXPECT_EQ(arena.grow(too_many).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(arena.blocks(0), 40U);
}

TEST(KvArena, DoesNotGrowBeyondItsBlocksWithoutAReserve) {
  auto arena = make(16, 4);
  const std::vector<uint32_t> more = {5, 5};
  EXPECT_EQ(arena->grow(more).code(), ErrorCode::kInvalidArgument);
}

TEST(KvArena, KeepsBlocksApartAndWithinTheirStride) {
  for (const uint32_t block_tokens : {1U, 16U, 32U, 256U}) {
    auto arena = make(block_tokens, 5);
    for (uint32_t group = 0; group < 2; ++group) {
      std::vector<BlockId> ids;
      for (uint32_t i = 0; i < arena->blocks(group); ++i) ids.emplace_back(i);
      arena->commit(group, ids);
      // Each block carries its own byte; an overlap would show in another block.
      std::vector<std::byte> bytes(arena->geometry().block_bytes(group));
      for (const BlockId id : ids) {
        std::memset(bytes.data(), static_cast<int>(id.value) + 1, bytes.size());
        arena->write(group, id, bytes);
      }
      for (const BlockId id : ids) {
        arena->read(group, id, bytes);
        for (const std::byte byte : bytes) ASSERT_EQ(static_cast<uint32_t>(byte), id.value + 1);
      }
      EXPECT_EQ(arena->block(group, BlockId(1)) - arena->block(group, BlockId(0)),
                static_cast<std::ptrdiff_t>(arena->geometry().block_stride(group)));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->block(group, BlockId(0))) % 4096, 0U);
    }
  }
}

TEST(KvArena, GivesZerosAgainWhenABlockIsCommittedAgainRule5) {
  auto arena = make(16, 3);
  const std::vector<BlockId> ids = {BlockId(0), BlockId(2)};
  arena->commit(0, ids);
  std::vector<std::byte> bytes(arena->geometry().block_bytes(0), std::byte{0xff});
  for (const BlockId id : ids) arena->write(0, id, bytes);
  arena->commit(0, std::span(ids).first(1));
  EXPECT_TRUE(all_zero(*arena, 0, BlockId(0)));
  EXPECT_FALSE(all_zero(*arena, 0, BlockId(2)));
}

TEST(KvArena, GivesMemoryBackAndZerosAfterwards) {
  auto arena = make(16, 3);
  const std::vector<BlockId> ids = {BlockId(0), BlockId(1)};
  arena->commit(0, ids);
  EXPECT_EQ(arena->committed(0), 2U);
  std::vector<std::byte> bytes(arena->geometry().block_bytes(0), std::byte{0x5a});
  for (const BlockId id : ids) arena->write(0, id, bytes);
  arena->release(0, std::span(ids).first(1));
  EXPECT_EQ(arena->committed(0), 1U);
  EXPECT_TRUE(all_zero(*arena, 0, BlockId(0)));
  std::vector<std::byte> kept(bytes.size());
  arena->read(0, BlockId(1), kept);
  EXPECT_EQ(kept, bytes);
  arena->commit(0, std::span(ids).first(1));
  EXPECT_TRUE(all_zero(*arena, 0, BlockId(0)));
  EXPECT_EQ(arena->committed(0), 2U);
}

/// Small pages (4 KiB) of the first `blocks` blocks of group 0 that take memory.
std::ptrdiff_t resident_pages(KvArena& arena, uint32_t blocks) {
  const uint64_t bytes = blocks * arena.geometry().block_stride(0);
  std::vector<unsigned char> pages(bytes / 4096);
  EXPECT_EQ(mincore(arena.base(0), bytes, pages.data()), 0);
  return std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; });
}

TEST(KvArena, GivesBackWhatAHugePageTookBesideABlock) {
  const std::unique_ptr<KvArena> arena = make(16, 1000);
  const std::vector<BlockId> blocks = {BlockId(3), BlockId(40), BlockId(500)};
  arena->commit(0, blocks);
  for (const BlockId id : blocks) *arena->block(0, id) = std::byte{1};
  EXPECT_GE(resident_pages(*arena, 1000), 3);
  const std::span<const BlockId> all = blocks;
  arena->release(0, all.first(1));
  EXPECT_EQ(*arena->block(0, BlockId(40)), std::byte{1});
  arena->release(0, all.subspan(1));
  EXPECT_EQ(resident_pages(*arena, 1000), 0);
}

TEST(KvArena, WhatWasGivenBackStaysAwayWhenTheSystemJoinsSmallPagesToHugeOnes) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1: at once what the system does in time
  const std::unique_ptr<KvArena> arena = make(16, 2000);
  const auto per_page = static_cast<uint32_t>((2U << 20) / arena->geometry().block_stride(0));
  ASSERT_LE(2 * per_page, 2000U);
  const std::size_t bytes = 2 * per_page * arena->geometry().block_stride(0);
  std::vector<BlockId> all, odd;
  for (uint32_t i = 0; i < 2 * per_page; ++i) {
    all.emplace_back(i);
    if (i % 2 == 1) odd.emplace_back(i);
  }
  const auto fill = [&] {
    arena->commit(0, all);
    for (const BlockId id : all) *arena->block(0, id) = std::byte{1};
  };
  fill();
  const std::ptrdiff_t whole = resident_pages(*arena, 2 * per_page);
  for (int round = 0; round < 3; ++round) {
    arena->release(0, odd);
    (void)madvise(arena->base(0), bytes, kCollapse);
    EXPECT_LE(resident_pages(*arena, 2 * per_page), whole / 2) << round;
    for (const BlockId id : odd) ASSERT_TRUE(all_zero(*arena, 0, id));
    fill();
    EXPECT_EQ(resident_pages(*arena, 2 * per_page), whole);
  }
}

TEST(KvArena, CopiesExactlyTheAskedPositions) {
  constexpr uint32_t kBlockTokens = 16;
  auto arena = make(kBlockTokens, 2);
  const std::vector<BlockId> ids = {BlockId(0), BlockId(1)};
  const kv::GroupGeometry& shape = arena->geometry().groups[0];
  std::vector<std::byte> bytes(arena->geometry().block_bytes(0));
  constexpr uint64_t kSeed = 7;
  RecordProperty("seed", std::to_string(kSeed));
  Prng prng(kSeed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(1 + prng.below(255));
  for (uint32_t positions = 0; positions <= kBlockTokens; ++positions) {
    arena->commit(0, ids);
    arena->write(0, BlockId(0), bytes);
    arena->copy(0, BlockId(0), BlockId(1), positions);
    const std::byte* from = arena->block(0, BlockId(0));
    const std::byte* to = arena->block(0, BlockId(1));
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t head = 0; head < shape.kv_heads; ++head) {
        for (uint32_t t = 0; t < kBlockTokens; ++t) {
          for (uint32_t d = 0; d < shape.key_dim; ++d) {  // f16, [key_dim][block_tokens]
            const uint64_t at = arena->key_offset(0, layer, head) + (d * kBlockTokens + t) * 2;
            ASSERT_EQ(to[at], t < positions ? from[at] : std::byte{0});
          }
          for (uint32_t d = 0; d < shape.value_dim; ++d) {  // f32, [block_tokens][value_dim]
            const uint64_t at = arena->value_offset(0, layer, head) + (t * shape.value_dim + d) * 4;
            ASSERT_EQ(to[at], t < positions ? from[at] : std::byte{0});
          }
        }
      }
    }
  }
}

TEST(KvArena, CopiesCodesAndScalesOfExactlyTheAskedPositions) {
  // q8_0 has planes of codes and of scales; each block's bytes are seen as (position, byte) pairs.
  // Where V is a part of K, there are only K's.
  constexpr uint32_t kBlockTokens = 7;
  for (const bool latent : {false, true}) {
    kv::Geometry geometry = two_groups(kBlockTokens);
    geometry.groups.resize(1);
    kv::GroupGeometry& shape = geometry.groups[0];
    shape.key_dim = latent ? 128 : 64;
    shape.value_dim = 96;
    shape.key_type = shape.value_type = KvType::kQ8_0;
    shape.latent = latent;
    const std::vector<uint32_t> counts = {2};
    auto created = KvArena::create(geometry, counts);
    ASSERT_TRUE(created.has_value());
    KvArena& arena = **created;
    // Which position a byte of the head's part belongs to, from the layout's description alone.
    std::vector<uint32_t> position_of;
    const auto plane = [&](uint32_t lines, uint32_t entry_bytes) {
      for (uint32_t line = 0; line < lines; ++line) {
        for (uint32_t t = 0; t < kBlockTokens; ++t)
          position_of.insert(position_of.end(), entry_bytes, t);
      }
    };
    plane(shape.key_dim, 1);
    plane(shape.key_dim / 32, 2);
    if (latent) {
      EXPECT_EQ(arena.value_offset(0, 1, 1), arena.key_offset(0, 1, 1));
    } else {
      plane(1, 96);
      plane(1, 96 / 32 * 2);
    }
    ASSERT_EQ(position_of.size() * shape.layers * shape.kv_heads, geometry.block_bytes(0));

    const std::vector<BlockId> ids = {BlockId(0), BlockId(1)};
    std::vector<std::byte> bytes(geometry.block_bytes(0)), copied(bytes.size());
    Prng prng(8);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(1 + prng.below(255));
    for (uint32_t positions = 0; positions <= kBlockTokens; ++positions) {
      arena.commit(0, ids);
      arena.write(0, BlockId(0), bytes);
      arena.copy(0, BlockId(0), BlockId(1), positions);
      arena.read(0, BlockId(1), copied);
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const uint32_t position = position_of[i % position_of.size()];
        ASSERT_EQ(copied[i], position < positions ? bytes[i] : std::byte{0}) << i;
      }
    }
  }
}

TEST(KvArena, PlacesHeadsWithoutGapsSoThatTheLastEndsWithTheBlock) {
  auto arena = make(32, 1);
  const kv::GroupGeometry& shape = arena->geometry().groups[0];
  EXPECT_EQ(arena->key_offset(0, 0, 0), 0U);
  const uint64_t head_bytes = 32 * (8 * 2 + 12 * 4);
  EXPECT_EQ(arena->key_offset(0, 1, 1), 3 * head_bytes);
  EXPECT_EQ(arena->value_offset(0, shape.layers - 1, shape.kv_heads - 1) + 32 * 12 * 4,
            arena->geometry().block_bytes(0));
}

TEST(KvArena, RefusesWhatItCannotHold) {
  kv::Geometry geometry = two_groups(32);
  geometry.groups.resize(1);
  const std::vector<uint32_t> none = {0};
  EXPECT_EQ(KvArena::create(geometry, none).error().code, ErrorCode::kInvalidArgument);
  geometry.groups[0].layers = 1U << 20;
  const std::vector<uint32_t> many = {0xffffffff};
  EXPECT_EQ(KvArena::create(geometry, many).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagewise::model
