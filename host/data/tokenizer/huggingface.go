package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/plainjson"
)

// HuggingFace is a tokenizer read from a tokenizer.json: the byte-level BPE of GPT-2, Llama 3, OLMo
// 2 and Qwen, or the SentencePiece-style BPE of Llama 2 and Mistral. It gives the same ids as the
// reference library, except where Unicode versions differ and where NFC has to order more than 30
// combining marks in a row.
type HuggingFace struct {
	info       Info
	definition []byte    // the tokenizer.json
	folder     string    // its folder; "" if unknown
	added      *addedSet // matched in the original text
	normAdded  *addedSet // matched after normalization
	normalize  normalizer
	pre        *preTokenizer
	model      *bpe
	decode     []decodeStep
	tokens     map[int32]string
	special    map[int32]bool // tokens without text
	addsBOS    bool
	wordCaches sync.Pool // of *wordCache
}

var _ Tokenizer = (*HuggingFace)(nil)

// LoadHuggingFace reads the tokenizer.json at path.
//
// The BOS token is the one that its post-processor puts before a text; failing that, the bos_token
// of a tokenizer_config.json in the same folder; failing that, none. The EOS token is the one that
// the post-processor puts after a text, or the eos_token. Truncation and padding settings are
// ignored. If the file needs an unsupported feature, the error wraps an [*UnsupportedError].
func LoadHuggingFace(path string) (*HuggingFace, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	config, err := readFile(filepath.Join(filepath.Dir(path), ConfigFile))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	t, err := ReadHuggingFace(data, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.folder, t.info.Name = located(path)
	return t, nil
}

// located returns the absolute folder of a tokenizer.json, and the name of the tokenizer.
func located(path string) (folder, name string) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	folder = filepath.Dir(path)
	if filepath.Base(path) == DefinitionFile {
		return folder, filepath.Base(folder)
	}
	return folder, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// Identify returns the name and the hash of the tokenizer in a folder, even if it is not supported.
func Identify(folder string) (Info, error) {
	path := filepath.Join(folder, DefinitionFile)
	content, err := readFile(path)
	_, name := located(path)
	return Info{Name: name, BOS: NoToken, EOS: NoToken, SHA256: hash(content)}, err
}

// ReadHuggingFace is [LoadHuggingFace] for the contents of a tokenizer.json and of a
// tokenizer_config.json, which may be empty. The tokenizer has no name.
func ReadHuggingFace(data, config []byte) (*HuggingFace, error) {
	var def definition
	err := plainjson.Unmarshal(data, &def)
	if err == nil {
		err = def.check()
	}
	if err != nil {
		return nil, err
	}
	t := &HuggingFace{definition: data, special: map[int32]bool{}}
	t.wordCaches.New = func() any { return &wordCache{model: t.model, known: map[string][]int32{}} }
	if t.normalize, err = newNormalizer(def.Normalizer); err != nil {
		return nil, err
	}
	if t.pre, err = newPreTokenizer(def.PreTokenizer, t.normalize); err != nil {
		return nil, err
	}
	if t.model, err = newBPE(&def.Model); err != nil {
		return nil, err
	}
	t.model.byteLevel = t.pre.byteLevel
	if t.decode, err = newDecoder(def.Decoder); err != nil {
		return nil, err
	}
	if err := t.setTokens(&def); err != nil {
		return nil, err
	}
	t.info.SHA256 = hash(data)
	return t, t.findBoundaries(def.PostProcessor, config)
}

// Normal converts text to NFC if that is all that the tokenizer's normalizer does; otherwise text
// is unchanged. The result is the text to which the ids of a byte-level tokenizer decode.
func (t *HuggingFace) Normal(text string) string {
	if slices.ContainsFunc(t.normalize, func(s step) bool { return s.Type != "NFC" }) {
		return text
	}
	var out strings.Builder
	done := 0
	_ = t.added.split(text, func(start, end int) error {
		out.WriteString(text[done:start])
		out.WriteString(t.normalize.apply(text[start:end]))
		done = end
		return nil
	}, func(int32) {})
	out.WriteString(text[done:])
	return out.String()
}

func (t *HuggingFace) setTokens(def *definition) error {
	t.tokens = make(map[int32]string, len(def.Model.Vocab)+len(def.AddedTokens))
	for token, id := range def.Model.Vocab {
		t.tokens[id] = token
	}
	var raw, normalized []addedToken
	assigned := map[string]int32{} // ids of added tokens that are not in the vocabulary
	for i, added := range def.AddedTokens {
		if added.Content == "" {
			continue // like the reference library
		}
		if id, known := def.Model.Vocab[added.Content]; known {
			added.ID = id // like the reference library, even if the file has another id
		} else {
			id, again := assigned[added.Content]
			if !again {
				id = int32(len(def.Model.Vocab) + len(assigned))
				assigned[added.Content] = id
			}
			if added.ID != id {
				return fmt.Errorf("added_tokens[%d]: %q has id %d, but the reference library assigns %d: "+
					"it numbers added tokens in order, beginning with the size of the vocabulary",
					i, added.Content, added.ID, id)
			}
			if again {
				continue
			}
		}
		if other, taken := t.tokens[added.ID]; taken && other != added.Content {
			return fmt.Errorf("added_tokens[%d]: %q has id %d, which belongs to %q",
				i, added.Content, added.ID, other)
		}
		t.tokens[added.ID] = added.Content
		if added.Special {
			t.special[added.ID] = true
		}
		if added.Normalized {
			added.Content = t.normalize.apply(added.Content)
			normalized = append(normalized, added)
		} else {
			raw = append(raw, added)
		}
	}
	t.added, t.normAdded = newAddedSet(raw), newAddedSet(normalized)
	for id := range t.tokens {
		t.info.VocabSize = max(t.info.VocabSize, int(id)+1)
	}
	return nil
}

// Info identifies the tokenizer.
func (t *HuggingFace) Info() Info { return t.info }

// Definition returns the content of the tokenizer.json, which must not be changed. Stored as
// tokenizer.json, it is sufficient for [Reopen].
func (t *HuggingFace) Definition() []byte { return t.definition }

// ReadCompanions reads the files of [CompanionFiles] that exist in the folder of the
// tokenizer.json.
func (t *HuggingFace) ReadCompanions() (map[string][]byte, error) {
	files := map[string][]byte{}
	if t.folder == "" {
		return files, nil
	}
	for _, name := range CompanionFiles {
		content, err := readFile(filepath.Join(t.folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = content
	}
	return files, nil
}

// Encode returns the ids of text, which must be valid UTF-8. Added tokens that appear in
// the text, such as "<|end_of_text|>", become their id.
func (t *HuggingFace) Encode(text string) ([]int32, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("tokenizer %s: text is not valid UTF-8", t.info.Name)
	}
	words := t.wordCaches.Get().(*wordCache)
	defer t.wordCaches.Put(words)
	words.ids = make([]int32, 0, len(text)/3+1)
	emit := words.appendWord
	if t.model.cutsAtMarks && !t.pre.byteLevel {
		emit = words.appendMarkedWords
	}
	err := t.added.split(text, func(start, end int) error {
		normal := t.normalize.apply(text[start:end])
		return t.normAdded.split(normal, func(from, to int) error {
			return t.pre.eachWord(normal[from:to], start == 0 && from == 0, emit)
		}, words.appendID)
	}, words.appendID)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", t.info.Name, err)
	}
	return words.ids, nil
}

// Decode returns the text of ids. If an id is not a token, the error is a [*RangeError].
func (t *HuggingFace) Decode(ids []int32) (string, error) {
	tokens := make([]string, len(ids))
	for i, id := range ids {
		token, ok := t.tokens[id]
		if !ok {
			return "", &RangeError{ID: int64(id), VocabSize: t.info.VocabSize}
		}
		tokens[i] = token
	}
	for _, step := range t.decode {
		tokens = step(tokens)
	}
	return strings.Join(tokens, ""), nil
}
