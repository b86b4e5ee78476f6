// SPDX-License-Identifier: Apache-2.0
// How weights of the tuned types stand in panels of 16 outputs: into them at load, and back out of
// them one row at a time. Layouts: linear_internal.h. Not for other folders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace pagewise::kernels {

struct Packing {
  TensorType type;
  bool integer;              // family
  std::size_t unit_columns;  // columns that share a unit of the panel
  std::size_t unit_bytes;
  /// One row of a matrix, `columns` values, into its lane of a zeroed panel.
  void (*pack)(const uint8_t* row, std::size_t columns, std::size_t lane, uint8_t* panel);
  /// The row's values back, with the bits that to_float.h gives.
  void (*unpack)(const uint8_t* panel, std::size_t columns, std::size_t lane, float* out);

  std::size_t panel_bytes(std::size_t columns) const {
    return (columns + unit_columns - 1) / unit_columns * unit_bytes;
  }
};

/// nullptr for types that are decoded when used.
const Packing* find_packing(TensorType type);

}  // namespace pagewise::kernels
