// Package generate continues token sequences with a language model, by seeded sampling with
// temperature, top-k and top-p. A model ([Model]) is anything that returns logits for tokens. A
// [Stream] decodes new tokens to text as they arrive.
package generate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/internal/lists"
)

// Options control sampling.
type Options struct {
	Tokens      int     // maximal number of tokens to generate
	Temperature float64 // divides the logits; 0 means greedy decoding
	TopK        int     // restricts the choice to the K likeliest tokens; 0 means all
	// TopP restricts the choice to the smallest set of likeliest tokens whose probabilities add up
	// to at least TopP (Holtzman et al., 2020); 0 means all.
	TopP float64
	// Stop lists tokens that end a sequence. They are not part of the result.
	Stop []int32
	// Vocab, unless 0, restricts sampling to ids below it, for models with a padded vocabulary.
	Vocab int
	Seed  uint64 // of the random draws; each sequence of a batch has its own stream
}

// Model is a language model.
type Model interface {
	// Context returns the maximum number of tokens that the model can read.
	Context() int
	// Begin reads prompts. It returns the logits for the next token of each, as one row of the
	// vocabulary per prompt, and the Sequences with which to continue them, up to length tokens
	// including the prompt.
	Begin(prompts [][]int32, length int) (Sequences, []float32, error)
}

// Sequences are sequences that a model has read and can continue.
type Sequences interface {
	// Next reads one more token of each sequence, and returns the logits of the token after it.
	Next(tokens []int32) ([]float32, error)
	Close()
}

// ErrStop is returned by emit to end a sequence.
var ErrStop = errors.New("the sequence ends here")

// Continue extends prompts, none of which may be empty, and returns the new tokens of each. If a
// sequence exceeds the model's context, the model gets only its last tokens, at least half of the
// context. emit, if not nil, is called with each new token of sequence i before the next one is
// computed.
func Continue(ctx context.Context, m Model, prompts [][]int32, o Options,
	emit func(i int, token int32) error) ([][]int32, error) {
	switch {
	case slices.ContainsFunc(prompts, func(p []int32) bool { return len(p) == 0 }):
		return nil, fmt.Errorf("generate: the prompt is empty, want at least one token")
	case !(o.Temperature >= 0) || o.Tokens < 0 || o.TopK < 0:
		return nil, fmt.Errorf("generate: tokens %d, temperature %v, top-k %d: none may be negative",
			o.Tokens, o.Temperature, o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return nil, fmt.Errorf("generate: top-p %v, want a number from 0 to 1", o.TopP)
	}
	c := &continuation{m: m, o: o, all: make([][]int32, len(prompts)),
		done: make([]bool, len(prompts))}
	for i, p := range prompts {
		c.all[i] = slices.Clone(p)
		c.draws = append(c.draws, rand.New(rand.NewPCG(o.Seed, uint64(i))))
	}
	defer func() {
		if c.sequences != nil {
			c.sequences.Close()
		}
	}()
	for range o.Tokens {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !slices.Contains(c.done, false) {
			break
		}
		if err := c.advance(emit); err != nil {
			return nil, err
		}
	}
	return lists.Make(len(prompts), func(i int) []int32 { return c.all[i][len(prompts[i]):] }), nil
}

type continuation struct {
	m         Model
	o         Options
	draws     []*rand.Rand
	all       [][]int32 // each prompt with its continuation
	done      []bool
	sequences Sequences // nil: the model must read the sequences again
	seen      int       // length of the longest sequence that it has read
}

func (c *continuation) advance(emit func(i int, token int32) error) error {
	logits, err := c.read()
	if err != nil {
		return err
	}
	vocab := len(logits) / len(c.all)
	for i := range c.all {
		if c.done[i] {
			continue
		}
		token, err := c.o.draw(c.draws[i], logits[i*vocab:(i+1)*vocab])
		if err != nil {
			return err
		}
		if slices.Contains(c.o.Stop, token) {
			c.done[i] = true
			continue
		}
		c.all[i] = append(c.all[i], token)
		if emit == nil {
			continue
		}
		switch err := emit(i, token); {
		case errors.Is(err, ErrStop):
			c.done[i] = true
		case err != nil:
			return err
		}
	}
	return nil
}

// read makes the model read the last token of each sequence. On the first call it reads as many of
// the last tokens as fit into the context; once that is full, as many as fit into half of it. A
// finished sequence is continued with its last token, whose logits are ignored.
func (c *continuation) read() ([]float32, error) {
	context := c.m.Context()
	if c.sequences != nil && c.seen < context {
		c.seen++
		last := lists.Map(c.all, func(s []int32) int32 { return s[len(s)-1] })
		return c.sequences.Next(last)
	}
	limit := context
	if c.sequences != nil {
		c.sequences.Close()
		c.sequences, limit = nil, max(1, context/2)
	}
	var prompts [][]int32
	c.seen = 0
	for _, s := range c.all {
		p := s[max(0, len(s)-limit):]
		prompts, c.seen = append(prompts, p), max(c.seen, len(p))
	}
	var logits []float32
	var err error
	c.sequences, logits, err = c.m.Begin(prompts, c.seen+min(c.o.Tokens, context-c.seen))
	return logits, err
}
