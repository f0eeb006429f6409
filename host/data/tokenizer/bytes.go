package tokenizer

const bytesName = "bytes"

// Bytes is the byte-level tokenizer: the id of a byte is its value, the
// vocabulary has 256 entries, and every text comes back unchanged.
//
// Byte 0 begins a document. It is free for that, because a text file that
// contains it counts as binary and is never made into a document.
type Bytes struct{}

var _ Tokenizer = Bytes{}

// Info returns the name "bytes", 256 tokens, and 0 as the token that begins a document.
// There is no token that ends one.
func (Bytes) Info() Info {
	return Info{Name: bytesName, VocabSize: 256, BOS: 0, EOS: NoToken, SHA256: hash([]byte(bytesName))}
}

// Encode returns one id per byte of text. It never fails.
func (Bytes) Encode(text string) ([]int32, error) {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids, nil
}

// Cut returns the length of text: it can be cut anywhere.
func (Bytes) Cut(text []byte) int { return len(text) }

// EncodeRest is the same as Encode.
func (b Bytes) EncodeRest(text string) ([]int32, error) { return b.Encode(text) }

// Decode returns the bytes; an id outside 0–255 is a [*RangeError].
func (Bytes) Decode(ids []int32) (string, error) {
	text := make([]byte, len(ids))
	for i, id := range ids {
		if id < 0 || id > 255 {
			return "", &RangeError{ID: int64(id), VocabSize: 256}
		}
		text[i] = byte(id)
	}
	return string(text), nil
}

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
