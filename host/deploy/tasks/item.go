package tasks

import (
	"fmt"

	"github.com/cage-qat/cage/host/model/score"
)

// Item is a row of data in the form in which a model is asked.
type Item struct {
	Doc   int           `json:"doc_id"` // number of the row
	Texts []RequestText `json:"arguments"`
	// Scored holds the continuations to score: each choice, the one target, or each window of a text.
	Scored []score.Request `json:"-"`
	// Prompt is the prompt, in tokens, that a generated text continues; nil if no text is generated.
	Prompt []int32 `json:"-"`

	Shots   int      `json:"shots"`            // number of examples before the question
	Gold    int      `json:"gold"`             // index of the right choice
	Target  string   `json:"target,omitempty"` // the right text
	Choices []string `json:"choices,omitempty"`
}

// RequestText is a request as text.
type RequestText struct {
	Context      string `json:"context"`
	Continuation string `json:"continuation,omitempty"`
}

// Answer is a model's answer to an item.
type Answer struct {
	LogProbs []float64 `json:"logprobs,omitempty"` // for each scored request
	Greedy   []bool    `json:"greedy,omitempty"`   // whether each continuation consists of the likeliest tokens
	Text     *string   `json:"text,omitempty"`     // the generated text, up to what ends it
}

// Items turns rows into questions, in order. Examples are the rows from which examples are drawn.
func (t *Task) Items(docs, examples []Doc, e *Encoder, o Options) ([]Item, error) {
	p, err := t.newPrompter(examples, o)
	if err != nil {
		return nil, err
	}
	items := make([]Item, len(docs))
	for i, d := range docs {
		a, err := t.ask(d)
		if err != nil {
			return nil, err
		}
		prompts, err := p.prompts(p.draw(d), a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Place, err)
		}
		items[i] = Item{Doc: i, Shots: o.Shots, Gold: a.gold, Target: a.target, Choices: a.choices}
		if err := t.fill(&items[i], a, prompts, e, p.delimiter()); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Place, err)
		}
	}
	return items, nil
}

// fill sets the requests of an item.
func (t *Task) fill(it *Item, a filledDoc, prompts []string, e *Encoder, delimiter string) (err error) {
	if t.Kind == Generation {
		it.Texts = []RequestText{{Context: prompts[0]}}
		it.Prompt, err = e.text(prompts[0])
		return err
	}
	if t.Kind == Text {
		it.Target = a.questions[0] // no template goes around it
		it.Texts = []RequestText{{Continuation: it.Target}}
		it.Scored, err = e.windows(it.Target)
		return err
	}
	continuations := a.choices
	if t.Kind == Continuation {
		continuations = []string{a.target}
	}
	for i, c := range continuations {
		text := RequestText{prompts[min(i, len(prompts)-1)], delimiter + c}
		before, behind, err := e.Pair(text.Context, text.Continuation)
		if err != nil {
			return err
		}
		it.Texts = append(it.Texts, text)
		it.Scored = append(it.Scored, score.Request{Context: before, Continuation: behind})
	}
	return nil
}

// UntilTexts returns the texts that end an answer of the model.
func (t *Task) UntilTexts(e *Encoder) []string { return t.until(e.EOS) }

// Tokens returns the largest number of tokens in an answer; lm-eval's default is 256.
func (t *Task) Tokens() int {
	if t.MaxTokens > 0 {
		return t.MaxTokens
	}
	return 256
}
