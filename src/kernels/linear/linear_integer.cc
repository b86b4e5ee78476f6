// SPDX-License-Identifier: Apache-2.0
// The integer family: tiles of R activation rows x 16 outputs. One row (decode) and twelve
// (prefill) run the same sequence per output, so the tile's shape cannot be seen in the result
// (contract rules 1 and 2).
#include <hwy/base.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_integer.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "kernels/int_dot.h"
#include "kernels/k_quants.h"
#include "kernels/linear/linear_internal.h"
#include "kernels/math-inl.h"

PAGEWISE_BEFORE_NAMESPACE();
namespace pagewise::kernels {
namespace HWY_NAMESPACE {

// Rows of the largest tiles. 32 registers hold 12 integer and 12 float sums, two weight vectors and
// what the end of a block needs; 16 registers hold 4 and 4.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr std::size_t kRowsMax = 12;
#else
inline constexpr std::size_t kRowsMax = 4;
#endif

// Where a tile of R rows finds row i: groups of four, or some rows of one group from `lane` on.
struct RowTile {
  const QuantGroup* groups[3];
  std::size_t lane;  // 0 unless R < 4
};

template <std::size_t R>
HWY_INLINE I32 quants_of(const RowTile& rows, std::size_t b, std::size_t k4, std::size_t r) {
  int32_t word;
  std::memcpy(&word, rows.groups[r / kQuantRows][b].quants[k4][rows.lane + r % kQuantRows],
              sizeof(word));
  return hn::Set(DI(), word);
}

HWY_INLINE F32 load_halves(const uint8_t* p) {
  return LoadF16::load(reinterpret_cast<const uint16_t*>(p));
}

// Panels are streamed. One row or two are done as fast as the panel comes, and the hardware's own
// prefetchers bring it fastest (weights stand in huge pages, so there are few ends to stop at: Zen
// 4, Q4_1, one thread: 30 GB/s without this, 24 with it). More rows have time between two lines, in
// which it pays to ask. 4 KiB ahead is the latency of memory at full bandwidth (100 ns x 40 GB/s).
template <std::size_t R>
HWY_INLINE void prefetch_ahead(const uint8_t* p, std::size_t bytes) {
  if constexpr (R <= 2) return;
  for (std::size_t i = 0; i < bytes; i += 64) hwy::Prefetch(p + 4096 + i);
}

// Small scales of 16 outputs, one byte each.
HWY_INLINE F32 load_unsigned(const uint8_t* p) {
  const hn::Rebind<uint8_t, DI> du8;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(du8, p)));
}
HWY_INLINE F32 load_signed(const uint8_t* p) {
  const hn::Rebind<int8_t, DI> di8;
  return hn::ConvertTo(DF(),
                       hn::PromoteTo(DI(), hn::LoadU(di8, reinterpret_cast<const int8_t*>(p))));
}

#if !PAGEWISE_DOT4
// Signed small scales, in both 16-bit halves of their lanes.
HWY_INLINE I32 load_signed_pairs(const uint8_t* p) {
  const DI di;
  const hn::Rebind<int8_t, DI> di8;
  const hn::Repartition<uint8_t, DI> du8;
  alignas(16) static constexpr uint8_t kTwice[16] = {0, 1, 0, 1, 4,  5,  4,  5,
                                                     8, 9, 8, 9, 12, 13, 12, 13};
  const I32 scales = hn::PromoteTo(di, hn::LoadU(di8, reinterpret_cast<const int8_t*>(p)));
  return hn::BitCast(di,
                     hn::TableLookupBytes(hn::BitCast(du8, scales), hn::LoadDup128(du8, kTwice)));
}
#endif

// Exponent bytes of 16 outputs to 2^(e - 128), as mxfp4_scale() has them: for e = 0 and 1 the
// subnormals 2^21 and 2^22 units in the last place, from 2 on the exponent field e - 1. Of both
// lines, taken for all e, the right one is the higher.
HWY_INLINE F32 load_exponents(const uint8_t* p) {
  const DI di;
  const hn::Rebind<uint8_t, DI> du8;
  const I32 e = hn::PromoteTo(di, hn::LoadU(du8, p));
  const I32 one = hn::Set(di, 1);
  const I32 normal = hn::ShiftLeft<23>(hn::Sub(e, one));
  const I32 subnormal = hn::ShiftLeft<21>(hn::Add(e, one));
  return hn::BitCast(DF(), hn::Max(normal, subnormal));
}

// Where a block keeps what; linear_internal.h has the layouts.
struct BlockAt {
  const uint8_t* quants;  // high bits first, where there are any, then nibbles
  const uint8_t* scales;  // of this block
};

// Panels are rows of units: of a head, in which the scales of the unit's blocks stand, and these
// blocks' bits and nibbles.
template <std::size_t kBlocks, std::size_t kHeadBytes, std::size_t kBytes>
struct Unit {
  static constexpr std::size_t kUnitBlocks = kBlocks;
  static constexpr std::size_t kUnitHeadBytes = kHeadBytes;
  static constexpr std::size_t kUnitBytes = kHeadBytes + kBlocks * kBytes;
  // Block i of a unit, whose scales begin at `first_scales` of the head and take `scale_bytes`.
  static HWY_INLINE BlockAt at(const uint8_t* unit, std::size_t i, std::size_t first_scales,
                               std::size_t scale_bytes) {
    return {unit + kHeadBytes + i * kBytes, unit + first_scales + i * scale_bytes};
  }
};

// The f16 scales that the blocks of a K type's unit share: of some outputs, widened once for all
// blocks. Other types have none.
struct NoShared {};
struct SharedScale {
  F32 scale;
};
struct SharedScales {
  F32 scale;
  F32 minimum;
};

// The types whose codes are nibbles, with or without bits above them. A block's value:
//   sum w x = scale_x d (sum q xq [- offset sum xq]) [+ m scale_x sum xq]
// and with two integer scales a block, of 16 values each: scale_x d (s0 sum0 + s1 sum1).
struct NibbleType {
  static constexpr std::size_t kRowsMost = 12;
  static constexpr int kHighBits = 0;    // above the nibbles
  static constexpr int kCodeOffset = 0;  // a power of two, or 0
  static constexpr int kCodeMost = 15;   // offset included
  static constexpr bool kSigned = false;
  static constexpr bool kHasMinimum = false;
  static constexpr bool kLookup = false;  // codes are indices into kTable
  static constexpr std::size_t kQuantBytes = kNibbleBytes;
  static HWY_INLINE NoShared shared(const uint8_t* /*unit*/, std::size_t /*lane*/) { return {}; }
  static HWY_INLINE F32 scale(NoShared /*shared*/, const BlockAt& at, std::size_t lane) {
    return load_halves(at.scales + 2 * lane);
  }
};
struct FiveBitType : NibbleType {
  static constexpr int kHighBits = 1;
  static constexpr int kCodeMost = 31;
  static constexpr std::size_t kQuantBytes = kQ5BlockBytes;
};

// Panels of pairs of blocks: a scale and no minimum.
template <typename Codes>
struct TypeOfPairs : Codes, Unit<2, 64, Codes::kQuantBytes> {
  static HWY_INLINE BlockAt at(const uint8_t* unit, std::size_t i) {
    return TypeOfPairs::Unit::at(unit, i, 0, 32);
  }
};
struct TypeQ4_0 : TypeOfPairs<NibbleType> {
  static constexpr int kCodeOffset = 8;
};
struct TypeIQ4_NL : TypeOfPairs<NibbleType> {
  static constexpr int kCodeOffset = PAGEWISE_DOT4 ? 128 : 0;  // see add_products
  static constexpr int kCodeMost = 113 + kCodeOffset;
  static constexpr bool kSigned = !PAGEWISE_DOT4;
  static constexpr bool kLookup = true;
  static constexpr const int8_t* kTable = kIq4NlValues;
};
struct TypeQ5_0 : TypeOfPairs<FiveBitType> {
  static constexpr int kCodeOffset = 16;
};

// Panels of four blocks: an exponent each. With the offset codes are not negative and small enough
// for the sums that 5-bit codes have.
struct TypeMXFP4 : NibbleType, Unit<kMxfp4Blocks, 64, kNibbleBytes> {
  static constexpr int kCodeOffset = 16;
  static constexpr int kCodeMost = 12 + kCodeOffset;
  static constexpr bool kLookup = true;
  static constexpr const int8_t* kTable = kMxfp4Values;
  static HWY_INLINE BlockAt at(const uint8_t* unit, std::size_t i) {
    return Unit::at(unit, i, 0, kPanelOutputs);
  }
  static HWY_INLINE F32 scale(NoShared /*shared*/, const BlockAt& at, std::size_t lane) {
    return load_exponents(at.scales + lane);
  }
};

// Panels of single blocks: a scale and a minimum.
template <typename Codes>
struct TypeWithMinimum : Codes, Unit<1, 64, Codes::kQuantBytes> {
  static constexpr bool kHasMinimum = true;
  static HWY_INLINE BlockAt at(const uint8_t* unit, std::size_t i) {
    return TypeWithMinimum::Unit::at(unit, i, 0, 64);
  }
  static HWY_INLINE F32 minimum(NoShared /*shared*/, const BlockAt& at, std::size_t lane) {
    return load_halves(at.scales + 32 + 2 * lane);
  }
};
using TypeQ4_1 = TypeWithMinimum<NibbleType>;
using TypeQ5_1 = TypeWithMinimum<FiveBitType>;

// Q4_K and Q5_K.
template <typename Codes>
struct TypeKWithMinima : Codes, Unit<kSuperBlocks, kKScaleBytes, Codes::kQuantBytes> {
  static constexpr bool kHasMinimum = true;
  static HWY_INLINE BlockAt at(const uint8_t* unit, std::size_t i) {
    return TypeKWithMinima::Unit::at(unit, i, 64, 32);
  }
  static HWY_INLINE SharedScales shared(const uint8_t* unit, std::size_t lane) {
    return {load_halves(unit + 2 * lane), hn::Neg(load_halves(unit + 32 + 2 * lane))};
  }
  static HWY_INLINE F32 scale(const SharedScales& shared, const BlockAt& at, std::size_t lane) {
    return hn::Mul(shared.scale, load_unsigned(at.scales + lane));
  }
  static HWY_INLINE F32 minimum(const SharedScales& shared, const BlockAt& at, std::size_t lane) {
    return hn::Mul(shared.minimum, load_unsigned(at.scales + 16 + lane));
  }
};
using TypeQ4_K = TypeKWithMinima<NibbleType>;
using TypeQ5_K = TypeKWithMinima<FiveBitType>;

struct TypeQ6_K : NibbleType, Unit<kSuperBlocks, kKScaleBytes, kQ6KBlockBytes> {
  static constexpr std::size_t kRowsMost = 8;  // two sums a row
  static constexpr int kHighBits = 2;
  static constexpr int kCodeOffset = 32;
  static constexpr int kCodeMost = 63;
  static constexpr std::size_t kQuantBytes = kQ6KBlockBytes;
  static HWY_INLINE BlockAt at(const uint8_t* unit, std::size_t i) {
    return Unit::at(unit, i, 64, 32);
  }
  static HWY_INLINE SharedScale shared(const uint8_t* unit, std::size_t lane) {
    return {load_halves(unit + 2 * lane)};
  }
  static HWY_INLINE F32 scale(const SharedScale& shared, const BlockAt& /*at*/,
                              std::size_t /*lane*/) {
    return shared.scale;
  }
};

struct TypeQ8_0 {
  static constexpr std::size_t kRowsMost = 12;
};

#if PAGEWISE_DOT4
// What is added to the sums of a block's low and high nibbles for the offset of its codes.
template <typename W>
HWY_INLINE int32_t low_offset(const QuantGroup& group, std::size_t row) {
  if constexpr (W::kCodeOffset == 0) return 0;
  constexpr int kPart = W::kCodeOffset == 0 ? 1 : 128 / W::kCodeOffset;  // sums stand times -128
  return (W::kHighBits == 2 ? group.half_offset_sums[row] : group.offset_sums[row]) / kPart;
}
template <typename W>
HWY_INLINE int32_t high_offset(const QuantGroup& group, std::size_t row) {
  return W::kHighBits == 2 ? (group.offset_sums[row] - group.half_offset_sums[row]) / 4 : 0;
}
#endif

template <int kLeft>
HWY_INLINE I32 shifted(I32 x) {
  const DU du;
  const U32 bits = hn::BitCast(du, x);
  if constexpr (kLeft >= 0) return hn::BitCast(DI(), hn::ShiftLeft<kLeft>(bits));
  return hn::BitCast(DI(), hn::ShiftRight<(kLeft < 0 ? -kLeft : 0)>(bits));
}

// Each nibble's byte of a table.
HWY_INLINE I32 look_up(const uint8_t (&bytes)[16], I32 nibbles) {
#if HWY_TARGET == HWY_SCALAR
  uint8_t codes[4];
  const int32_t in = hn::GetLane(nibbles);
  std::memcpy(codes, &in, sizeof(in));
  for (uint8_t& code : codes) code = bytes[code];
  int32_t out;
  std::memcpy(&out, codes, sizeof(out));
  return hn::Set(DI(), out);
#else
  const hn::Repartition<uint8_t, DI> du8;
  const auto table = hn::LoadDup128(du8, bytes);
  return hn::BitCast(DI(), hn::TableLookupBytes(table, hn::BitCast(du8, nibbles)));
#endif
}

// The bytes that nibbles stand for: themselves, or a table's values with the offset that makes them
// unsigned where the products want them so.
template <typename W>
HWY_INLINE I32 looked_up(I32 nibbles) {
  if constexpr (W::kLookup) {
    alignas(16) uint8_t bytes[16];
    for (std::size_t i = 0; i < 16; ++i)
      bytes[i] = static_cast<uint8_t>(W::kTable[i] + W::kCodeOffset);
    return look_up(bytes, nibbles);
  } else {
    return nibbles;
  }
}

template <typename W>
HWY_INLINE I32 add_products(I32 sum, I32 codes, I32 x) {
#if PAGEWISE_DOT4
  return dot4(sum, codes, x);
#else
  // Signed values: |w| and the sign trick, 2 x 127 x 127 = 32,258.
  if constexpr (W::kSigned) {
    return in_register(hn::Add(sum, fold16(pairs(abs8(codes), sign8(x, codes)))));
  }
  return in_register(add16(sum, pairs(codes, x)));
#endif
}

// Four bytes of each output, of vector `vector` of a line.
HWY_INLINE I32 load_words(const uint8_t* line, std::size_t vector) {
  return hn::Load(DI(), reinterpret_cast<const int32_t*>(line + vector * kLanes * 4));
}

// The codes of values 16 kHalf + 4 J.. of a block, of one vector of outputs.
template <typename W, int kHalf, int J>
HWY_INLINE I32 codes_of(const uint8_t* quants, std::size_t vector) {
  const DI di;
  const I32 packed = load_words(quants + W::kQuantBytes - kNibbleBytes + 64 * J, vector);
  const I32 nibbles = hn::And(shifted<-4 * kHalf>(packed), hn::Set(di, 0x0f0f0f0f));
  const I32 codes = looked_up<W>(nibbles);
  if constexpr (W::kHighBits == 1) {
    const I32 bit =
        hn::And(shifted<4 * (1 - kHalf) - J>(load_words(quants, vector)), hn::Set(di, 0x10101010));
    return hn::Or(codes, bit);
  } else if constexpr (W::kHighBits == 2) {
    const I32 pair = hn::And(shifted<4 - 2 * J>(load_words(quants + 64 * kHalf, vector)),
                             hn::Set(di, 0x30303030));
    return hn::Or(codes, pair);
  }
  return codes;
}

// Adds the products of these codes with the rows' quants. An activation serves all vectors while it
// is in a register; so do the codes of one half, and then those of the other, for all rows.
template <typename W, int kHalf, int J, std::size_t R, std::size_t V>
HWY_INLINE void add_half_chunk(const BlockAt& at, std::size_t first_vector, const RowTile& rows,
                               std::size_t b, I32 (&sums)[R][V]) {
  I32 codes[V];
  for (std::size_t v = 0; v < V; ++v) codes[v] = codes_of<W, kHalf, J>(at.quants, first_vector + v);
  for (std::size_t r = 0; r < R; ++r) {
    const I32 x = quants_of<R>(rows, b, 4 * kHalf + J, r);
    for (std::size_t v = 0; v < V; ++v) sums[r][v] = add_products<W>(sums[r][v], codes[v], x);
  }
}

// Adds the products of one half of a block, or of both, chunk by chunk from J on: shifts take
// their numbers when compiled.
template <typename W, int kHalf, int J = 0, std::size_t R, std::size_t V>
HWY_INLINE void add_half(const BlockAt& at, std::size_t first_vector, const RowTile& rows,
                         std::size_t b, I32 (&sums)[R][V]) {
  add_half_chunk<W, kHalf, J>(at, first_vector, rows, b, sums);
  if constexpr (J < 3) add_half<W, kHalf, J + 1>(at, first_vector, rows, b, sums);
}
template <typename W, int J = 0, std::size_t R, std::size_t V>
HWY_INLINE void add_block(const BlockAt& at, std::size_t first_vector, const RowTile& rows,
                          std::size_t b, I32 (&low)[R][V], I32 (&high)[R][V]) {
  add_half_chunk<W, 0, J>(at, first_vector, rows, b, low);
  add_half_chunk<W, 1, J>(at, first_vector, rows, b, high);
  if constexpr (J < 3) add_block<W, J + 1>(at, first_vector, rows, b, low, high);
}

#if PAGEWISE_DOT4

// The exact sums of a block's products, scales inside the block included. Those of low and high
// nibbles stand apart where they have scales of their own and where a lone row hides latency behind
// a second chain.
template <typename W, std::size_t R, std::size_t V>
HWY_INLINE void sum_block(const BlockAt& at, std::size_t first_vector, const RowTile& rows,
                          std::size_t b, F32 (&out)[R][V]) {
  const DF df;
  constexpr std::size_t kHigh = W::kHighBits == 2 || R == 1 ? 1 : 0;
  I32 sums[1 + kHigh][R][V];
  for (std::size_t r = 0; r < R; ++r) {
    const QuantGroup& group = rows.groups[r / kQuantRows][b];
    const std::size_t row = rows.lane + r % kQuantRows;
    for (std::size_t v = 0; v < V; ++v) {
      sums[kHigh][r][v] = hn::Set(DI(), high_offset<W>(group, row));
      sums[0][r][v] = hn::Set(DI(), low_offset<W>(group, row));
    }
  }
  add_block<W>(at, first_vector, rows, b, sums[0], sums[kHigh]);
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) {
      if constexpr (W::kHighBits == 2) {
        // Exact in f32: two sums of at most 16 x 32 x 127, times 128, stay below 2^24.
        const uint8_t* scales = at.scales + (first_vector + v) * kLanes;
        const F32 low = hn::Mul(hn::ConvertTo(df, sums[0][r][v]), load_signed(scales));
        out[r][v] = hn::MulAdd(hn::ConvertTo(df, sums[1][r][v]), load_signed(scales + 16), low);
      } else {
        const I32 sum = kHigh == 1 ? hn::Add(sums[0][r][v], sums[kHigh][r][v]) : sums[0][r][v];
        out[r][v] = hn::ConvertTo(df, sum);
      }
    }
  }
}

#else

// Sums of products are kept in 16 bits while codes and activations are multiplied. They may
// wrap on the way, because in the end they fit:
//   nibbles, a whole block          8 x 2 x 15 x 127 = 30,480
//   codes up to 31, less 16         8 x 2 x 16 x 127 = 32,512
//   codes up to 63, less 32, half a block  4 x 2 x 32 x 127 = 32,512
// The offset is what they start from: so many times the activations whose products a lane adds up.
template <typename W>
inline constexpr int kStartOffset = W::kCodeOffset != 0 ? W::kCodeOffset
                                                        : (W::kCodeMost > 15 ? 16 : 0);

HWY_INLINE I32 pair_offsets_of(const QuantGroup& group, std::size_t half, std::size_t row) {
  int32_t word;
  std::memcpy(&word, group.pair_offsets[half][row], sizeof(word));
  return hn::Set(DI(), word);
}

// One number for all outputs: what a row's sums start from.
template <typename W>
HWY_INLINE I32 start_of_block(const QuantGroup& group, std::size_t row) {
  if constexpr (W::kSigned || kStartOffset<W> == 0) return hn::Zero(DI());
  const I32 offsets = add16(pair_offsets_of(group, 0, row), pair_offsets_of(group, 1, row));
  if constexpr (kStartOffset<W> == 16) return offsets;
  const hn::Repartition<int16_t, DI> d16;
  return hn::BitCast(DI(), hn::ShiftRight<1>(hn::BitCast(d16, offsets)));
}

// Q6_K: values 16 kHalf.. of a block, which have a scale of their own.
template <typename W, int kHalf, std::size_t R, std::size_t V>
HWY_INLINE void sum_half(const BlockAt& at, std::size_t first_vector, const RowTile& rows,
                         std::size_t b, I32 (&totals)[R][V]) {
  I32 sums[R][V];
  for (std::size_t r = 0; r < R; ++r) {
    const QuantGroup& group = rows.groups[r / kQuantRows][b];
    const I32 offsets = pair_offsets_of(group, kHalf, rows.lane + r % kQuantRows);
    for (std::size_t v = 0; v < V; ++v) sums[r][v] = add16(offsets, offsets);
  }
  add_half<W, kHalf>(at, first_vector, rows, b, sums);
  I32 scales[V];
  for (std::size_t v = 0; v < V; ++v)
    scales[v] = load_signed_pairs(at.scales + 16 * kHalf + (first_vector + v) * kLanes);
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) {
      const I32 scaled = fold16(sums[r][v], scales[v]);
      totals[r][v] = kHalf == 0 ? scaled : hn::Add(totals[r][v], scaled);
    }
  }
}

// The exact sums of a block's products, scales inside the block included.
template <typename W, std::size_t R, std::size_t V>
HWY_INLINE void sum_block(const BlockAt& at, std::size_t first_vector, const RowTile& rows,
                          std::size_t b, F32 (&out)[R][V]) {
  I32 sums[R][V];
  if constexpr (W::kHighBits == 2) {
    sum_half<W, 0>(at, first_vector, rows, b, sums);
    sum_half<W, 1>(at, first_vector, rows, b, sums);
  } else {
    for (std::size_t r = 0; r < R; ++r) {
      const QuantGroup& group = rows.groups[r / kQuantRows][b];
      const I32 start = start_of_block<W>(group, rows.lane + r % kQuantRows);
      for (std::size_t v = 0; v < V; ++v) sums[r][v] = start;
    }
    add_block<W>(at, first_vector, rows, b, sums, sums);
    for (std::size_t r = 0; r < R; ++r) {
      const QuantGroup& group = rows.groups[r / kQuantRows][b];
      for (std::size_t v = 0; v < V && !W::kSigned; ++v) {
        sums[r][v] = fold16(sums[r][v]);
        // An offset that the codes do not have is taken back.
        if constexpr (kStartOffset<W> != W::kCodeOffset) {
          const I32 start = start_of_block<W>(group, rows.lane + r % kQuantRows);
          sums[r][v] = hn::Sub(sums[r][v], fold16(start));
        }
      }
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) out[r][v] = hn::ConvertTo(DF(), sums[r][v]);
  }
}

#endif

// One block of all outputs and rows of a tile.
template <typename W, typename Shared, std::size_t R, std::size_t V>
HWY_INLINE void add_to_outputs(const BlockAt& at, const Shared (&shared)[V],
                               std::size_t first_vector, const RowTile& rows, std::size_t b,
                               F32 (&acc)[R][V]) {
  const DF df;
  F32 sums[R][V];
  sum_block<W>(at, first_vector, rows, b, sums);
  F32 d[V];
  F32 minimum[V];
  for (std::size_t v = 0; v < V; ++v) {
    const std::size_t lane = (first_vector + v) * kLanes;
    d[v] = W::scale(shared[v], at, lane);
    if constexpr (W::kHasMinimum) minimum[v] = W::minimum(shared[v], at, lane);
  }
  for (std::size_t r = 0; r < R; ++r) {
    const QuantGroup& group = rows.groups[r / kQuantRows][b];
    const std::size_t row = rows.lane + r % kQuantRows;
    const F32 x_scale = hn::Set(df, group.scales[row]);
    for (std::size_t v = 0; v < V; ++v) {
      acc[r][v] = hn::MulAdd(sums[r][v], hn::Mul(d[v], x_scale), acc[r][v]);
      if constexpr (W::kHasMinimum)
        acc[r][v] = hn::MulAdd(minimum[v], hn::Set(df, group.scaled_sums[row]), acc[r][v]);
    }
  }
}

template <typename W, std::size_t R, std::size_t V>
HWY_INLINE void tile_nibbles(const uint8_t* panel, std::size_t first_vector, const RowTile& rows,
                             std::size_t blocks, float* out, std::size_t out_stride) {
  const DF df;
  F32 acc[R][V];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) acc[r][v] = hn::Zero(df);
  }
  for (std::size_t b = 0; b < blocks; panel += W::kUnitBytes) {
    prefetch_ahead<R>(panel, W::kUnitHeadBytes);
    decltype(W::shared(panel, 0)) shared[V];
    for (std::size_t v = 0; v < V; ++v) shared[v] = W::shared(panel, (first_vector + v) * kLanes);
    for (std::size_t i = 0; i < W::kUnitBlocks && b < blocks; ++i, ++b) {
      const BlockAt at = W::at(panel, i);
      prefetch_ahead<R>(at.quants, W::kQuantBytes);
      add_to_outputs<W>(at, shared, first_vector, rows, b, acc);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v)
      hn::StoreU(acc[r][v], df, out + r * out_stride + (first_vector + v) * kLanes);
  }
}

// Q8_0. Per block 8 chunks of 16 outputs x 4 bytes, chunk j being values 4j..4j+3, each stored as
// quant + 128. With dot4 the weights are the unsigned side and the block's sum starts at -128 * sum
// of the activations; without, |w| and the sign trick keep 16 bits from saturating (2 x 128 x 127 =
// 32,512).
template <std::size_t R, std::size_t V>
HWY_INLINE void tile_q8_0(const uint8_t* panel, std::size_t first_vector, const RowTile& rows,
                          std::size_t blocks, float* out, std::size_t out_stride) {
  const DF df;
  const DI di;
  F32 acc[R][V];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) acc[r][v] = hn::Zero(df);
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    const uint8_t* pair = panel + b / 2 * kQ8PairBytes;
    const uint8_t* scales = pair + b % 2 * 2 * kPanelOutputs;
    const uint8_t* quants = pair + 64 + b % 2 * kQ8BlockBytes;
    prefetch_ahead<R>(quants, kQ8BlockBytes);
    I32 sums[R][V];
    for (std::size_t r = 0; r < R; ++r) {
#if PAGEWISE_DOT4
      const I32 start =
          hn::Set(di, rows.groups[r / kQuantRows][b].offset_sums[rows.lane + r % kQuantRows]);
#else
      const I32 start = hn::Zero(di);
#endif
      for (std::size_t v = 0; v < V; ++v) sums[r][v] = start;
    }
#if PAGEWISE_DOT4
    I32 more[V];
    for (std::size_t v = 0; v < V; ++v) more[v] = hn::Zero(di);
#endif
    for (std::size_t j = 0; j < 8; ++j) {
#if !PAGEWISE_DOT4
      I32 w[V];
      I32 magnitude[V];
#endif
      for (std::size_t v = 0; v < V; ++v) {
        const uint8_t* at = quants + 64 * j + (first_vector + v) * kLanes * 4;
        const I32 stored = hn::Load(di, reinterpret_cast<const int32_t*>(at));
#if PAGEWISE_DOT4
        for (std::size_t r = 0; r < R; ++r) {
          const I32 x = quants_of<R>(rows, b, j, r);
          if (R == 1 && j % 2 == 1) {
            more[v] = dot4(more[v], stored, x);
          } else {
            sums[r][v] = dot4(sums[r][v], stored, x);
          }
        }
#else
        w[v] = hn::Xor(stored, hn::Set(di, static_cast<int32_t>(0x80808080u)));
        magnitude[v] = abs8(w[v]);
#endif
      }
#if !PAGEWISE_DOT4
      for (std::size_t r = 0; r < R; ++r) {
        const I32 x = quants_of<R>(rows, b, j, r);
        for (std::size_t v = 0; v < V; ++v) {
          const I32 products = pairs(magnitude[v], sign8(x, w[v]));
          sums[r][v] = in_register(hn::Add(sums[r][v], fold16(products)));
        }
      }
#endif
    }
    F32 d[V];
    for (std::size_t v = 0; v < V; ++v)
      d[v] = load_halves(scales + 2 * (first_vector + v) * kLanes);
    for (std::size_t r = 0; r < R; ++r) {
      const QuantGroup& group = rows.groups[r / kQuantRows][b];
      const F32 x_scale = hn::Set(df, group.scales[rows.lane + r % kQuantRows]);
      for (std::size_t v = 0; v < V; ++v) {
#if PAGEWISE_DOT4
        const I32 sum = R == 1 ? hn::Add(sums[r][v], more[v]) : sums[r][v];
#else
        const I32 sum = sums[r][v];
#endif
        acc[r][v] = hn::MulAdd(hn::ConvertTo(df, sum), hn::Mul(d[v], x_scale), acc[r][v]);
      }
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v)
      hn::StoreU(acc[r][v], df, out + r * out_stride + (first_vector + v) * kLanes);
  }
}

// One tile, all 16 outputs of a panel. Up to four rows take two vectors at once, of 8 or 16 lanes
// a whole cache line:
// the panel may come from memory, and an activation is loaded once for both. (Where registers are
// few, the float sums then wait in memory for a block's end: AVX2 gains 5 % of Q4_1, 11 of Q5_0.)
// More rows there are only where one vector has all lanes.
template <std::size_t R, typename W>
HWY_NOINLINE void panel_tile(const uint8_t* panel, const RowTile& rows, std::size_t blocks,
                             float* out, std::size_t out_stride, std::size_t outputs) {
  constexpr std::size_t V = R <= 4 ? HWY_MIN(kVectors, 2) : 1;
  // The last panel may have fewer outputs than lanes.
  const bool whole = outputs == kPanelOutputs;
  alignas(64) float padded[R * kPanelOutputs];
  float* const to = whole ? out : padded;
  const std::size_t to_stride = whole ? out_stride : kPanelOutputs;
  for (std::size_t v = 0; v < kVectors; v += V) {
    if constexpr (std::is_same_v<W, TypeQ8_0>) {
      tile_q8_0<R, V>(panel, v, rows, blocks, to, to_stride);
    } else {
      tile_nibbles<W, R, V>(panel, v, rows, blocks, to, to_stride);
    }
  }
  for (std::size_t r = 0; r < R && !whole; ++r)
    std::memcpy(out + r * out_stride, padded + r * kPanelOutputs, outputs * sizeof(float));
}

template <typename W>
void rows_of_panel(const uint8_t* panel, const Activations& x, Range rows, float* out,
                   std::size_t out_stride, std::size_t outputs) {
  constexpr std::size_t kMost = HWY_MIN(kRowsMax, W::kRowsMost);
  const std::size_t blocks = x.blocks();
  for (std::size_t r = rows.begin; r < rows.end;) {
    RowTile tile{};
    tile.lane = r % kQuantRows;
    const std::size_t left = rows.end - r;
    // Whole groups go together, in tiles as even as they can be; a partial group is a small tile.
    std::size_t count = HWY_MIN(left, kQuantRows - tile.lane);
    if (tile.lane == 0 && left >= kQuantRows && kMost > kQuantRows) {
      count = kMost == 12 && left >= 12 && left / 4 != 4 ? 12 : (left >= 8 ? 8 : 4);
    }
    const std::size_t groups = (count + kQuantRows - 1) / kQuantRows;
    for (std::size_t g = 0; g < groups; ++g) tile.groups[g] = x.group(r / kQuantRows + g);
    float* to = out + (r - rows.begin) * out_stride;
    switch (count) {
      case 1:
        panel_tile<1, W>(panel, tile, blocks, to, out_stride, outputs);
        break;
      case 2:
        panel_tile<2, W>(panel, tile, blocks, to, out_stride, outputs);
        break;
      case 3:
        panel_tile<3, W>(panel, tile, blocks, to, out_stride, outputs);
        break;
      case 4:
        panel_tile<4, W>(panel, tile, blocks, to, out_stride, outputs);
        break;
      default:
        if constexpr (kMost > kQuantRows) {
          if (kMost == 8 || count == 8) {
            panel_tile<8, W>(panel, tile, blocks, to, out_stride, outputs);
          } else {
            panel_tile<kMost, W>(panel, tile, blocks, to, out_stride, outputs);
          }
        }
        break;
    }
    r += count;
  }
}

auto* rows_of_type(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return rows_of_panel<TypeQ4_0>;
    case TensorType::kQ4_1:
      return rows_of_panel<TypeQ4_1>;
    case TensorType::kQ5_0:
      return rows_of_panel<TypeQ5_0>;
    case TensorType::kQ5_1:
      return rows_of_panel<TypeQ5_1>;
    case TensorType::kIQ4_NL:
      return rows_of_panel<TypeIQ4_NL>;
    case TensorType::kMXFP4:
      return rows_of_panel<TypeMXFP4>;
    case TensorType::kQ4_K:
      return rows_of_panel<TypeQ4_K>;
    case TensorType::kQ5_K:
      return rows_of_panel<TypeQ5_K>;
    case TensorType::kQ6_K:
      return rows_of_panel<TypeQ6_K>;
    default:
      return rows_of_panel<TypeQ8_0>;
  }
}

void linear_integer(const LinearWeights& weights, const Activations& x, Range rows, Range panels,
                    float* out, std::size_t out_stride) {
  // A block of rows stays in L2 (192 KiB of groups) while the panels pass; a panel stays in L1
  // while the block's tiles pass. Multiples of 12 and 4, so that only a range's end has odd tiles.
  const std::size_t group_bytes = x.blocks() * sizeof(QuantGroup);
  const std::size_t row_block = HWY_MAX(192 * 1024 / (3 * group_bytes), 1) * 12;
  auto* const rows_of = rows_of_type(weights.type());
  for (std::size_t begin = rows.begin; begin < rows.end;) {
    // The first block is shortened to end on a multiple of four rows.
    const std::size_t end = HWY_MIN(begin + row_block - begin % kQuantRows, rows.end);
    float* to = out + (begin - rows.begin) * out_stride;
    for (std::size_t p = panels.begin; p < panels.end; ++p) {
      const std::size_t outputs = HWY_MIN(kPanelOutputs, weights.outputs() - p * kPanelOutputs);
      rows_of(weights.panel(p), x, {begin, end}, to + p * kPanelOutputs, out_stride, outputs);
    }
    begin = end;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pagewise::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagewise::kernels {

HWY_EXPORT(linear_integer);

void run_linear_integer(const LinearWeights& weights, const Activations& x, Range rows,
                        Range panels, float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(linear_integer)(weights, x, rows, panels, out, out_stride);
}

}  // namespace pagewise::kernels
#endif  // HWY_ONCE
