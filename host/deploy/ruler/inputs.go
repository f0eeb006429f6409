package ruler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/pyrandom"
)

// Inputs holds the texts and word lists from which prompts are made. RULER uses word lists of the
// wonderwords package, the essays of Paul Graham, SQuAD 2.0 and HotpotQA.
type Inputs struct {
	Words  *Words
	Essay  string     // empty: none
	Squad  *Documents // nil: none
	Hotpot *Documents // nil: none
}

// Words holds word lists.
type Words struct {
	Nouns, Adjectives, Verbs []string
	// English is the long list, for texts that need more words than the other lists have.
	English []string
	// MadeUp names the lists whose words were generated because the user did not supply them.
	MadeUp []string

	once   sync.Once
	joined []string
}

// pairs returns all combinations of an adjective and a noun, sorted.
func (w *Words) pairs() []string {
	w.once.Do(func() {
		for _, adjective := range w.Adjectives {
			for _, noun := range w.Nouns {
				w.joined = append(w.joined, adjective+"-"+noun)
			}
		}
		w.joined = sortedSet(w.joined)
	})
	return w.joined
}

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// MadeUpWords returns word lists generated from syllables, for users without word lists. They are
// disjoint, and the same in every call.
func MadeUpWords() *Words {
	short := syllables(2)
	return &Words{
		Nouns: short[:600], Adjectives: short[600:900], Verbs: short[900:1200], English: syllables(3),
		MadeUp: []string{nounFile, adjectiveFile, verbFile, englishFile}}
}

// syllables returns all words of n consonant-vowel syllables, in a fixed random order.
func syllables(n int) []string {
	list := []string{""}
	for range n {
		var longer []string
		for _, begin := range list {
			for _, consonant := range strings.Split("bdfgklmnprstvz", "") {
				for _, vowel := range strings.Split("aeiou", "") {
					longer = append(longer, begin+consonant+vowel)
				}
			}
		}
		list = longer
	}
	pyrandom.Shuffle(pyrandom.New(int64(n)), list)
	return list
}

// need is an input that a task requires.
type need string

const (
	needWords   need = "words"
	needEnglish need = "a long list of words"
	needEssay   need = "an essay"
	needSquad   need = "SQuAD"
	needHotpot  need = "HotpotQA"
)

// Missing returns an input that t requires and that is missing; "" if there is none.
func (i Inputs) Missing(t Task) string {
	given := map[need]bool{
		needWords: i.Words != nil, needEnglish: i.Words != nil, needSquad: i.Squad != nil,
		needHotpot: i.Hotpot != nil, needEssay: strings.TrimFunc(i.Essay, isSpace) != "",
	}
	for _, n := range t.needs {
		if !given[n] {
			return string(n)
		}
	}
	return ""
}

// LeftOut returns the tasks whose inputs are given, and describes the others; "" if there are none.
func (i Inputs) LeftOut(list []Task) (given []Task, others string) {
	by := map[string][]string{}
	for _, t := range list {
		if input := i.Missing(t); input != "" {
			by[input] = append(by[input], t.Name)
		} else {
			given = append(given, t)
		}
	}
	var parts []string
	for _, input := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, strings.Join(by[input], ", ")+" (without "+input+")")
	}
	return given, strings.Join(parts, "; ")
}

// Substitutions describes how the inputs of tasks differ from RULER's own.
func (i Inputs) Substitutions(tasks []Task) []string {
	var list []string
	uses := func(n need) bool {
		return slices.ContainsFunc(tasks, func(t Task) bool { return slices.Contains(t.needs, n) })
	}
	if i.Words != nil && uses(needWords) {
		madeUp := slices.DeleteFunc(slices.Clone(i.Words.MadeUp), func(name string) bool {
			return name == englishFile && !uses(needEnglish)
		})
		if len(madeUp) > 0 {
			list = append(list,
				"words generated from consonants and vowels replace "+strings.Join(madeUp, ", "))
		}
	}
	if uses(needEssay) {
		list = append(list, "sentences of the essay end at . ! or ? before white space, where RULER "+
			"asks NLTK's punkt")
	}
	return list
}

// Documents holds texts and questions about them.
type Documents struct {
	texts     []string // distinct, sorted
	questions []question
}

// question is a question with all its correct answers. Documents are given as indices into texts.
type question struct {
	text      string
	answers   []string
	documents []int // documents that contain the answer
	related   []int // other documents of the same article
}

// newDocuments makes documents from texts, without duplicates, and returns the index of each text.
func newDocuments(texts []string) (d *Documents, index map[string]int) {
	d = &Documents{texts: sortedSet(texts)}
	index = make(map[string]int, len(d.texts))
	for i, text := range d.texts {
		index[text] = i
	}
	return d, index
}

// ParseSquad parses the JSON file of SQuAD 2.0. Like RULER, it omits questions without an answer.
func ParseSquad(content []byte) (*Documents, error) {
	var file struct {
		Data []struct {
			Paragraphs []struct {
				Context string
				QAs     []struct {
					Question   string
					Answers    []struct{ Text string }
					Impossible bool `json:"is_impossible"`
				}
			}
		}
	}
	if err := plainjson.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("invalid SQuAD file: %w", err)
	}
	var texts []string
	for _, article := range file.Data {
		for _, p := range article.Paragraphs {
			texts = append(texts, p.Context)
		}
	}
	d, index := newDocuments(texts)
	for _, article := range file.Data {
		var all []int
		for _, p := range article.Paragraphs {
			all = append(all, index[p.Context])
		}
		for _, p := range article.Paragraphs {
			own := index[p.Context]
			related := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return i == own })
			for _, asked := range p.QAs {
				if asked.Impossible {
					continue
				}
				q := question{text: asked.Question, documents: []int{own}, related: related}
				for _, a := range asked.Answers {
					q.answers = append(q.answers, a.Text)
				}
				d.questions = append(d.questions, q)
			}
		}
	}
	return d, d.check()
}

// ParseHotpot parses the JSON file of HotpotQA's distractor setting.
func ParseHotpot(content []byte) (*Documents, error) {
	var file []struct {
		Question, Answer string
		Context          []titled
	}
	if err := plainjson.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("invalid HotpotQA file: %w", err)
	}
	var texts []string
	for _, q := range file {
		for _, t := range q.Context {
			texts = append(texts, string(t))
		}
	}
	d, index := newDocuments(texts)
	for _, asked := range file {
		q := question{text: asked.Question, answers: []string{asked.Answer}}
		for _, t := range asked.Context {
			q.documents = append(q.documents, index[string(t)])
		}
		d.questions = append(d.questions, q)
	}
	return d, d.check()
}

// titled is a title and a text, joined by a newline; in JSON it is a list of the title and a list
// of sentences.
type titled string

func (t *titled) UnmarshalJSON(content []byte) error {
	var title string
	var sentences []string
	pair := []any{&title, &sentences}
	if err := plainjson.UnmarshalPart(content, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("a context has %d parts, want a title and a list of sentences", len(pair))
	}
	*t = titled(title + "\n" + strings.Join(sentences, ""))
	return nil
}

// check returns an error if there are no questions, or if one cannot be asked.
func (d *Documents) check() error {
	if len(d.questions) == 0 {
		return errors.New("no questions with answers found")
	}
	for i, q := range d.questions {
		if len(q.answers) == 0 || len(q.documents) == 0 {
			return fmt.Errorf("question %d (%q) has %d answers and %d documents, want at least one of each",
				i, q.text, len(q.answers), len(q.documents))
		}
	}
	return nil
}
