"""BLAKE3 of a few bytes, as its specification describes it: for fingerprints, not for speed."""

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
START, END, PARENT, ROOT = 1, 2, 4, 8
CHUNK, BLOCK = 1024, 64
MASK = 0xFFFFFFFF


def turn(x, by):
    return (x >> by | x << (32 - by)) & MASK


def mix(v, a, b, c, d, x, y):
    v[a] = (v[a] + v[b] + x) & MASK
    v[d] = turn(v[d] ^ v[a], 16)
    v[c] = (v[c] + v[d]) & MASK
    v[b] = turn(v[b] ^ v[c], 12)
    v[a] = (v[a] + v[b] + y) & MASK
    v[d] = turn(v[d] ^ v[a], 8)
    v[c] = (v[c] + v[d]) & MASK
    v[b] = turn(v[b] ^ v[c], 7)


def compress(chain, words, counter, length, flags):
    """The eight words of a block's chaining value."""
    v = list(chain) + list(IV[:4]) + [counter & MASK, counter >> 32, length, flags]
    for number in range(7):
        for column in range(4):
            mix(v, column, 4 + column, 8 + column, 12 + column, words[2 * column], words[2 * column + 1])
        for i in range(4):
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[8 + 2 * i], words[9 + 2 * i])
        words = [words[i] for i in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)]


def words_of(block):
    block = block.ljust(BLOCK, b"\0")
    return [int.from_bytes(block[i:i + 4], "little") for i in range(0, BLOCK, 4)]


def chunk(data, counter, root):
    chain = IV
    blocks = [data[i:i + BLOCK] for i in range(0, len(data), BLOCK)] or [b""]
    for i, block in enumerate(blocks):
        last = i + 1 == len(blocks)
        flags = (START if i == 0 else 0) | (END if last else 0) | (root if last else 0)
        chain = compress(chain, words_of(block), counter, len(block), flags)
    return chain


def tree(data, first, root):
    """The chaining value of chunks from number `first` on."""
    if len(data) <= CHUNK:
        return chunk(data, first, root)
    # The left half has as many chunks as a power of two allows.
    chunks = 1
    while 2 * chunks * CHUNK < len(data):
        chunks *= 2
    left, right = tree(data[:chunks * CHUNK], first, 0), tree(data[chunks * CHUNK:], first + chunks, 0)
    return compress(IV, left + right, 0, BLOCK, PARENT | root)


def blake3(data):
    """The 32 bytes of a hash."""
    return b"".join(word.to_bytes(4, "little") for word in tree(data, 0, ROOT))
