// Made by `make ptx` from the Rust definition of the format; do not edit.
#pragma once

#define MAGIC 1145458260
#define FORMAT_VERSION 1
#define FIXED 12
#define CODEC_PLANES 1
#define CODEC_LEVELS 2
#define CODEC_PAIRS 5
#define PAIR_LOG 11
#define PAIR_ESCAPE 238
#define PAIR_ESCAPE_BITS 3
#define PAIR_FIRST_ODD 16
#define PAIR_SECOND_ODD 1
#define TRANSFORM_WEIGHTS 2
#define TRANSFORM_MEANS 5
#define TRANSFORM_KEPT 4
#define MAX_POSITION 4294967296
#define TRANSFORM_BASIS 7
#define TRANSFORM_ROPE 8
#define TRANSFORM_TRANSPOSED 10
#define SCALES_OF_BASIS 15
#define AXIS_COLUMNS 0
#define AXIS_ROWS 1
#define MAX_TILE 4194304
#define MAX_LANES 32
#define LANES_LOG 5
#define MAX_CLASSES 16
#define MAX_LEVEL 8388607
#define MAX_LOW_BITS 16
#define MAX_SCALE_BITS 6
#define ESCAPE 128
#define START 65536
#define LOG_LEAST 8
#define LOG_MOST 12
#define PLANE_LOG 12
#define TILE_CODED 1
#define TILE_ESCAPES_SHIFT 1
#define TILE_EXACT 8
#define PLANE_CONSTANT 0
#define PLANE_STORED 1
#define PLANE_CODED 2
#define OFFSETS 8
#define UNITS 64
#define DTYPE_BOOL 0
#define DTYPE_U8 1
#define DTYPE_I8 2
#define DTYPE_U16 3
#define DTYPE_I16 4
#define DTYPE_U32 5
#define DTYPE_I32 6
#define DTYPE_U64 7
#define DTYPE_I64 8
#define DTYPE_F8_E4M3 16
#define DTYPE_F8_E5M2 17
#define DTYPE_F16 18
#define DTYPE_BF16 19
#define DTYPE_F32 20
#define DTYPE_F64 21
#define STATUS_OK 0
#define STATUS_NOT_A_BLOB 1
#define STATUS_VERSION 2
#define STATUS_DTYPE 3
#define STATUS_CODEC 4
#define STATUS_STEP 5
#define STATUS_TRELLIS 6
#define STATUS_OTHER_ENGINE 7
#define STATUS_TRUNCATED 8
#define STATUS_BYTES 9
#define STATUS_DIMS 10
#define STATUS_BUFFER 11
#define STATUS_OUTPUT_DTYPE 12
#define STATUS_ROWS 13
#define STATUS_DOES_NOT_FIT 14
#define STATUS_WORKSPACE 15
#define STATUS_ALIGNMENT 16
#define STATUS_OTHER_CODEC 17
#define STATUS_NO_BASIS 18
#define STATUS_OTHER_BASIS 19
#define STATUS_NOT_FINITE 20
#define STATUS_OTHER_ROPE 21
#define STATUS_OTHER_STEPS 22
#define STATUS_POSITION 23
#define STATUS_OTHER_ORDER 24
#define STATUS_OTHER_BASE 25
#define STATUS_HEADER_CHECKSUM 32
#define STATUS_HEADER_LENGTH 33
#define STATUS_FIELD 34
#define STATUS_VARINT 35
#define STATUS_SHAPE 36
#define STATUS_GEOMETRY 37
#define STATUS_LEVELS 38
#define STATUS_TABLE_SIZE 39
#define STATUS_SCALE 40
#define STATUS_OFFSETS_COUNT 41
#define STATUS_CLASSES 42
#define STATUS_WIDTH 43
#define STATUS_SCALE_BITS 44
#define STATUS_THRESHOLDS 45
#define STATUS_LOW_BITS 46
#define STATUS_TABLES 47
#define STATUS_PLANE 48
#define STATUS_DIRECTORY 49
#define STATUS_TILE_LENGTH 50
#define STATUS_BYTES_AFTER 51
#define STATUS_TILE_CHECKSUM 52
#define STATUS_TILE_FLAGS 53
#define STATUS_TILE_ZEROS 54
#define STATUS_STATE 55
#define STATUS_WORDS 56
#define STATUS_ESCAPES 57
#define STATUS_LEVEL 58
#define STATUS_LOW_LEFT 59
#define STATUS_EXACT_RUN 60
#define STATUS_TILE_LEFT 61
#define STATUS_PLANE_MODE 62
#define STATUS_PADDING 63
#define STATUS_WEIGHTS 64
#define STATUS_KEPT 65
#define STATUS_KEPT_LATER 66
#define STATUS_EXACT_FINITE 67
#define STATUS_BASIS_STEP 68
#define STATUS_MEANS 69
#define STATUS_TRANSPOSED 70
#define STATUS_DELTA_PLACE 71
#define STATUS_DELTA_VALUE 72
#define STATUS_DELTA_END 73
#define STATUS_DELTA_RESULT 74

// Feedback of the trellis by log2 of its states: on the quantiser, on the parity; 0 where there is none.
#define TRELLIS_QUANTISER {0, 0, 2, 5, 9, 18, 33, 78, 166}
#define TRELLIS_PARITY {0, 0, 1, 2, 2, 4, 10, 43, 121}

// Bits of 2^(k/8) as an f32, for k = 0 … 7.
#define EIGHTHS {0x3f800000u, 0x3f8b95c2u, 0x3f9837f0u, 0x3fa5fed7u, 0x3fb504f3u, 0x3fc5672au, 0x3fd744fdu, 0x3feac0c7u}

// CRC-32: the polynomial; x to the power of 32·n for n = 0 … 32; to that of 32·CRC_PART·n for n = 0 … 15, and
// of sixteen times that; products of x to the power of 32·32 with each half of a byte.
#define CRC_POLYNOMIAL 0xedb88320u
#define CRC_PART 288
#define CRC_POWERS {0x80000000u, 0xedb88320u, 0xb1e6b092u, 0x6655004fu, 0xa06a2517u, 0xba8ccbe8u, 0x32b39da3u, 0xad2a31b3u, 0xed627daeu, 0x78ed02d5u, 0xa700e96au, 0xba1aca03u, 0x15141c31u, 0x1ed8f66eu, 0xd95efd26u, 0xe3720acbu, 0x88d14467u, 0xaa2215eau, 0x329ecc11u, 0x5705a9cau, 0x4721589fu, 0xe3ab4f2au, 0xc0b95347u, 0xc65a272cu, 0xe5b592b8u, 0x6f8346e1u, 0xd777606eu, 0xebe7e356u, 0x6325605cu, 0xf5449b3fu, 0xcc3374u, 0xa53ff440u, 0xd7bbfe6au}
#define CRC_PARTS {0x80000000u, 0xb1436b58u, 0xa84bdc84u, 0x92b4c92cu, 0x5f58ea19u, 0x4a227981u, 0x1e139bbcu, 0x11021915u, 0x4d29b1c7u, 0x8a7a0f81u, 0xb9bae81cu, 0x82d5e13eu, 0x61bb1794u, 0x64e04cf7u, 0xec062836u, 0x9b76f67u}
#define CRC_SIXTEENS {0x80000000u, 0x90e1204u, 0x866744b2u, 0x4f99e7a4u, 0x7d49af9u, 0x9edaa289u, 0xd8d88076u, 0xb98ac3c0u, 0x6379f469u, 0x70bd78f9u, 0xf7746a2u, 0x57ae79b0u, 0x1f646547u, 0x9370601eu, 0x7fc3968au, 0xf4186edau}
#define CRC_NIBBLES {0x0u, 0x33fff533u, 0x67ffea66u, 0x54001f55u, 0xcfffd4ccu, 0xfc0021ffu, 0xa8003eaau, 0x9bffcb99u, 0x448eafd9u, 0x77715aeau, 0x237145bfu, 0x108eb08cu, 0x8b717b15u, 0xb88e8e26u, 0xec8e9173u, 0xdf716440u, 0x0u, 0x891d5fb2u, 0xc94bb925u, 0x4056e697u, 0x49e6740bu, 0xc0fb2bb9u, 0x80adcd2eu, 0x9b0929cu, 0x93cce816u, 0x1ad1b7a4u, 0x5a875133u, 0xd39a0e81u, 0xda2a9c1du, 0x5337c3afu, 0x13612538u, 0x9a7c7a8au, 0x0u, 0xfce8d66du, 0x22a0aa9bu, 0xde487cf6u, 0x45415536u, 0xb9a9835bu, 0x67e1ffadu, 0x9b0929c0u, 0x8a82aa6cu, 0x766a7c01u, 0xa82200f7u, 0x54cad69au, 0xcfc3ff5au, 0x332b2937u, 0xed6355c1u, 0x118b83acu, 0x0u, 0xce745299u, 0x4799a373u, 0x89edf1eau, 0x8f3346e6u, 0x4147147fu, 0xc8aae595u, 0x6deb70cu, 0xc5178b8du, 0xb63d914u, 0x828e28feu, 0x4cfa7a67u, 0x4a24cd6bu, 0x84509ff2u, 0xdbd6e18u, 0xc3c93c81u, 0x0u, 0x515e115bu, 0xa2bc22b6u, 0xf3e233edu, 0x9e09432du, 0xcf575276u, 0x3cb5619bu, 0x6deb70c0u, 0xe763801bu, 0xb63d9140u, 0x45dfa2adu, 0x1481b3f6u, 0x796ac336u, 0x2834d26du, 0xdbd6e180u, 0x8a88f0dbu, 0x0u, 0x15b60677u, 0x2b6c0ceeu, 0x3eda0a99u, 0x56d819dcu, 0x436e1fabu, 0x7db41532u, 0x68021345u, 0xadb033b8u, 0xb80635cfu, 0x86dc3f56u, 0x936a3921u, 0xfb682a64u, 0xeede2c13u, 0xd004268au, 0xc5b220fdu, 0x0u, 0x80116131u, 0xdb53c423u, 0x5b42a512u, 0x6dd68e07u, 0xedc7ef36u, 0xb6854a24u, 0x36942b15u, 0xdbad1c0eu, 0x5bbc7d3fu, 0xfed82du, 0x80efb91cu, 0xb67b9209u, 0x366af338u, 0x6d28562au, 0xed39371bu, 0x0u, 0x6c2b3e5du, 0xd8567cbau, 0xb47d42e7u, 0x6bddff35u, 0x7f6c168u, 0xb38b838fu, 0xdfa0bdd2u, 0xd7bbfe6au, 0xbb90c037u, 0xfed82d0u, 0x63c6bc8du, 0xbc66015fu, 0xd04d3f02u, 0x64307de5u, 0x81b43b8u}
#define CRC_DOUBLINGS {0xedb88320u, 0xb1e6b092u, 0xa06a2517u, 0xed627daeu, 0x88d14467u, 0xd7bbfe6au, 0xec447f11u, 0x8e7ea170u, 0x6427800eu, 0x4d47bae0u, 0x9fe548fu, 0x83852d0fu, 0x30362f1au, 0x7b5a9cc3u, 0x31fec169u, 0x9fec022au, 0x6c8dedc4u, 0x15d6874du, 0x5fde7a4eu, 0xbad90e37u, 0x2e4e5eefu, 0x4eaba214u, 0xa8a472c0u, 0x429a969eu, 0x148d302au, 0xc40ba6d0u, 0xc4e22c3cu, 0x40000000u, 0x20000000u, 0x8000000u, 0x800000u, 0x8000u}
