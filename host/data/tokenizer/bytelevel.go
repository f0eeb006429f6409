package tokenizer

// Byte-level tokenizers write every byte as one printable character: bytes
// that are printable in Latin-1 as themselves, the other 68 as U+0100 onwards
// in order of their value (GPT-2, Radford et al. 2019).
var (
	byteToRune [256]rune
	runeToByte = make(map[rune]byte, 256)
)

func init() {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := (r >= '!' && r <= '~') || (r >= 0xA1 && r <= 0xAC) || r >= 0xAE
		if !printable {
			r = next
			next++
		}
		byteToRune[b] = r
		runeToByte[r] = byte(b)
	}
}

// toByteLevel writes text in the alphabet of byte-level tokens.
func toByteLevel(text string) string {
	out := make([]rune, len(text))
	for i := range len(text) {
		out[i] = byteToRune[text[i]]
	}
	return string(out)
}

// fromByteLevel appends the bytes that token stands for. A token with a
// character outside the alphabet, as special tokens may have, stands for itself.
func fromByteLevel(dst []byte, token string) []byte {
	start := len(dst)
	for _, r := range token {
		b, ok := runeToByte[r]
		if !ok {
			return append(dst[:start], token...)
		}
		dst = append(dst, b)
	}
	return dst
}
