// SPDX-License-Identifier: Apache-2.0
// SHA-256 for keys that leave the process or must not collide; XXH3 for checksums and in-memory
// tables.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pagewise {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::span<const std::byte> data);
Sha256 sha256(std::string_view data);
std::string to_hex(std::span<const uint8_t> bytes);
uint64_t xxh3(std::span<const std::byte> data, uint64_t seed = 0);

}  // namespace pagewise
