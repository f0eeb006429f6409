package ruler

import (
	"bytes"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// File names of the word lists, as used by wonderwords and RULER.
const (
	nounFile      = "nounlist.txt"
	adjectiveFile = "adjectivelist.txt"
	verbFile      = "verblist.txt"
	englishFile   = "english_words.json"
)

// Files names the files from which inputs are read; "" means that there is none.
type Files struct {
	// Words is a directory with nounlist.txt, adjectivelist.txt and verblist.txt of wonderwords,
	// with one word per line, and RULER's english_words.json. If english_words.json is missing, its
	// words are generated; if Words is "", all words are.
	Words string
	// Essay is RULER's PaulGrahamEssays.json, an object whose "text" is the text, or any other
	// file, which is used unchanged.
	Essay string
	// Squad and Hotpot are the JSON files of SQuAD 2.0, and of HotpotQA's distractor setting.
	Squad, Hotpot string
}

// Read reads the named files, and generates word lists that have no file.
func (f Files) Read() (Inputs, error) {
	r := reader{}
	in := Inputs{Words: r.words(f.Words), Essay: r.essay(f.Essay),
		Squad: r.documents(f.Squad, ParseSquad), Hotpot: r.documents(f.Hotpot, ParseHotpot)}
	return in, r.err
}

// reader reads files until the first error.
type reader struct{ err error }

func (r *reader) file(path string) (content []byte) {
	if r.err == nil {
		content, r.err = vfs.At(path).ReadFile()
	}
	return content
}

func (r *reader) fail(path string, err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("%s: %w", path, err)
	}
}

func (r *reader) words(dir string) *Words {
	if dir == "" {
		return MadeUpWords()
	}
	w := &Words{
		Nouns:      r.lines(filepath.Join(dir, nounFile)),
		Adjectives: r.lines(filepath.Join(dir, adjectiveFile)),
		Verbs:      r.lines(filepath.Join(dir, verbFile)),
	}
	path := filepath.Join(dir, englishFile)
	content := r.file(path)
	if errors.Is(r.err, fs.ErrNotExist) && strings.Contains(r.err.Error(), englishFile) {
		r.err = nil
		w.English, w.MadeUp = syllables(3), []string{englishFile}
		return w
	}
	if r.err == nil {
		var err error
		w.English, err = parseEnglish(content)
		r.fail(path, err)
	}
	return w
}

func (r *reader) lines(path string) (list []string) {
	for line := range strings.Lines(string(r.file(path))) {
		if word := strings.TrimFunc(line, isSpace); word != "" {
			list = append(list, word)
		}
	}
	if len(list) == 0 {
		r.fail(path, errors.New("it has no words"))
	}
	return list
}

// parseEnglish returns the values of a JSON object, in order.
func parseEnglish(content []byte) ([]string, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(content))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != jsontext.KindBeginObject {
		return nil, errors.Join(errors.New(`want an object like {"1": "word"}`),
			plainjson.Explain(content, err))
	}
	var list []string
	for dec.PeekKind() != jsontext.KindEndObject {
		var word string
		if _, err := dec.ReadToken(); err != nil {
			return nil, plainjson.Explain(content, err)
		}
		if err := jsonv2.UnmarshalDecode(dec, &word); err != nil {
			return nil, plainjson.Explain(content, err)
		}
		list = append(list, word)
	}
	return list, nil
}

func (r *reader) essay(path string) string {
	if path == "" {
		return ""
	}
	content := r.file(path)
	text := string(content)
	if filepath.Ext(path) == ".json" {
		var file struct{ Text string }
		if err := plainjson.Unmarshal(content, &file); err != nil {
			r.fail(path, fmt.Errorf(`want an object like {"text": "…"}: %w`, err))
		}
		text = file.Text
	}
	if !utf8.ValidString(text) || strings.TrimFunc(text, isSpace) == "" {
		r.fail(path, errors.New("text must be valid UTF-8 and not empty"))
	}
	return text
}

func (r *reader) documents(path string, parse func([]byte) (*Documents, error)) *Documents {
	if path == "" {
		return nil
	}
	content := r.file(path)
	if r.err != nil {
		return nil
	}
	d, err := parse(content)
	r.fail(path, err)
	return d
}

// isSpace reports whether r is white space in Python. Unlike unicode.IsSpace, that includes four
// separators among the control characters.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// splitSpace splits a text at white space, like Python's re.sub(r'\s+', ' ', text).split(' '):
// leading or trailing white space yields an empty word.
func splitSpace(text string) []string {
	list := strings.FieldsFunc(text, isSpace)
	if strings.TrimLeftFunc(text, isSpace) != text {
		list = append([]string{""}, list...)
	}
	if strings.TrimRightFunc(text, isSpace) != text || len(list) == 0 {
		list = append(list, "")
	}
	return list
}

// splitSentences splits a text after each . ! or ? that is followed by white space, which is
// dropped. RULER uses NLTK's trained punkt model instead, which knows abbreviations.
func splitSentences(text string) []string {
	text = strings.TrimFunc(text, isSpace)
	var list []string
	begin, last := 0, rune(0)
	for i, r := range text {
		if isSpace(r) && strings.ContainsRune(".!?", last) {
			list = append(list, text[begin:i])
			begin = i + len(text[i:]) - len(strings.TrimLeftFunc(text[i:], isSpace))
		}
		last = r
	}
	if begin < len(text) {
		list = append(list, text[begin:])
	}
	return list
}
