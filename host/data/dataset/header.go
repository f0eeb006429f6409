package dataset

import (
	"cmp"
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/fileheader"
)

// A token file is
//
//	offset 0     the header of package fileheader, with the Magic "CAGETOKS" and the JSON
//	             text of Header; version 1, or 2 when the tokenizer has an end token
//	offset 4096  the token ids, 2 or 4 bytes each, to the end of the file
//
// with every number little-endian.
const (
	// Magic is at the beginning of every token file.
	Magic      = "CAGETOKS"
	withoutEnd = 1 // no document has an end token
	withEnd    = 2
	headerSize = fileheader.Size
)

var format = fileheader.Format{Magic: Magic, What: "token file", Oldest: withoutEnd, Newest: withEnd, TooLong: "shorten the name of the tokenizer"}

// Header says what a token file holds.
type Header struct {
	// TokenBytes is the width of one id: 2 when the vocabulary has at most
	// 65,536 entries, otherwise 4.
	TokenBytes int `json:"token_bytes"`
	// Tokens is the number of ids, begin and end tokens included.
	Tokens int64 `json:"tokens"`
	// Documents is the number of documents they come from.
	Documents int64 `json:"documents"`
	// Tokenizer describes the tokenizer that made the ids.
	Tokenizer tokenizer.Info `json:"tokenizer"`
	// SHA256 is the hash of the stored ids, in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
}

// A FormatError reports a file that is damaged or not a token file.
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
func (h *Header) encode() ([]byte, error) { return format.Encode(h.version(), h) }

// parseHeader reads the header from the first bytes of a file that is size bytes
// long, and checks it against that size. Its errors are the problem of a
// FormatError.
func parseHeader(block []byte, size int64) (Header, error) {
	var h Header
	version, err := format.Decode(block, size, &h)
	if err != nil {
		return h, err
	}
	if err := h.check(size - headerSize); err != nil {
		return h, err
	}
	if version != h.version() {
		return h, fmt.Errorf("format version %d, want %d for a tokenizer with the end token %d", version, h.version(), h.Tokenizer.EOS)
	}
	return h, nil
}

// version is the format version: programs that know only the first one must not take
// end tokens for text.
func (h *Header) version() uint32 {
	if h.Tokenizer.EOS == tokenizer.NoToken {
		return withoutEnd
	}
	return withEnd
}

// check compares the fields with each other and with the length of the payload.
func (h *Header) check(payload int64) error {
	t := h.Tokenizer
	switch {
	case t.VocabSize < 1 || t.VocabSize > math.MaxInt32:
		return fmt.Errorf("vocab_size %d, want 1 to %d", t.VocabSize, math.MaxInt32)
	case t.BOS < tokenizer.NoToken || int(t.BOS) >= t.VocabSize:
		return fmt.Errorf("bos %d, want %d (none) or an id below %d", t.BOS, tokenizer.NoToken, t.VocabSize)
	case t.EOS < tokenizer.NoToken || int(t.EOS) >= t.VocabSize:
		return fmt.Errorf("eos %d, want %d (none) or an id below %d", t.EOS, tokenizer.NoToken, t.VocabSize)
	case h.TokenBytes != tokenBytes(t.VocabSize):
		return fmt.Errorf("token_bytes %d, want %d for a vocabulary of %d", h.TokenBytes, tokenBytes(t.VocabSize), t.VocabSize)
	case h.Tokens < 0 || h.Tokens > payload/int64(h.TokenBytes) || h.Tokens*int64(h.TokenBytes) != payload:
		return fmt.Errorf("states %d tokens of %d bytes, but %d bytes follow the header: truncated, or not finished", h.Tokens, h.TokenBytes, payload)
	case h.Documents < 0:
		return fmt.Errorf("documents %d, want 0 or more", h.Documents)
	}
	return cmp.Or(fileheader.CheckSHA256("tokenizer.sha256", t.SHA256), fileheader.CheckSHA256("sha256", h.SHA256))
}
