// Package tokenizer converts text to token ids and back.
//
// There are two kinds of tokenizers: [Bytes], one token per byte, which needs no files, and
// [HuggingFace], which reads the byte-pair tokenizers of published models from their
// tokenizer.json. Neither adds BOS or EOS tokens: the writer of a token file puts [Info.BOS] before
// each document and [Info.EOS] after it. A tokenizer.json that this package cannot compute exactly
// is rejected on loading ([UnsupportedError]): with a tokenizer that is only almost right, a model
// would train on text that nobody wrote. Token files and datasets belong to package data.
package tokenizer

import (
	"crypto/sha256"
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
)

// NoToken is the value of [Info.BOS] and [Info.EOS] if a tokenizer has no such token.
const NoToken int32 = -1

// Ends returns the tokens that end a text: BOS, which begins the next document, EOS, and the token
// that ends a turn. Those that are [NoToken] are left out.
func Ends(tok Tokenizer, endOfTurn int32) []int32 {
	return slices.DeleteFunc([]int32{tok.Info().BOS, tok.Info().EOS, endOfTurn},
		func(id int32) bool { return id == NoToken })
}

// Info identifies a tokenizer, as recorded in token files.
type Info struct {
	// Name is for display: "bytes", or the name of the folder or file from which the tokenizer was
	// read.
	Name string `json:"name"`
	// VocabSize is one more than the largest id that Encode can return.
	VocabSize int `json:"vocab_size"`
	// BOS is the token that begins every document, or NoToken.
	BOS int32 `json:"bos"`
	// EOS is the token that ends every document, or NoToken.
	EOS int32 `json:"eos"`
	// SHA256 identifies the tokenizer: the hash, in lower-case hexadecimal, of the tokenizer.json,
	// or of the name of a built-in one.
	SHA256 string `json:"sha256"`
}

// MarshalJSON omits a missing EOS token.
func (i Info) MarshalJSON() ([]byte, error) {
	stored := struct {
		Name      string `json:"name"`
		VocabSize int    `json:"vocab_size"`
		BOS       int32  `json:"bos"`
		EOS       *int32 `json:"eos,omitempty"`
		SHA256    string `json:"sha256"`
	}{i.Name, i.VocabSize, i.BOS, &i.EOS, i.SHA256}
	if i.EOS == NoToken {
		stored.EOS = nil
	}
	return json.Marshal(stored)
}

// UnmarshalJSON rejects unknown keys.
func (i *Info) UnmarshalJSON(text []byte) error {
	type plain Info
	stored := plain{EOS: NoToken}
	err := jsonv2.Unmarshal(text, &stored, jsonv2.RejectUnknownMembers(true))
	*i = Info(stored)
	return plainjson.Explain(nil, err)
}

// Tokenizer converts between text and token ids. Implementations are safe for concurrent use.
type Tokenizer interface {
	// Info identifies the tokenizer.
	Info() Info
	// Encode returns the ids of text, without BOS and EOS tokens.
	Encode(text string) ([]int32, error)
	// Decode returns the text of ids, special tokens included. The result may contain partial
	// characters: it need not be valid UTF-8.
	Decode(ids []int32) (string, error)
}

// AddsBOS reports whether other programs put the BOS token before a text that they encode with the
// tokenizer. They do not if only tokenizer_config.json names that token.
func AddsBOS(t Tokenizer) bool {
	h, ok := t.(*HuggingFace)
	return t.Info().BOS != NoToken && (!ok || h.addsBOS)
}

// IsSpecial reports whether a token has no text, like those that begin and end documents and turns.
func IsSpecial(t Tokenizer, id int32) bool {
	h, ok := t.(*HuggingFace)
	return ok && h.special[id]
}

// Open returns the tokenizer that spec names: "bytes" is the built-in [Bytes], anything else is the
// path of a tokenizer.json or of a folder that contains one (see [LoadHuggingFace]).
func Open(spec string) (Tokenizer, error) {
	if spec == bytesName {
		return Bytes{}, nil
	}
	stat, err := os.Stat(spec)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %q is neither %q nor a tokenizer.json: %w",
			spec, bytesName, err)
	}
	if !stat.IsDir() && filepath.Ext(spec) == ".gguf" {
		return nil, fmt.Errorf("tokenizer %q is a GGUF file: `cage import %[1]s --out RUN` converts it "+
			"to a run; give the run's directory", spec)
	}
	if stat.IsDir() {
		spec = filepath.Join(spec, DefinitionFile)
	}
	t, err := LoadHuggingFace(spec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; a run on bytes has no such file: its tokenizer is %q", err, bytesName)
	case err != nil:
		return nil, err
	}
	return t, nil
}

// Reopen returns the tokenizer that info describes. Unless it is built in, folder must hold its
// tokenizer.json. Name, BOS and EOS are taken from info. It is an error if the hash differs.
func Reopen(folder string, info Info) (Tokenizer, error) {
	content, err := Definition(folder, info)
	if err != nil {
		return nil, err
	}
	return Restore(content, info)
}

// Restore is like [Reopen], but takes the content of a tokenizer.json returned by [Definition].
func Restore(content []byte, info Info) (Tokenizer, error) {
	if info == (Bytes{}).Info() {
		return Bytes{}, nil
	}
	t, err := ReadHuggingFace(content, nil)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", info.Name, err)
	}
	if t.info.VocabSize != info.VocabSize {
		return nil, fmt.Errorf("tokenizer %s has %d tokens, want %d",
			info.Name, t.info.VocabSize, info.VocabSize)
	}
	t.info.Name = info.Name
	return t, t.setBoundaries(info.BOS, info.EOS)
}

// Definition returns the tokenizer.json of the tokenizer that info describes, or nil for a built-in
// one. spec is as for [Open]. The content is checked against the hash, but not parsed.
func Definition(spec string, info Info) ([]byte, error) {
	if info == (Bytes{}).Info() {
		return nil, nil
	}
	if stat, err := os.Stat(spec); err == nil && stat.IsDir() {
		spec = filepath.Join(spec, DefinitionFile)
	}
	content, err := readFile(spec)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", info.Name, err)
	}
	if err := info.Check(content); err != nil {
		return nil, fmt.Errorf("%s: %w", spec, err)
	}
	return content, nil
}

// Check checks the content of a tokenizer.json against the tokenizer's hash.
func (i Info) Check(content []byte) error {
	if got := hash(content); got != i.SHA256 {
		return fmt.Errorf("different or damaged tokenizer: it has the hash %s, "+
			"want tokenizer %s with %s", got, i.Name, i.SHA256)
	}
	return nil
}

func hash(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// A RangeError reports an id that the tokenizer does not have.
type RangeError struct {
	ID        int64
	VocabSize int
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("token id %d is not in the vocabulary (%d tokens)", e.ID, e.VocabSize)
}

const bytesName = "bytes"

// Bytes is the byte-level tokenizer: the id of a byte is its value, the vocabulary has 256 entries,
// and every text is decoded unchanged.
//
// Byte 0 is the BOS token. It is available, because a text file that contains it counts as binary
// and is never used as a document.
type Bytes struct{}

var _ Tokenizer = Bytes{}

// Info returns the name "bytes", 256 tokens, and 0 as BOS. There is no EOS.
func (Bytes) Info() Info {
	return Info{Name: bytesName, VocabSize: 256, BOS: 0, EOS: NoToken, SHA256: hash([]byte(bytesName))}
}

// Encode returns one id per byte of text. It never fails.
func (Bytes) Encode(text string) ([]int32, error) {
	return lists.Make(len(text), func(i int) int32 { return int32(text[i]) }), nil
}

// Decode returns the bytes. If an id is outside 0–255, the error is a [*RangeError].
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

// Byte-level tokenizers write every byte as one printable character: bytes that are printable in
// Latin-1 as themselves, the other 68 as U+0100 onwards in order of their value (GPT-2, Radford et
// al. 2019).
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

func toByteLevel(text string) string {
	return string(lists.Make(len(text), func(i int) rune { return byteToRune[text[i]] }))
}

// fromByteLevel appends the bytes of a token. A token with a character outside the alphabet, as
// special tokens may have, is appended unchanged.
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
