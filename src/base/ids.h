// SPDX-License-Identifier: Apache-2.0
// Distinct id types: swapping two does not compile.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace pagewise {

template <typename Tag, typename Int>
struct StrongId {
  Int value = static_cast<Int>(-1);

  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
  constexpr bool valid() const { return value != static_cast<Int>(-1); }
};

/// One KV block of one layer group. The default-constructed id is the null block.
using BlockId = StrongId<struct BlockTag, uint32_t>;
/// A vocabulary entry, as in the model file.
using TokenId = StrongId<struct TokenTag, int32_t>;
/// One running sequence (a request has `n` of them).
using SeqId = StrongId<struct SeqTag, uint64_t>;
/// One submitted request, unique in the process's life.
using RequestId = StrongId<struct RequestTag, uint64_t>;

}  // namespace pagewise

template <typename Tag, typename Int>
struct std::hash<pagewise::StrongId<Tag, Int>> {
  std::size_t operator()(const pagewise::StrongId<Tag, Int>& id) const noexcept {
    return std::hash<Int>()(id.value);
  }
};
