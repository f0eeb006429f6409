package tasks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/internal/pyrandom"
)

// Item is a question to a model, made from a row of data.
type Item struct {
	Doc   int           `json:"doc_id"` // index of the row
	Texts []RequestText `json:"arguments"`
	// Scored holds the continuations to score: the choices, one target, or the windows of a text.
	Scored []score.Request `json:"-"`
	// Prompt is the prompt of a text to be generated, in tokens; nil if no text is generated.
	Prompt []int32 `json:"-"`

	Shots   int      `json:"shots"`             // number of few-shot examples before the question
	Gold    int      `json:"gold"`              // index of the right choice
	Target  string   `json:"target,omitempty"`  // the right text
	Targets []string `json:"targets,omitempty"` // several right texts, for [Contained]
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
	// Greedy reports, for each continuation, whether greedy decoding would generate it.
	Greedy []bool  `json:"greedy,omitempty"`
	Text   *string `json:"text,omitempty"` // the generated text, up to its end marker
}

// Items turns the rows docs into questions, in order. Few-shot examples are drawn from examples.
func (t *Task) Items(docs, examples []Doc, e *Encoder, o Options) ([]Item, error) {
	p, err := t.newPrompter(examples, o)
	if err != nil {
		return nil, err
	}
	// In a conversation, the answer is a message of its own. lm-eval nevertheless drops the delimiter
	// only before choices (lm_eval/api/task.py, construct_requests): the continuation of a task of
	// kind Continuation keeps it.
	delimiter := t.Delimiter
	if o.Chat != nil && t.Kind != Continuation {
		delimiter = ""
	}
	items := make([]Item, len(docs))
	for i, d := range docs {
		a, err := t.renderDoc(d)
		if err != nil {
			return nil, err
		}
		shown, prompts := p.draw(d), make([]string, len(a.questions))
		for i, q := range a.questions {
			if prompts[i], err = p.prompt(shown, q); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Position, err)
			}
		}
		items[i] = Item{Doc: i, Shots: o.Shots, Gold: a.gold, Target: a.target, Choices: a.choices}
		if err := t.fill(&items[i], a, prompts, e, delimiter); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Position, err)
		}
	}
	return items, nil
}

// NewTargetsItem returns a question whose generated answer should contain the targets.
func NewTargetsItem(doc int, prompt string, targets []string, e *Encoder) (Item, error) {
	ids, err := e.text(prompt)
	return Item{Doc: doc, Texts: []RequestText{{Context: prompt}}, Prompt: ids, Targets: targets}, err
}

func (t *Task) fill(
	it *Item, a renderedDoc, prompts []string, e *Encoder, delimiter string,
) (err error) {
	if t.Kind == Generation {
		it.Texts = []RequestText{{Context: prompts[0]}}
		it.Prompt, err = e.text(prompts[0])
		return err
	}
	if t.Kind == Text {
		it.Target = a.questions[0] // used without a template
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
		before, after, err := e.Pair(text.Context, text.Continuation)
		if err == nil && e.Context > 0 && len(after) > e.Context { // its beginning would have no score
			err = fmt.Errorf("an answer to be scored has %d tokens, and the context %d: "+
				"want a model with a longer one", len(after), e.Context)
		}
		if err != nil {
			return err
		}
		it.Texts = append(it.Texts, text)
		it.Scored = append(it.Scored, score.Request{Context: before, Continuation: after})
	}
	return nil
}

// Tokens returns the maximum number of tokens in an answer; the default is lm-eval's, 256.
func (t *Task) Tokens() int {
	return cmp.Or(t.MaxTokens, 256)
}

// Options holds the few-shot and chat settings of questions.
type Options struct {
	Shots int // number of few-shot examples before a question
	// Chat, if not nil, renders a conversation, up to the beginning of the assistant's answer.
	Chat *chat.Template
	// OneTurn puts the examples and the question into one message, instead of a turn each.
	OneTurn bool
}

// fewshotSeed is the seed with which lm-eval draws examples.
const fewshotSeed = 1234

const exampleSeparator = "\n\n"

type prompter struct {
	t        *Task
	o        Options
	examples []renderedDoc
	docs     []Doc // rows of the examples
	draws    *pyrandom.Random
}

func (t *Task) newPrompter(examples []Doc, o Options) (*prompter, error) {
	p := &prompter{t: t, o: o, docs: examples, draws: pyrandom.New(fewshotSeed)}
	need := o.Shots
	if t.drawsExtra() {
		need++
	}
	if o.Shots > 0 && len(examples) < need {
		return nil, fmt.Errorf("%d examples before each question, but only %d rows to draw them from",
			o.Shots, len(examples))
	}
	if o.Shots == 0 {
		return p, nil
	}
	for _, d := range examples {
		a, err := t.renderDoc(d)
		if err != nil {
			return nil, err
		}
		p.examples = append(p.examples, a)
	}
	return p, nil
}

// drawsExtra reports whether an additional example is drawn because one might be the question
// itself. lm-eval also does so if a task has neither a test split nor a few-shot split
// (lm_eval/api/task.py).
func (t *Task) drawsExtra() bool { return t.ExtraExample || t.ExampleSplit == t.Split }

// draw chooses the examples for question d. Each call advances the random generator.
func (p *prompter) draw(d Doc) []renderedDoc {
	n := p.o.Shots
	switch {
	case n == 0:
		return nil
	case p.t.FixedExamples:
		return p.examples[:n]
	case !p.t.drawsExtra():
		return p.otherExamples(p.draws.Sample(len(p.examples), n), Doc{}, n)
	}
	list := p.otherExamples(p.draws.Sample(len(p.examples), n+1), d, n)
	if len(list) == n {
		return list
	}
	var pool []int // the question itself was drawn more than once
	for i := range p.docs {
		if p.docs[i].text != d.text {
			pool = append(pool, i)
		}
	}
	list = nil
	for _, i := range p.draws.Sample(len(pool), min(n, len(pool))) {
		list = append(list, p.examples[pool[i]])
	}
	return list
}

// otherExamples returns the first n examples among those with the given indices whose row is not d.
func (p *prompter) otherExamples(which []int, d Doc, n int) (list []renderedDoc) {
	for _, i := range which {
		if len(list) < n && p.docs[i].text != d.text {
			list = append(list, p.examples[i])
		}
	}
	return list
}

func (p *prompter) prompt(examples []renderedDoc, question string) (string, error) {
	var before strings.Builder
	var turns chat.Conversation
	for _, e := range examples {
		if p.o.Chat != nil && !p.o.OneTurn {
			turns = append(turns, chat.NewMessage(chat.User, e.question(e.gold)),
				chat.NewMessage(chat.Assistant, e.answer()))
		} else {
			before.WriteString(e.question(e.gold) + p.t.Delimiter + e.answer() + exampleSeparator)
		}
	}
	question = before.String() + question
	if p.o.Chat == nil {
		return question, nil
	}
	r, err := p.o.Chat.Render(append(turns, chat.NewMessage(chat.User, question)), true)
	return r.Text, err
}

// UntilTexts returns the strings at which the model's answer ends.
func (t *Task) UntilTexts(e *Encoder) []string {
	list := slices.Clone(t.Until)
	if e.EOS != "" && !slices.Contains(list, e.EOS) {
		list = append(list, e.EOS)
	}
	return list
}
