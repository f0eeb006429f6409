package dataset

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/plainjson"
)

// A token file is
//
//	offset 0     8 bytes   "CAGETOKS"
//	offset 8     uint32    format version, 3
//	offset 12    uint32    length of the JSON text
//	offset 16              the JSON text of Header, then zeros
//	offset 4096            the ids of all documents, 2 or 4 bytes each
//
// and, if the documents are conversations,
//
//	the mask               one bit for each id, starting with the lowest bit of the first
//	                       byte: 1 if the token counts in the loss
//	the index              for each document two uint32: its number of tokens, and the first
//	                       token, counted from 1, that counts in the loss
//
// with every number little-endian. The first token of a document is never predicted, so its bit has
// no effect. The header has a fixed size because it is written last, when counts and hash are
// known.
const (
	magic         = "CAGETOKS"
	formatVersion = 3
	headerSize    = 4096
	textOffset    = 16 // of the JSON text
	entrySize     = 8  // bytes per document in the index
)

// Header describes the content of a token file.
type Header struct {
	// TokenBytes is the width of an id in bytes: 2 if the vocabulary has at most 65,536 entries,
	// otherwise 4.
	TokenBytes int `json:"token_bytes"`
	// Tokens is the number of ids, including BOS and EOS tokens.
	Tokens int64 `json:"tokens"`
	// Documents is the number of documents.
	Documents int64 `json:"documents"`
	// Learned is the number of tokens of conversations that count in the loss. Longest is the
	// number of tokens in the longest conversation.
	Learned int64 `json:"learned,omitempty"`
	Longest int64 `json:"longest,omitempty"`
	Origin
	// SHA256 is the hash of everything after the header, in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
}

// Origin describes how documents were converted to ids.
type Origin struct {
	Tokenizer tokenizer.Info `json:"tokenizer"`
	// Template is the name of the template that rendered conversations, and TemplateSHA256 is the
	// hash of its source. Both are empty for texts.
	Template       string `json:"template,omitempty"`
	TemplateSHA256 string `json:"template_sha256,omitempty"`
	// TrainOn selects the turns of conversations that count in the loss.
	TrainOn string `json:"train_on,omitempty"`
}

// Conversations reports whether the documents are conversations rather than texts.
func (o Origin) Conversations() bool { return o.TemplateSHA256 != "" }

// A FormatError reports a file that is damaged or not a token file.
type FormatError struct {
	Path    string
	Problem string
}

func (e *FormatError) Error() string { return fmt.Sprintf("token file %s: %s", e.Path, e.Problem) }

func tokenBytes(vocabSize int) int {
	if vocabSize <= 1<<16 {
		return 2
	}
	return 4
}

// idBytes, maskBytes and indexBytes return the sizes of the sections after the header.
func (h *Header) idBytes() int64 { return h.Tokens * int64(h.TokenBytes) }

func (h *Header) maskBytes() int64 {
	if !h.Conversations() {
		return 0
	}
	return (h.Tokens + 7) / 8
}

func (h *Header) indexBytes() int64 {
	if !h.Conversations() {
		return 0
	}
	return h.Documents * entrySize
}

func (h *Header) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) > headerSize-textOffset {
		return nil, fmt.Errorf("header of %d bytes, want at most %d: "+
			"shorten the names of tokenizer and template", len(text), headerSize-textOffset)
	}
	block := make([]byte, headerSize)
	copy(block, magic)
	binary.LittleEndian.PutUint32(block[8:], formatVersion)
	binary.LittleEndian.PutUint32(block[12:], uint32(len(text)))
	copy(block[textOffset:], text)
	return block, nil
}

// parseHeader parses the header from block, the first bytes of a file of size bytes, and checks it
// against that size. The caller wraps its errors in a [FormatError].
func parseHeader(block []byte, size int64) (h Header, err error) {
	if len(block) < headerSize || size < headerSize {
		return h, fmt.Errorf("found %d bytes, want a header of %d", size, headerSize)
	}
	if begin := string(block[:len(magic)]); begin != magic {
		return h, fmt.Errorf("begins with %q, want %q: this is not a token file, "+
			"which 'cage data prepare' makes", begin, magic)
	}
	if version := binary.LittleEndian.Uint32(block[8:]); version != formatVersion {
		return h, fmt.Errorf("format version %d, this program reads version %d: "+
			"prepare the dataset again", version, formatVersion)
	}
	length := binary.LittleEndian.Uint32(block[12:])
	if length > headerSize-textOffset {
		return h, fmt.Errorf("header text of %d bytes, want at most %d", length, headerSize-textOffset)
	}
	if err := plainjson.UnmarshalStrict(block[textOffset:textOffset+length], &h); err != nil {
		return h, fmt.Errorf("header text: %w", err)
	}
	if len(bytes.Trim(block[textOffset+length:headerSize], "\x00")) > 0 {
		return h, fmt.Errorf("the header text is not followed by zeros: the file was changed or damaged")
	}
	// The fields are checked against each other and against the number of bytes after the header.
	t, payload := h.Tokenizer, size-headerSize
	switch {
	case t.VocabSize < 1 || t.VocabSize > math.MaxInt32:
		return h, fmt.Errorf("vocab_size %d, want 1 to %d", t.VocabSize, math.MaxInt32)
	case t.BOS < tokenizer.NoToken || int(t.BOS) >= t.VocabSize:
		return h, fmt.Errorf("bos %d, want %d (none) or an id below %d",
			t.BOS, tokenizer.NoToken, t.VocabSize)
	case t.EOS < tokenizer.NoToken || int(t.EOS) >= t.VocabSize:
		return h, fmt.Errorf("eos %d, want %d (none) or an id below %d",
			t.EOS, tokenizer.NoToken, t.VocabSize)
	case h.TokenBytes != tokenBytes(t.VocabSize):
		return h, fmt.Errorf("token_bytes %d, want %d for a vocabulary of %d",
			h.TokenBytes, tokenBytes(t.VocabSize), t.VocabSize)
	case h.Documents < 0:
		return h, fmt.Errorf("documents %d, want 0 or more", h.Documents)
	// The upper bounds are checked first, so that the sum does not overflow.
	case h.Tokens < 0 || h.Tokens > payload/int64(h.TokenBytes),
		h.Conversations() && h.Documents > min(payload/entrySize, math.MaxUint32),
		h.idBytes()+h.maskBytes()+h.indexBytes() != payload:
		return h, fmt.Errorf("the header states %d documents and %d tokens of %d bytes, but the other "+
			"sections have %d bytes: truncated or unfinished",
			h.Documents, h.Tokens, h.TokenBytes, payload)
	case h.Learned < 0 || h.Learned > h.Tokens:
		return h, fmt.Errorf("learned %d, want 0 to %d", h.Learned, h.Tokens)
	case h.Longest < 0 || h.Longest > h.Tokens || h.Longest > math.MaxInt32:
		return h, fmt.Errorf("longest %d, want 0 to %d", h.Longest, h.Tokens)
	}
	err = cmp.Or(checkSHA256("tokenizer.sha256", t.SHA256), checkSHA256("sha256", h.SHA256))
	if h.Conversations() {
		err = cmp.Or(err, checkSHA256("template_sha256", h.TemplateSHA256))
	}
	return h, err
}

// checkSHA256 returns an error if the value of a field is not a hash in lower-case hexadecimal.
func checkSHA256(field, value string) error {
	if len(value) != 64 || strings.Trim(value, "0123456789abcdef") != "" {
		return fmt.Errorf("%s %q is not 64 hexadecimal digits", field, value)
	}
	return nil
}
