// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_index.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace pagewise::kv {

namespace {

constexpr std::size_t kChildrenKept = 64;  // 256 bytes

bool before(std::span<const TokenId> a, std::span<const TokenId> b) {
  const uint32_t common = common_tokens(a, b);
  return common < b.size() && (common == a.size() || a[common] < b[common]);
}

}  // namespace

uint32_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t most = std::min(a.size(), b.size());
  // Two at once: nearly all that is compared is equal.
  std::size_t at = 0;
  for (; at + 2 <= most; at += 2) {
    uint64_t left, right;
    std::memcpy(&left, a.data() + at, sizeof left);
    std::memcpy(&right, b.data() + at, sizeof right);
    if (left != right) break;
  }
  while (at < most && a[at] == b[at]) ++at;
  return static_cast<uint32_t>(at);
}

PrefixIndex::PrefixIndex(uint32_t block_tokens, std::span<const uint32_t> blocks, uint32_t nodes)
    : block_tokens_(block_tokens), groups_(static_cast<uint32_t>(blocks.size())) {
  PW_CHECK(block_tokens_ > 0 && groups_ > 0);
  for (uint32_t capacity : blocks) owner_.emplace_back(capacity, NodeId());
  // All nodes and a few roots; thousands of namespaces grow the slabs.
  const uint32_t slots = nodes + 16;
  nodes_.resize(slots);
  tokens_.resize(std::size_t{slots} * block_tokens_);
  blocks_.resize(std::size_t{slots} * groups_);
  for (uint32_t slot = slots; slot-- > 0;) {
    nodes_[slot].children.reserve(1);  // a conversation is a chain: its nodes never allocate
    unused_.push_back(slot);
  }
}

void PrefixIndex::grow(uint32_t group, uint32_t blocks) {
  if (blocks > owner_[group].size()) owner_[group].resize(blocks, NodeId());
}

NodeId PrefixIndex::allocate() {
  if (unused_.empty()) {
    unused_.push_back(slots());
    nodes_.emplace_back();
    tokens_.resize(nodes_.size() * block_tokens_);
    blocks_.resize(nodes_.size() * groups_);
  }
  const NodeId id(unused_.back());
  unused_.pop_back();
  nodes_[id.value].used = true;
  return id;
}

void PrefixIndex::deallocate(NodeId id) {
  Node& node = nodes_[id.value];
  PW_CHECK(node.used && node.children.empty());
  // Reused slots keep their room for children; what one popular prefix once needed is given back.
  if (node.children.capacity() > kChildrenKept) std::vector<NodeId>().swap(node.children);
  node.parent = node.root = NodeId();
  node.depth = node.fill = 0;
  node.used = false;
  unused_.push_back(id.value);
}

NodeId PrefixIndex::add_root(uint64_t digest) {
  const NodeId id = allocate();
  nodes_[id.value].root = id;
  nodes_[id.value].digest = digest;
  nodes_[id.value].children.reserve(kChildrenKept);
  return id;
}

void PrefixIndex::set_root_digest(NodeId root, uint64_t digest) {
  PW_CHECK(is_root(root));
  nodes_[root.value].digest = digest;
}

void PrefixIndex::note_digest(NodeId id) {
  if (!is_full(id)) return;
  nodes_[id.value].digest = xxh3(std::as_bytes(tokens(id)), digest(parent(id)));
}

void PrefixIndex::remove_root(NodeId root) {
  PW_CHECK(is_root(root));
  deallocate(root);
}

std::size_t PrefixIndex::place(const Node& parent, std::span<const TokenId> query) const {
  const auto less = [&](NodeId child, std::span<const TokenId> wanted) {
    return before(tokens(child), wanted);
  };
  return std::lower_bound(parent.children.begin(), parent.children.end(), query, less) -
         parent.children.begin();
}

PrefixIndex::Match PrefixIndex::longest_child(NodeId parent, std::span<const TokenId> query) const {
  const Node& node = nodes_[parent.value];
  query = query.first(std::min<std::size_t>(query.size(), block_tokens_));
  const std::size_t at = place(node, query);
  Match best;
  for (std::size_t i = at == 0 ? 0 : at - 1; i <= at && i < node.children.size(); ++i) {
    const uint32_t shared = common_tokens(tokens(node.children[i]), query);
    if (shared > best.tokens) best = {node.children[i], shared};
  }
  return best;
}

PrefixIndex::Match PrefixIndex::longest_child_with(NodeId parent, std::span<const TokenId> query,
                                                   uint32_t group) const {
  const Node& node = nodes_[parent.value];
  query = query.first(std::min<std::size_t>(query.size(), block_tokens_));
  const std::size_t at = place(node, query);
  Match best;
  // Away from the place where the query would stand, ever fewer tokens are shared.
  const auto look = [&](std::size_t i) {
    const NodeId child = node.children[i];
    const uint32_t shared = common_tokens(tokens(child), query);
    if (shared <= best.tokens) return false;
    if (!block(child, group).valid()) return true;
    best = {child, shared};
    return false;
  };
  for (std::size_t i = at; i > 0 && look(i - 1);) --i;
  for (std::size_t i = at; i < node.children.size() && look(i);) ++i;
  return best;
}

PrefixIndex::Match PrefixIndex::walk(NodeId root, std::span<const TokenId> query,
                                     std::vector<NodeId>& path) const {
  NodeId at = root;
  while (true) {
    const Match match = longest_child(at, query);
    if (match.tokens < block_tokens_) return match;
    path.push_back(match.child);
    at = match.child;
    query = query.subspan(block_tokens_);
  }
}

void PrefixIndex::follow(NodeId parent, const Match& from, uint32_t tokens_max,
                         std::vector<TokenId>& out) const {
  NodeId at = from.child;
  std::size_t skip = from.tokens;
  if (!at.valid() && !children(parent).empty()) at = children(parent).front();
  while (at.valid() && tokens_max > 0) {
    const std::span<const TokenId> rest = tokens(at).subspan(skip);
    const std::size_t count = std::min<std::size_t>(rest.size(), tokens_max);
    out.insert(out.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count));
    tokens_max -= static_cast<uint32_t>(count);
    skip = 0;
    at = children(at).empty() ? NodeId() : children(at).front();
  }
}

void PrefixIndex::set_block(NodeId id, uint32_t group, BlockId block) {
  BlockId& entry = blocks_[std::size_t{id.value} * groups_ + group];
  if (entry.valid()) owner_[group][entry.value] = NodeId();
  entry = block;
  if (!block.valid()) return;
  PW_CHECK(!owner(group, block).valid());
  owner_[group][block.value] = id;
}

NodeId PrefixIndex::insert(NodeId parent, std::span<const TokenId> new_tokens,
                           std::span<const BlockId> blocks) {
  PW_CHECK(is_root(parent) || is_full(parent));
  PW_CHECK(!new_tokens.empty() && new_tokens.size() <= block_tokens_);
  const NodeId id = allocate();  // may move nodes_
  Node& node = nodes_[id.value];
  Node& above = nodes_[parent.value];
  node.parent = parent;
  node.root = above.root;
  node.depth = above.depth + 1;
  node.fill = static_cast<uint32_t>(new_tokens.size());
  std::copy(new_tokens.begin(), new_tokens.end(),
            tokens_.begin() + std::size_t{id.value} * block_tokens_);
  note_digest(id);
  PW_CHECK(blocks.size() == groups_);
  for (uint32_t g = 0; g < groups_; ++g) set_block(id, g, blocks[g]);
  above.children.insert(
      above.children.begin() + static_cast<std::ptrdiff_t>(place(above, new_tokens)), id);
  ++size_;
  return id;
}

void PrefixIndex::extend(NodeId id, std::span<const TokenId> longer) {
  Node& node = nodes_[id.value];
  PW_CHECK(!is_root(id) && longer.size() >= node.fill && longer.size() <= block_tokens_);
  if (longer.size() == node.fill) return;
  PW_CHECK(common_tokens(tokens(id), longer) == node.fill);
  // No sibling was comparable with the shorter tokens, so none is with the longer ones, and the
  // order stays.
  std::copy(longer.begin() + node.fill, longer.end(),
            tokens_.begin() + std::size_t{id.value} * block_tokens_ + node.fill);
  node.fill = static_cast<uint32_t>(longer.size());
  note_digest(id);
}

void PrefixIndex::truncate(NodeId id, uint32_t tokens) {
  Node& node = nodes_[id.value];
  PW_CHECK(!is_root(id) && node.children.empty() && tokens > 0 && tokens <= node.fill);
  node.fill = tokens;
}

void PrefixIndex::remove(NodeId id) {
  PW_CHECK(!is_root(id));
  std::vector<NodeId>& siblings = nodes_[parent(id).value].children;
  // By tokens, then by identity: for a moment a sibling may extend this one. Nearly all are alone,
  // and their tokens need not be fetched.
  std::size_t at = siblings.size() == 1 ? 0 : place(nodes_[parent(id).value], tokens(id));
  while (siblings[at] != id) ++at;
  siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(at));
  for (uint32_t g = 0; g < groups_; ++g) set_block(id, g, BlockId());
  deallocate(id);
  --size_;
}

PrefixIndex::Neighbours PrefixIndex::neighbours(NodeId id) const {
  const Node& above = nodes_[parent(id).value];
  std::size_t at = place(above, tokens(id));
  while (above.children[at] != id) ++at;
  Neighbours found;
  if (at > 0) found.before = above.children[at - 1];
  if (at + 1 < above.children.size()) found.after = above.children[at + 1];
  return found;
}

void PrefixIndex::check_invariants() const {
  uint32_t count = 0, named = 0, owned = 0;
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    const NodeId id(slot);
    const Node& node = nodes_[slot];
    if (!node.used) continue;
    PW_CHECK(node.children.empty() || is_root(id) || is_full(id));
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const NodeId child = node.children[i];
      PW_CHECK(used(child) && parent(child) == id && root(child) == node.root);
      PW_CHECK(depth(child) == node.depth + 1);
      if (i == 0) continue;
      const std::span<const TokenId> before = tokens(node.children[i - 1]), here = tokens(child);
      PW_CHECK(
          std::lexicographical_compare(before.begin(), before.end(), here.begin(), here.end()));
      PW_CHECK(common_tokens(before, here) < before.size());
    }
    if (is_root(id)) continue;
    ++count;
    PW_CHECK(node.fill >= 1 && node.fill <= block_tokens_);
    for (uint32_t g = 0; g < groups_; ++g) {
      if (!block(id, g).valid()) continue;
      PW_CHECK(owner(g, block(id, g)) == id);
      ++named;
    }
  }
  PW_CHECK(count == size_);
  for (const std::vector<NodeId>& owners : owner_) {
    for (NodeId node : owners) owned += node.valid();
  }
  PW_CHECK(owned == named);
}

}  // namespace pagewise::kv
