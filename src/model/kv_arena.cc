// SPDX-License-Identifier: Apache-2.0
#include "model/kv_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace pagewise::model {
namespace {

constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr uint64_t kAddressBytesMax = uint64_t{1} << 46;

/// Address space for `bytes`, and for one huge page more, so that the start can be aligned to one.
void* map_nothing(uint64_t bytes) {
  return mmap(nullptr, bytes + kHugePageBytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

}  // namespace

Result<std::unique_ptr<KvArena>> KvArena::create(const kv::Geometry& geometry,
                                                 std::span<const uint32_t> blocks,
                                                 std::span<const uint32_t> blocks_reserved) {
  PW_CHECK(blocks.size() == geometry.groups.size());
  PW_CHECK(blocks_reserved.empty() || blocks_reserved.size() == blocks.size());
  std::unique_ptr<KvArena> arena(new KvArena(geometry));
  for (uint32_t g = 0; g < blocks.size(); ++g) {
    const uint64_t stride = geometry.block_stride(g);
    const auto blocks_max =
        static_cast<uint32_t>(std::min<uint64_t>(kAddressBytesMax / stride, UINT32_MAX - 1));
    if (blocks[g] == 0 || blocks[g] > blocks_max) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("a KV pool of {} blocks of {} is not possible", blocks[g],
                               format_size(stride))};
    }
    uint32_t reserved = blocks[g];
    if (!blocks_reserved.empty())
      reserved = std::max(reserved, std::min(blocks_reserved[g], blocks_max));
    // Not accessible yet, and so not counted by systems that count what was promised.
    void* mapping = map_nothing(stride * reserved);
    if (mapping == MAP_FAILED && reserved > blocks[g]) {
      reserved = blocks[g];
      mapping = map_nothing(stride * reserved);
    }
    if (mapping == MAP_FAILED) {
      return Error{ErrorCode::kIo,
                   fmt::format("cannot reserve {} of address space for KV: {}",
                               format_size(stride * reserved), std::strerror(errno))};
    }
    auto* start = static_cast<std::byte*>(mapping);
    const uint64_t lead = round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes) -
                          reinterpret_cast<uintptr_t>(start);
    if (lead > 0) munmap(start, lead);
    Group group;
    group.base = start + lead;
    group.mapped_bytes = stride * reserved + kHugePageBytes - lead;
    group.blocks_reserved = reserved;
    // Advice only: a system without huge pages, or with them switched off, works as well.
    (void)madvise(group.base, group.mapped_bytes, MADV_HUGEPAGE);
    // What people wrote does not belong into a core dump.
    (void)madvise(group.base, group.mapped_bytes, MADV_DONTDUMP);
    group.small_pages.resize(ceil_div(stride * reserved, kHugePageBytes), false);
    arena->groups_.push_back(std::move(group));
  }
  PW_RETURN_IF_ERROR(arena->grow(blocks));
  return arena;
}

Status KvArena::grow(std::span<const uint32_t> blocks) {
  PW_CHECK(blocks.size() == groups_.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (blocks[g] <= group.blocks_reserved) continue;
    const uint64_t stride = geometry_.block_stride(g);
    return {
        ErrorCode::kInvalidArgument,
        fmt::format("address space is reserved for {} of KV blocks, {} are asked for; start "
                    "with a larger pool",
                    format_size(group.blocks_reserved * stride), format_size(blocks[g] * stride))};
  }
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (blocks[g] <= group.blocks) continue;
    const uint64_t bytes = blocks[g] * geometry_.block_stride(g);
    if (mprotect(group.base, bytes, PROT_READ | PROT_WRITE) != 0) {
      return {ErrorCode::kIo, fmt::format("cannot have {} of address space for KV: {}",
                                          format_size(bytes), std::strerror(errno))};
    }
    group.blocks = blocks[g];
    group.used.resize(blocks[g], false);
  }
  return Status::ok();
}

uint64_t KvArena::committed_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < groups_.size(); ++g)
    bytes += groups_[g].used_count * geometry_.block_stride(g);
  return bytes;
}

KvArena::~KvArena() {
  for (const Group& group : groups_) munmap(group.base, group.mapped_bytes);
}

std::byte* KvArena::block(uint32_t group, BlockId id) {
  PW_CHECK(group < groups_.size() && id.value < groups_[group].blocks);
  return groups_[group].base + geometry_.block_stride(group) * id.value;
}

const std::byte* KvArena::block(uint32_t group, BlockId id) const {
  PW_CHECK(group < groups_.size() && id.value < groups_[group].blocks);
  return groups_[group].base + geometry_.block_stride(group) * id.value;
}

uint64_t KvArena::key_offset(uint32_t group, uint32_t group_layer, uint32_t kv_head) const {
  const kv::GroupGeometry& shape = geometry_.groups[group];
  const uint64_t head_bytes =
      (shape.key_row_bytes() + shape.value_row_bytes()) * geometry_.block_tokens;
  return (uint64_t{group_layer} * shape.kv_heads + kv_head) * head_bytes;
}

uint64_t KvArena::value_offset(uint32_t group, uint32_t group_layer, uint32_t kv_head) const {
  const kv::GroupGeometry& shape = geometry_.groups[group];
  const uint64_t key = key_offset(group, group_layer, kv_head);
  return shape.latent ? key : key + shape.key_row_bytes() * geometry_.block_tokens;
}

void KvArena::commit(uint32_t group, std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    std::byte* const bytes = block(group, id);
    Group& state = groups_[group];
    if (state.used[id.value]) {
      std::memset(bytes, 0, geometry_.block_bytes(group));
    } else {
      state.used[id.value] = true;
      state.used_count++;
      advise_pages_of(group, id);
    }
  }
}

void KvArena::release(uint32_t group, std::span<const BlockId> blocks) {
  PW_CHECK(group < groups_.size());
  Group& state = groups_[group];
  for (const BlockId id : blocks) {
    PW_CHECK(id.value < state.blocks);
    if (!state.used[id.value]) continue;
    // Private anonymous memory reads as zeros after this, so `used` may be cleared. Should the
    // system refuse, the block stays marked and commit() zeroes it.
    state.used[id.value] = false;
    const std::span<std::byte> unused = unused_around(group, id);
    if (madvise(unused.data(), unused.size(), MADV_DONTNEED) != 0) {
      state.used[id.value] = true;
    } else {
      state.used_count--;
      advise_pages_of(group, id);
    }
  }
}

/// A huge page of which only a part is used would grow whole again behind our back: the system
/// joins small pages to huge ones and fills the holes with memory. So such pages are advised to
/// stay small, from when a part was given back until all of it is used, or nothing.
void KvArena::advise_pages_of(uint32_t group, BlockId id) {
  Group& state = groups_[group];
  const uint64_t stride = geometry_.block_stride(group);
  const uint64_t end = ceil_div((uint64_t{id.value} + 1) * stride, kHugePageBytes);
  for (uint64_t page = id.value * stride / kHugePageBytes; page < end; ++page) {
    // What is used when nothing was given back is on its way to being full: as it is.
    if (!state.small_pages[page] && state.used[id.value]) continue;
    const uint64_t first = page * kHugePageBytes / stride;
    const uint64_t last =
        std::min<uint64_t>(ceil_div((page + 1) * kHugePageBytes, stride), state.blocks_reserved);
    uint64_t used = 0;
    for (uint64_t block = first; block < last; ++block)
      used += block < state.used.size() && state.used[block];
    const bool small = used > 0 && used < last - first;
    if (small == state.small_pages[page]) continue;
    state.small_pages[page] = small;
    // Advice only, here too.
    const uint64_t begin = page * kHugePageBytes;
    (void)madvise(state.base + begin, std::min(kHugePageBytes, state.mapped_bytes - begin),
                  small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
}

/// The block and its unused neighbours within the huge pages that it lies in: these came with it,
/// and nobody else would give them back.
std::span<std::byte> KvArena::unused_around(uint32_t group, BlockId id) const {
  const Group& state = groups_[group];
  const uint64_t stride = geometry_.block_stride(group);
  const uint64_t page_begin = id.value * stride / kHugePageBytes * kHugePageBytes;
  const uint64_t page_end = round_up((uint64_t{id.value} + 1) * stride, kHugePageBytes);
  const auto unused = [&](uint64_t block) {
    return block >= state.used.size() || !state.used[block];
  };
  uint64_t first = id.value, end = uint64_t{id.value} + 1;
  while (first > 0 && first * stride > page_begin && unused(first - 1)) --first;
  while (end < state.blocks_reserved && end * stride < page_end && unused(end)) ++end;
  return {state.base + first * stride, (end - first) * stride};
}

void KvArena::copy(uint32_t group, BlockId from, BlockId to, uint32_t positions) {
  PW_CHECK(positions <= geometry_.block_tokens && from != to);
  const kv::GroupGeometry& shape = geometry_.groups[group];
  const std::byte* const source = block(group, from);
  std::byte* const target = block(group, to);
  // `lines` of one entry a position, each block_tokens entries long.
  const auto copy_lines = [&](uint64_t at, uint64_t lines, uint64_t entry_bytes) {
    for (uint64_t line = 0; line < lines; ++line) {
      const uint64_t begin = at + line * entry_bytes * geometry_.block_tokens;
      std::memcpy(target + begin, source + begin, positions * entry_bytes);
    }
  };
  const auto scales_of = [](KvType type, uint32_t dim) -> uint64_t {
    return type == KvType::kQ8_0 ? dim / kKvScaleGroup : 0;
  };
  const uint64_t key_bytes = kv_element_bytes(shape.key_type);
  const uint64_t key_scales = scales_of(shape.key_type, shape.key_dim);
  const uint64_t value_bytes = shape.value_dim * kv_element_bytes(shape.value_type);
  const uint64_t value_scales = scales_of(shape.value_type, shape.value_dim);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (uint32_t head = 0; head < shape.kv_heads; ++head) {
      const uint64_t keys = key_offset(group, layer, head);
      copy_lines(keys, shape.key_dim, key_bytes);
      copy_lines(keys + shape.key_dim * key_bytes * geometry_.block_tokens, key_scales,
                 sizeof(uint16_t));
      if (shape.latent) continue;
      const uint64_t values = value_offset(group, layer, head);
      copy_lines(values, 1, value_bytes);
      copy_lines(values + value_bytes * geometry_.block_tokens, 1, value_scales * sizeof(uint16_t));
    }
  }
}

void KvArena::read(uint32_t group, BlockId id, std::span<std::byte> out) const {
  PW_CHECK(out.size() == geometry_.block_bytes(group));
  std::memcpy(out.data(), block(group, id), out.size());
}

void KvArena::write(uint32_t group, BlockId id, std::span<const std::byte> bytes) {
  PW_CHECK(bytes.size() == geometry_.block_bytes(group));
  PW_CHECK(groups_[group].used[id.value]);
  std::memcpy(block(group, id), bytes.data(), bytes.size());
}

}  // namespace pagewise::model
