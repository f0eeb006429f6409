package export

// packWords packs rows of signed integers of 4 or 8 bits as compressed-tensors does: element i of a
// row, plus 2^(bits−1), occupies the bits bits·i … bits·i+bits−1 of the row, counted from the least
// significant bit of its first word. Each row begins with a new word; its last word is padded with
// zeros.
func packWords(codes []int32, columns, bits int) []int32 {
	perWord, offset := 32/bits, int32(1)<<(bits-1)
	out := make([]int32, 0, len(codes)/perWord)
	for row := 0; row < len(codes); row += columns {
		for first := 0; first < columns; first += perWord {
			word := uint32(0)
			for i := range min(perWord, columns-first) {
				word |= uint32(codes[row+first+i]+offset) << (bits * i)
			}
			out = append(out, int32(word))
		}
	}
	return out
}

// packE2M1 packs codes 0…15 in pairs: the first of each pair in the low four bits.
func packE2M1(codes []int32) []byte {
	out := make([]byte, len(codes)/2)
	for i, code := range codes {
		out[i/2] |= byte(code) << (i % 2 * 4)
	}
	return out
}
