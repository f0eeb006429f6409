package ruler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/pyrandom"
	"github.com/cage-qat/cage/internal/schema"
)

// DefaultBatch is the default number of prompts that are answered at once.
const DefaultBatch = 8

// DefaultSeed is RULER's default seed.
const DefaultSeed = 42

// Generator makes prompts.
type Generator struct {
	Inputs
	// Count returns the number of tokens in text.
	Count func(text string) (int, error)
	Seed  uint32 // numpy accepts no larger seeds
	// Before and After are the parts of a chat template before and after the question. The
	// beginning of the answer, which RULER provides, follows After.
	Before, After string
}

// Sample is a question to a model.
type Sample struct {
	// Input is the question, and AnswerPrefix the beginning of the answer, which the model continues.
	Input, AnswerPrefix string
	// Outputs lists the strings that the answer should contain.
	Outputs []string
}

// Prompt returns the text that is given to the model.
func (s Sample) Prompt() string { return s.Input + s.AnswerPrefix }

// Samples makes some of the samples of a task: the first ones, made in number. The question, its
// prefix and the answer have at most length tokens together. As in RULER, all samples of a file are
// drawn from one random stream: the first samples do not depend on the number of samples, but
// samples at different lengths are unrelated.
func (g *Generator) Samples(
	ctx context.Context, t Task, length, samples, made int,
) (list []Sample, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s at length %d: %w", t.Name, length, err)
		}
	}()
	if input := g.Missing(t); input != "" {
		return nil, fmt.Errorf("it needs %s", input)
	}
	s := &session{Generator: g, ctx: ctx, newTokens: t.NewTokens, length: length, samples: samples,
		rng: pyrandom.New(int64(g.Seed)), numbers: pyrandom.NewRandomState(g.Seed)}
	next, err := t.start(s)
	if err != nil {
		return nil, err
	}
	for i := range made {
		sample, err := next(i)
		if err != nil {
			return nil, fmt.Errorf("sample %d: %w", i, err)
		}
		list = append(list, sample)
	}
	return list, nil
}

type session struct {
	*Generator
	ctx       context.Context
	newTokens int
	length    int // tokens of a prompt with its answer
	samples   int

	rng     *pyrandom.Random      // Python's random, seeded once
	numbers *pyrandom.RandomState // numpy.random, seeded once
}

// fresh returns a new generator with the same seed, as RULER creates for each shuffle: lists of
// equal length always get the same permutation.
func (s *session) fresh() *pyrandom.Random { return pyrandom.New(int64(s.Seed)) }

// short reports whether RULER uses smaller steps and, in cwe, smaller counts at this length.
func (s *session) short() bool { return s.length < 4096 }

// count returns the number of tokens in text, or an error if the context is done.
func (s *session) count(text string) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Count(text)
}

// frame is the fixed text of a task's prompts, with placeholders in braces.
type frame struct{ body, prefix string }

// fill replaces the placeholders by values, given as name-value pairs, and adds the chat template.
func (g *Generator) fill(f frame, values ...string) Sample {
	r := strings.NewReplacer(values...)
	return Sample{Input: g.Before + r.Replace(f.body) + g.After, AnswerPrefix: r.Replace(f.prefix)}
}

// Settings are the flags of `cage ruler`, which are also keys of a study file.
type Settings struct {
	Lengths  []int    // in tokens
	Samples  int      // for each task and length
	Names    []string // names of tasks; empty means all
	Files    Files
	Template string // chat template; "" means none
}

// Keys returns the keys of the settings.
func (s *Settings) Keys() []schema.Key {
	file := schema.NonEmpty("that names a file")
	return []schema.Key{
		{Name: "lengths", Flag: "length", To: &s.Lengths, Is: schema.From(1, schema.Most),
			Default: []int{4096}, Doc: "lengths in tokens, of prompt and answer together"},
		{Name: "samples", To: &s.Samples, Is: schema.From(1, schema.Most), Default: 500,
			Doc: "samples of each task and length"},
		{Name: "tasks", To: &s.Names, Optional: "all", Doc: "names of tasks; all if not given"},
		{Name: "words", To: &s.Files.Words, Is: schema.NonEmpty("that names a directory"), Default: "",
			Doc: "directory `DIR` with nounlist.txt, adjectivelist.txt and verblist.txt of " +
				"wonderwords, and RULER's english_words.json"},
		{Name: "essay", To: &s.Files.Essay, Is: file, Default: "",
			Doc: "`FILE` with RULER's essays, or any text"},
		{Name: "squad", To: &s.Files.Squad, Is: file, Default: "",
			Doc: "`FILE` of SQuAD 2.0 (dev-v2.0.json)"},
		{Name: "hotpot", To: &s.Files.Hotpot, Is: file, Default: "",
			Doc: "`FILE` of HotpotQA (hotpot_dev_distractor_v1.json)"},
		{Name: "template", To: &s.Template, Is: schema.NonEmpty("that names a template"), Default: "",
			Doc: "put prompts into the chat template"},
	}
}

// SortedLengths returns the distinct lengths in ascending order.
func (s *Settings) SortedLengths() []int {
	return slices.Compact(slices.Sorted(slices.Values(s.Lengths)))
}

// maxRedraws is the number of times that a prompt of the smallest size is redrawn if it is too
// long. RULER's scripts retry forever.
const maxRedraws = 100

// filler fills prompts up to a length with units of text: lines, words or documents.
type filler struct {
	*session
	// build draws a prompt of n units for a sample.
	build func(index, n int) (Sample, error)
	// finish, if not nil, adds the parts of a sample that prompts lack during the search.
	finish func(d Sample) Sample
	// extraTokens is the number of tokens that finish adds.
	extraTokens int
	// minUnits is the smallest number of units, and the step by which overlong prompts shrink.
	minUnits int
	// probeUnits is the size of the prompt that is used to estimate the tokens per unit, in units.
	probeUnits int
	// floor selects the upper bound of the search: if set, twice the estimated number of units that
	// fit, rounded down first; otherwise three times the estimate.
	floor bool
}

// start finds the largest size whose prompt fits, by bisection as in RULER (each trial draws random
// numbers), and returns a function that draws samples of that size.
func (f *filler) start() (next, error) {
	tokens, err := f.try(f.probeUnits)
	if err != nil {
		return nil, err
	}
	perUnit, length := float64(tokens)/float64(f.probeUnits), float64(f.length)
	high := int(length / perUnit * 3)
	if f.floor {
		high = 2 * int(floorDivide(length, perUnit))
	}
	low := f.minUnits
	high = max(high, 2*f.minUnits)
	size := f.minUnits
	for low <= high {
		middle := (low + high) / 2
		tokens, err := f.try(middle)
		if err != nil {
			return nil, err
		}
		if tokens+f.extraTokens+f.newTokens <= f.length {
			size, low = middle, middle+1
		} else {
			high = middle - 1
		}
	}
	return func(index int) (Sample, error) { return f.sample(index, size) }, nil
}

// try draws a prompt for the first sample and counts its tokens.
func (f *filler) try(n int) (tokens int, err error) {
	d, err := f.build(0, n)
	if err != nil {
		return 0, err
	}
	return f.count(d.Prompt())
}

// sample draws a prompt of n units; while it is too long, n is reduced by minUnits.
func (f *filler) sample(index, n int) (Sample, error) {
	var shortest int
	var failed error
	for redraws := 0; redraws < maxRedraws; {
		d, err := f.build(index, n)
		if err == nil {
			if f.finish != nil {
				d = f.finish(d)
			}
			tokens, err := f.count(d.Prompt())
			if shortest = tokens + f.newTokens; err != nil || shortest <= f.length {
				return d, err
			}
		}
		failed = err
		if n > f.minUnits {
			n -= f.minUnits
		} else {
			redraws++
		}
	}
	if failed != nil {
		return Sample{}, failed
	}
	return Sample{}, &tooLong{shortest}
}

type tooLong struct {
	tokens int // tokens of such a prompt, with its answer
}

func (e *tooLong) Error() string {
	return fmt.Sprintf("the smallest prompts have about %d tokens with their answers: choose a "+
		"larger length, or leave the task out", e.tokens)
}

// floorDivide computes Python's x // y for floats: the quotient is rounded down before it is
// rounded to a float (Objects/floatobject.c, float_floor_div).
func floorDivide(x, y float64) float64 {
	quotient := (x - math.Mod(x, y)) / y
	floor := math.Floor(quotient)
	if quotient-floor > 0.5 {
		floor++
	}
	return floor
}
