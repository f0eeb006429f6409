package ruler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/regular"
)

// The files of word lists, with the names that they have in wonderwords and in RULER.
const (
	nounFile      = "nounlist.txt"
	adjectiveFile = "adjectivelist.txt"
	verbFile      = "verblist.txt"
	englishFile   = "english_words.json"
)

// ReadWords reads the lists of words in a directory: nounlist.txt, adjectivelist.txt and
// verblist.txt with a word on each line, and RULER's english_words.json, in whose place
// words are made up when it is not there.
func ReadWords(dir string) (*Words, error) {
	w := &Words{}
	for name, list := range map[string]*[]string{nounFile: &w.Nouns, adjectiveFile: &w.Adjectives, verbFile: &w.Verbs} {
		content, err := regular.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(content)) {
			if word := strings.TrimFunc(line, isSpace); word != "" {
				*list = append(*list, word)
			}
		}
		if len(*list) == 0 {
			return nil, fmt.Errorf("%s has no words", filepath.Join(dir, name))
		}
	}
	path := filepath.Join(dir, englishFile)
	content, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		w.English, w.MadeUp = syllables(3), []string{englishFile}
		return w, nil
	}
	if err == nil {
		w.English, err = parseEnglish(content)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// parseEnglish reads the values of an object, in their order.
func parseEnglish(content []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(content))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.Join(errors.New(`want an object like {"1": "word"}`), err)
	}
	var list []string
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var word string
		if err := dec.Decode(&word); err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		list = append(list, word)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	return list, nil
}

// ReadEssay reads a text: RULER's PaulGrahamEssays.json, an object whose text is under
// "text", or any other file as it is.
func ReadEssay(path string) (string, error) {
	content, err := regular.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := string(content)
	if filepath.Ext(path) == ".json" {
		var file struct{ Text string }
		if err := json.Unmarshal(content, &file); err != nil {
			return "", fmt.Errorf(`%s: want an object like {"text": "…"}: %w`, path, err)
		}
		text = file.Text
	}
	if !utf8.ValidString(text) || strings.TrimFunc(text, isSpace) == "" {
		return "", fmt.Errorf("%s: want text in UTF-8, and some of it", path)
	}
	return text, nil
}

// ReadSquad reads a file of SQuAD.
func ReadSquad(path string) (*Documents, error) { return readDocuments(path, ParseSquad) }

// ReadHotpot reads a file of HotpotQA.
func ReadHotpot(path string) (*Documents, error) { return readDocuments(path, ParseHotpot) }

func readDocuments(path string, parse func([]byte) (*Documents, error)) (*Documents, error) {
	content, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}
