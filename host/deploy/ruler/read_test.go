package ruler

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	testfile.Tree(t, dir, texts)
	return dir
}

var wordLists = map[string]string{nounFile: "tree\nhouse \n\n", adjectiveFile: "red\r\n",
	verbFile: "go", englishFile: `{"2": "b", "1": "a"}`}

// TestReadWords checks that the long list keeps the order of its file, whatever its keys are.
func TestReadWords(t *testing.T) {
	in, err := Files{Words: files(t, wordLists)}.Read()
	if err != nil {
		t.Fatal(err)
	}
	w := in.Words
	if !slices.Equal(w.Nouns, []string{"tree", "house"}) ||
		!slices.Equal(w.Adjectives, []string{"red"}) || !slices.Equal(w.English, []string{"b", "a"}) ||
		w.MadeUp != nil {
		t.Errorf("the lists are %q, %q, %q; made up are %q", w.Nouns, w.Adjectives, w.English, w.MadeUp)
	}
	if got := w.pairs(); !slices.Equal(got, []string{"red-house", "red-tree"}) {
		t.Errorf("the pairs are %q", got)
	}
	dir := files(t, wordLists)
	if err := os.Remove(filepath.Join(dir, englishFile)); err != nil {
		t.Fatal(err)
	}
	if in, err = (Files{Words: dir}).Read(); err != nil {
		t.Fatal(err)
	}
	if w := in.Words; len(w.English) != 343_000 || !slices.Equal(w.MadeUp, []string{englishFile}) {
		t.Errorf("%d words are made up for %q, want 343000", len(w.English), w.MadeUp)
	}
	for task, want := range map[string]int{"cwe": 1, "niah_single_1": 0} {
		tasks := selected(t, []string{task})
		if got := in.Substitutions(tasks); len(got) != want {
			t.Errorf("%s has the substitutions %q, want %d", task, got, want)
		}
	}
}

// TestBadInputs checks that errors name the file.
func TestBadInputs(t *testing.T) {
	empty, broken := map[string]string{}, map[string]string{}
	for name, text := range wordLists {
		empty[name], broken[name] = text, text
	}
	empty[verbFile], broken[englishFile] = "\n", `{"1": ["a"]}`
	for want, f := range map[string]Files{
		nounFile:                            {Words: t.TempDir()},
		verbFile + ": it has no words":      {Words: files(t, empty)},
		englishFile + `: 1: found an array`: {Words: files(t, broken)},
		"e.txt: text must be valid UTF-8 and not empty": {
			Essay: filepath.Join(files(t, map[string]string{"e.txt": " \n"}), "e.txt")},
		"e.json: want an object like": {
			Essay: filepath.Join(files(t, map[string]string{"e.json": "[]"}), "e.json")},
		"s.json: no questions": {
			Squad: filepath.Join(files(t, map[string]string{"s.json": `{"data":[]}`}), "s.json")},
		"h.json: question 0 (\"q\") has 1 answ": {
			Hotpot: filepath.Join(files(t, map[string]string{"h.json": `[{"question":"q","answer":"a"}]`}),
				"h.json")},
		"a context has 3 parts": {
			Hotpot: filepath.Join(files(t, map[string]string{"h.json": `[{"context":[["t",["s"],1]]}]`}),
				"h.json")},
	} {
		if _, err := f.Read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// TestText compares white space and sentences with Python (re.sub and re.split of 3.11).
func TestText(t *testing.T) {
	for text, want := range map[string][]string{
		"":                     {""},
		" ":                    {"", ""},
		"a  b\u00a0c\x1cd":     {"a", "b", "c", "d"},
		"\n a.\n":              {"", "a.", ""},
		"a\u200bb\u3000c\x1fd": {"a\u200bb", "c", "d"},
	} {
		if got := splitSpace(text); !slices.Equal(got, want) {
			t.Errorf("%q is cut into %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string][]string{
		"":                          nil,
		" One.  Two!Three? four . ": {"One.", "Two!Three?", "four ."},
		"no end":                    {"no end"},
		"é. ü.\u00a0\nZ":            {"é.", "ü.", "Z"},
		"... x":                     {"...", "x"},
	} {
		if got := splitSentences(text); !slices.Equal(got, want) {
			t.Errorf("%q has the sentences %q, want %q", text, got, want)
		}
	}
}

// TestMadeUpWords checks that generated words are different, and always the same.
func TestMadeUpWords(t *testing.T) {
	w := MadeUpWords()
	if all := sortedSet(slices.Concat(w.Nouns, w.Adjectives, w.Verbs)); len(all) != len(w.Nouns)+len(
		w.Adjectives)+len(w.Verbs) {
		t.Errorf("%d of %d words are different", len(all), len(w.Nouns)+len(w.Adjectives)+len(w.Verbs))
	}
	if got, want := strings.Join(w.Nouns[:3],
		" ")+" "+w.English[0], "nisa dize loba suzifo"; got != want {
		t.Errorf("the first words are %q, want %q", got, want)
	}
}

// FuzzDocuments checks that SQuAD and HotpotQA are refused, or that prompts can be made of them.
func FuzzDocuments(f *testing.F) {
	f.Add(`{"data":[{"paragraphs":[{"context":"c","qas":[{"question":"q","answers":[{"text":"a"}]}]},{"context":"d","qas":[]},{"context":"c"}]}]}`)
	f.Add(`[{"question":"q","answer":"a","context":[["t",["s","s"]],["t",["s","s"]]]}]`)
	f.Add(`[{"context":[["t"]]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func([]byte) (*Documents, error){ParseSquad, ParseHotpot} {
			d, err := parse([]byte(text))
			if err != nil {
				continue
			}
			g := &Generator{Inputs: Inputs{Squad: d}, Count: countWords}
			_, _ = first(context.Background(), g, "qa_1", 1000)
		}
	})
}

// FuzzWords checks that a list of words is refused, or has no more words than entries.
func FuzzWords(f *testing.F) {
	f.Add(`{"0": "a", "0": "b"}`)
	f.Add(`{"0": 1}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		if list, err := parseEnglish([]byte(text)); err == nil && len(list) > strings.Count(text, `:`) {
			t.Errorf("%q has the words %q", text, list)
		}
	})
}
