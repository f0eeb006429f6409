package ruler

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/pyrandom"
	"github.com/cage-qat/cage/internal/schema"
)

// DefaultSeed is the seed with which RULER makes its prompts.
const DefaultSeed = 42

// Generator makes prompts.
type Generator struct {
	Inputs
	// Count returns the number of tokens in a text.
	Count func(text string) (int, error)
	Seed  uint32 // numpy accepts no larger ones
	// Before and After are what a template of conversations puts around a question. The
	// first words of the answer, which RULER provides, follow After.
	Before, After string
}

// Sample is a question to a model, in the form in which RULER stores it.
type Sample struct {
	// Index is the sample's number; in the needle tasks it is the position of the first
	// value in the input, in characters. RULER's files have it that way, too.
	Index int `json:"index"`
	// Input is the question, and AnswerPrefix the beginning of the answer: the model
	// continues both.
	Input string `json:"input"`
	// Outputs lists what the answer should contain.
	Outputs []string `json:"outputs"`
	// Length counts the tokens of the question, the prefix, and the longest answer.
	Length       int    `json:"length"`
	AnswerPrefix string `json:"answer_prefix"`
}

// Prompt returns the text that a model reads.
func (s Sample) Prompt() string { return s.Input + s.AnswerPrefix }

// Samples makes samples of a task. Together, the question, its prefix and the answer have
// at most length tokens. RULER draws all samples of a file from one stream of random
// numbers, so that the first samples are the same however many follow, but those of
// another length are different.
func (g *Generator) Samples(ctx context.Context, t Task, length, samples int) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		fail := func(err error) { yield(Sample{}, fmt.Errorf("%s at length %d: %w", t.Name, length, err)) }
		if missing := g.Missing(t); missing != "" {
			fail(fmt.Errorf("it needs %s", missing))
			return
		}
		s := &session{Generator: g, ctx: ctx, newTokens: t.NewTokens, length: length, samples: samples,
			rng: pyrandom.New(int64(g.Seed)), numbers: pyrandom.NewRandomState(g.Seed)}
		next, err := t.kind.start(s)
		if err != nil {
			fail(err)
			return
		}
		for i := range samples {
			sample, err := next(i)
			if err != nil {
				fail(fmt.Errorf("sample %d: %w", i, err))
				return
			}
			if !yield(sample, nil) {
				return
			}
		}
	}
}

type session struct {
	*Generator
	ctx       context.Context
	newTokens int
	length    int // tokens of a prompt with the answer
	samples   int

	rng     *pyrandom.Random      // Python's random, seeded once
	numbers *pyrandom.RandomState // numpy.random, seeded once
}

// fresh is the generator that RULER makes anew for each shuffle: equal lengths are always
// put into the same order.
func (s *session) fresh() *pyrandom.Random { return pyrandom.New(int64(s.Seed)) }

// short reports whether RULER takes smaller steps, and cwe smaller counts.
func (s *session) short() bool { return s.length < 4096 }

// count counts the tokens of a text, unless the context has ended.
func (s *session) count(text string) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Count(text)
}

// frame is the text around the haystack and the question of a task.
type frame struct{ body, prefix string }

// fill puts values for the names in braces, and the template of conversations around it.
func (g *Generator) fill(f frame, values ...string) Sample {
	r := strings.NewReplacer(values...)
	return Sample{Input: g.Before + r.Replace(f.body) + g.After, AnswerPrefix: r.Replace(f.prefix)}
}

// Settings say what prompts to make: the flags of `cage ruler`, which are keys of a study file, too.
type Settings struct {
	Lengths  []int    // in tokens
	Samples  int      // number for each task and length
	Names    []string // of tasks; none means all
	Files    Files
	Template string // template of conversations; "" means none
}

// Keys describes the settings.
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "lengths", Flag: "length", To: &s.Lengths, Is: schema.From(1, schema.Most), Default: []int{4096}, Doc: "lengths in tokens, of prompt and answer together"},
		{Name: "samples", To: &s.Samples, Is: schema.From(1, schema.Most), Default: 500, Doc: "samples of each task and length"},
		{Name: "tasks", To: &s.Names, Optional: "all", Doc: "names of tasks; all if not given"},
		{Name: "words", To: &s.Files.Words, Is: schema.NonEmpty("that names a directory"), Default: "",
			Doc: "directory `DIR` with nounlist.txt, adjectivelist.txt and verblist.txt of wonderwords, and RULER's english_words.json"},
		{Name: "essay", To: &s.Files.Essay, Is: schema.NonEmpty("that names a file"), Default: "", Doc: "`FILE` with RULER's essays, or any text"},
		{Name: "squad", To: &s.Files.Squad, Is: schema.NonEmpty("that names a file"), Default: "", Doc: "`FILE` of SQuAD 2.0 (dev-v2.0.json)"},
		{Name: "hotpot", To: &s.Files.Hotpot, Is: schema.NonEmpty("that names a file"), Default: "", Doc: "`FILE` of HotpotQA (hotpot_dev_distractor_v1.json)"},
		{Name: "template", To: &s.Template, Is: schema.NonEmpty("that names a template"), Default: "",
			Doc: "put prompts into the template of conversations"},
	}
}

// SortedLengths returns the lengths in ascending order, each once.
func (s *Settings) SortedLengths() []int {
	return slices.Compact(slices.Sorted(slices.Values(s.Lengths)))
}

// patience is how often a prompt of the smallest size is drawn anew when it is too long.
// RULER's scripts draw for ever.
const patience = 100

// filler makes prompts of a length from units of haystack: lines, words or documents.
type filler struct {
	*session
	// build draws a prompt of n units for a sample.
	build func(index, n int) (Sample, error)
	// finish, if not nil, draws what a sample has more than a prompt of the search.
	finish func(d Sample) Sample
	// besides are tokens that prompts of the search do not have yet.
	besides int
	// least is the smallest number of units, and the step by which too long prompts shrink.
	least int
	// probe is the size of the prompt that tells how many tokens a unit has.
	probe int
	// most is the largest size that is tried when a unit has so many tokens.
	most func(perUnit float64) int
}

// threefold is the largest size that is tried by most tasks: three times what should fit.
func (s *session) threefold(perUnit float64) int { return int(float64(s.length) / perUnit * 3) }

// start finds the largest size whose prompt fits, by bisection as RULER does (each trial
// draws), and returns what draws samples of that size.
func (f *filler) start() (func(index int) (Sample, error), error) {
	_, tokens, err := f.try(f.probe)
	if err != nil {
		return nil, err
	}
	low, high := f.least, max(f.most(float64(tokens)/float64(f.probe)), 2*f.least)
	size := f.least
	for low <= high {
		middle := (low + high) / 2
		_, tokens, err := f.try(middle)
		if err != nil {
			return nil, err
		}
		if tokens+f.besides+f.newTokens <= f.length {
			size, low = middle, middle+1
		} else {
			high = middle - 1
		}
	}
	return func(index int) (Sample, error) { return f.sample(index, size) }, nil
}

// try draws a prompt for the first sample and counts its tokens.
func (f *filler) try(n int) (Sample, int, error) {
	d, err := f.build(0, n)
	if err != nil {
		return d, 0, err
	}
	tokens, err := f.count(d.Prompt())
	return d, tokens, err
}

// sample draws a prompt of n units; while it is too long, one that is smaller by a step.
func (f *filler) sample(index, n int) (Sample, error) {
	var shortest int
	var failed error
	for stuck := 0; stuck < patience; {
		d, err := f.build(index, n)
		if err == nil {
			if f.finish != nil {
				d = f.finish(d)
			}
			if d.Length, err = f.count(d.Prompt()); err != nil {
				return d, err
			}
			if d.Length += f.newTokens; d.Length <= f.length {
				d.Index = index
				return d, nil
			}
			shortest = d.Length
		}
		failed = err
		if n > f.least {
			n -= f.least
		} else {
			stuck++
		}
	}
	if failed != nil {
		return Sample{}, failed
	}
	return Sample{}, &tooLong{shortest}
}

// tooLong is the error of a task whose smallest prompts do not fit.
type tooLong struct {
	tokens int // of one of them, with its answer
}

func (e *tooLong) Error() string {
	return fmt.Sprintf("the smallest prompts have about %d tokens with their answers: choose a larger length, or leave the task out", e.tokens)
}

// floorDivide is Python's x // y of floats: the quotient is rounded down before it is
// rounded to a float (Objects/floatobject.c, float_floor_div).
func floorDivide(x, y float64) float64 {
	quotient := (x - math.Mod(x, y)) / y
	floor := math.Floor(quotient)
	if quotient-floor > 0.5 {
		floor++
	}
	return floor
}
