package rows

import (
	"cmp"
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/fileheader"
)

// A chat file is
//
//	offset 0      the header of package fileheader, with the magic "CAGECHAT" and the JSON
//	              text of Header; version 1
//	offset 4096   the tokens of all documents, 4 bytes each: the id in the lower 31 bits, in
//	              the highest whether the token carries loss
//	behind them   for each document two uint32: its number of tokens, and the first of them,
//	              from 1, that carries loss
//
// with every number little-endian. The first token of a document is never predicted, and so
// its mark has no effect.
const (
	// Magic is at the beginning of every chat file.
	Magic         = "CAGECHAT"
	formatVersion = 1
	headerSize    = fileheader.Size
	tokenSize     = 4
	entrySize     = 8
	lossBit       = 1 << 31
)

var format = fileheader.Format{Magic: Magic, What: "chat file", Oldest: formatVersion, Newest: formatVersion, TooLong: "shorten the names of tokenizer and template"}

// Header says what a chat file holds.
type Header struct {
	// Documents is the number of documents, Tokens the number of all their tokens, and
	// Learned the number of tokens that carry loss.
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"`
	Learned   int64 `json:"learned"`
	// Longest is the number of tokens in the longest document.
	Longest int64 `json:"longest"`
	// Origin says how the documents were made.
	Origin
	// SHA256 is the hash of everything after the header, in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
}

// Origin says how documents were made from conversations.
type Origin struct {
	Tokenizer tokenizer.Info `json:"tokenizer"`
	// Template is the name of the template, and TemplateSHA256 the hash of its source.
	Template       string `json:"template"`
	TemplateSHA256 string `json:"template_sha256"`
	// TrainOn says which turns carry loss.
	TrainOn string `json:"train_on"`
}

// A FormatError reports a file that is damaged or not a chat file.
type FormatError struct {
	Path    string
	Problem string
}

func (e *FormatError) Error() string { return fmt.Sprintf("chat file %s: %s", e.Path, e.Problem) }

// encode returns the first headerSize bytes of a file.
func (h *Header) encode() ([]byte, error) { return format.Encode(formatVersion, h) }

// parseHeader reads the header from the first bytes of a file that is size bytes long. Its
// errors are the problem of a FormatError.
func parseHeader(block []byte, size int64) (Header, error) {
	var h Header
	if _, err := format.Decode(block, size, &h); err != nil {
		return h, err
	}
	return h, h.check(size - headerSize)
}

// check compares the fields with each other and with the number of bytes behind the header.
func (h *Header) check(payload int64) error {
	t := h.Tokenizer
	switch {
	case t.VocabSize < 1 || t.VocabSize > math.MaxInt32:
		return fmt.Errorf("vocab_size %d, want 1 to %d", t.VocabSize, math.MaxInt32)
	case h.Documents < 0 || h.Documents > math.MaxUint32 || h.Documents > payload/entrySize,
		h.Tokens < 0 || h.Tokens > payload/tokenSize,
		h.Documents*entrySize+h.Tokens*tokenSize != payload:
		return fmt.Errorf("states %d documents of %d tokens, which %d bytes behind the header do not hold: truncated, or not finished", h.Documents, h.Tokens, payload)
	case h.Learned < 0 || h.Learned > h.Tokens:
		return fmt.Errorf("learned %d, want 0 to %d", h.Learned, h.Tokens)
	case h.Longest < 0 || h.Longest > h.Tokens || h.Longest > math.MaxInt32:
		return fmt.Errorf("longest %d, want 0 to %d", h.Longest, h.Tokens)
	}
	return cmp.Or(fileheader.CheckSHA256("tokenizer.sha256", t.SHA256), fileheader.CheckSHA256("template_sha256", h.TemplateSHA256),
		fileheader.CheckSHA256("sha256", h.SHA256))
}
