package ruler

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Documents holds texts and questions about them.
type Documents struct {
	texts     []string // different, in their order
	questions []question
}

// question is a question with all answers that are right. Documents are places in texts.
type question struct {
	text      string
	answers   []string
	documents []int // that hold the answer
	related   []int // others of the same article
}

// newDocuments makes documents of texts, each of which may be there several times, and
// tells the place of each.
func newDocuments(texts []string) (d *Documents, place map[string]int) {
	d = &Documents{texts: sortedSet(texts)}
	place = make(map[string]int, len(d.texts))
	for i, text := range d.texts {
		place[text] = i
	}
	return d, place
}

// ParseSquad parses SQuAD, the JSON file of version 2.0. Like RULER, it leaves out
// questions that have no answer.
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
		return nil, fmt.Errorf("not the JSON of SQuAD: %w", err)
	}
	var texts []string
	for _, article := range file.Data {
		for _, p := range article.Paragraphs {
			texts = append(texts, p.Context)
		}
	}
	d, place := newDocuments(texts)
	for _, article := range file.Data {
		var all []int
		for _, p := range article.Paragraphs {
			all = append(all, place[p.Context])
		}
		for _, p := range article.Paragraphs {
			own := place[p.Context]
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

// ParseHotpot parses HotpotQA, the JSON file of its distractor setting.
func ParseHotpot(content []byte) (*Documents, error) {
	var file []struct {
		Question, Answer string
		Context          []titled
	}
	if err := plainjson.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("not the JSON of HotpotQA: %w", err)
	}
	var texts []string
	for _, q := range file {
		for _, t := range q.Context {
			texts = append(texts, string(t))
		}
	}
	d, place := newDocuments(texts)
	for _, asked := range file {
		q := question{text: asked.Question, answers: []string{asked.Answer}}
		for _, t := range asked.Context {
			q.documents = append(q.documents, place[string(t)])
		}
		d.questions = append(d.questions, q)
	}
	return d, d.check()
}

// titled is a text with its title on a line above it; in JSON it is the title and a list of sentences.
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

// check refuses questions that cannot be asked.
func (d *Documents) check() error {
	if len(d.questions) == 0 {
		return errors.New("no questions with answers are in it")
	}
	for i, q := range d.questions {
		if len(q.answers) == 0 || len(q.documents) == 0 {
			return fmt.Errorf("question %d (%q) has %d answers and %d documents, want some", i, q.text, len(q.answers), len(q.documents))
		}
	}
	return nil
}
