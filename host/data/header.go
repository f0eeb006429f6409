package data

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

// A token file is
//
//	offset 0     8 bytes  magic "CAGETOKS"
//	offset 8     uint32   format version, 1
//	offset 12    uint32   length of the JSON text
//	offset 16             the JSON text of Header, then zeros
//	offset 4096           the token ids, 2 or 4 bytes each, to the end of the file
//
// with every number little-endian. The header has a fixed place and size so
// that it can be written after the ids, whose count and hash it states.
const (
	magic         = "CAGETOKS"
	formatVersion = 1
	headerSize    = 4096
	jsonOffset    = 16
)

// Header says what a token file holds.
type Header struct {
	// TokenBytes is the width of one id: 2 when the vocabulary has at most
	// 65,536 entries, otherwise 4.
	TokenBytes int `json:"token_bytes"`
	// Tokens is the number of ids, beginning-of-document tokens included.
	Tokens int64 `json:"tokens"`
	// Documents is the number of documents they come from.
	Documents int64 `json:"documents"`
	// Tokenizer is what made the ids.
	Tokenizer tokenizer.Info `json:"tokenizer"`
	// SHA256 is the hash of the stored ids, in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
}

// A FormatError reports a file that is not a token file, or a damaged one.
type FormatError struct {
	Path    string
	Problem string
}

func (e *FormatError) Error() string { return fmt.Sprintf("token file %s: %s", e.Path, e.Problem) }

// tokenBytes returns the width of an id for a vocabulary.
func tokenBytes(vocabSize int) int {
	if vocabSize <= 1<<16 {
		return 2
	}
	return 4
}

// encode returns the first headerSize bytes of a file.
func (h *Header) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) > headerSize-jsonOffset {
		return nil, fmt.Errorf("header of %d bytes does not fit into %d: shorten the name of the tokenizer", len(text), headerSize-jsonOffset)
	}
	block := make([]byte, headerSize)
	copy(block, magic)
	binary.LittleEndian.PutUint32(block[8:], formatVersion)
	binary.LittleEndian.PutUint32(block[12:], uint32(len(text)))
	copy(block[jsonOffset:], text)
	return block, nil
}

// parseHeader reads the first bytes of a file that is size bytes long. It
// believes nothing that the size contradicts; what it returns is safe to use.
// Its errors are the problem of a FormatError.
func parseHeader(block []byte, size int64) (Header, error) {
	var h Header
	if len(block) < headerSize || size < headerSize {
		return h, fmt.Errorf("%d bytes long, a header alone has %d", size, headerSize)
	}
	if string(block[:len(magic)]) != magic {
		return h, fmt.Errorf("begins with %q, want %q: this is no token file", block[:len(magic)], magic)
	}
	if v := binary.LittleEndian.Uint32(block[8:]); v != formatVersion {
		return h, fmt.Errorf("format version %d, this program reads version %d", v, formatVersion)
	}
	length := binary.LittleEndian.Uint32(block[12:])
	if length > headerSize-jsonOffset {
		return h, fmt.Errorf("header text of %d bytes, at most %d fit", length, headerSize-jsonOffset)
	}
	text := block[jsonOffset : jsonOffset+length]
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return h, fmt.Errorf("header text: %w", err)
	}
	if dec.More() {
		return h, fmt.Errorf("header text goes on after its end")
	}
	if len(bytes.Trim(block[jsonOffset+length:headerSize], "\x00")) > 0 {
		return h, fmt.Errorf("the header text is not followed by zeros: the file was changed or damaged")
	}
	return h, h.check(size - headerSize)
}

// check holds the header against itself and against the length of the payload.
func (h *Header) check(payload int64) error {
	t := h.Tokenizer
	switch {
	case t.VocabSize < 1 || t.VocabSize > math.MaxInt32:
		return fmt.Errorf("vocab_size %d, want 1 to %d", t.VocabSize, math.MaxInt32)
	case t.BOS < tokenizer.NoBOS || int(t.BOS) >= t.VocabSize:
		return fmt.Errorf("bos %d, want %d (none) or an id below %d", t.BOS, tokenizer.NoBOS, t.VocabSize)
	case h.TokenBytes != tokenBytes(t.VocabSize):
		return fmt.Errorf("token_bytes %d, want %d for a vocabulary of %d", h.TokenBytes, tokenBytes(t.VocabSize), t.VocabSize)
	case h.Tokens < 0 || h.Tokens > payload/int64(h.TokenBytes) || h.Tokens*int64(h.TokenBytes) != payload:
		return fmt.Errorf("states %d tokens of %d bytes, but %d bytes follow the header: truncated, or not finished", h.Tokens, h.TokenBytes, payload)
	case h.Documents < 0:
		return fmt.Errorf("documents %d, want 0 or more", h.Documents)
	case !isSHA256(t.SHA256):
		return fmt.Errorf("tokenizer.sha256 %q is not 64 hexadecimal digits", t.SHA256)
	case !isSHA256(h.SHA256):
		return fmt.Errorf("sha256 %q is not 64 hexadecimal digits", h.SHA256)
	}
	return nil
}

func isSHA256(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
