package ruler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/pyrandom"
)

const hops = 4

var trackingFrame = frame{
	body: "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n" +
		"{context}\n" +
		"Question: Find all variables that are assigned the value {query} in the text above.",
	prefix: " Answer: According to the chain(s) of variable assignment in the text above, " +
		"{count} variables are assigned the value {query}, they are: ",
}

// An example precedes each question. It is made with shorter names, a fixed value and its own
// length; names and value are then replaced by random ones for each question.
const (
	exampleLength = 500
	exampleValue  = "12345"
)

// tracking asks for all variables that have a given value, directly or through other variables
// (scripts/data/synthetic/variable_tracking.py with one chain of four hops).
func tracking(s *session) (next, error) {
	example, err := trackingExample(s)
	if long, ok := errors.AsType[*tooLong](err); ok {
		return nil, fmt.Errorf("the example may have %d tokens, whatever the length, but the smallest "+
			"with this tokenizer has about %d: leave the task out", exampleLength, long.tokens)
	}
	if few, ok := errors.AsType[*tooFewLines](err); ok {
		return nil, fmt.Errorf("the example may have %d tokens, whatever the length, which are %d lines "+
			"with this tokenizer, and needs %d: leave the task out", exampleLength, few.lines, few.needed)
	}
	if err != nil {
		return nil, fmt.Errorf("the example: %w", err)
	}
	extraTokens, err := s.count(example)
	if err != nil {
		return nil, err
	}
	minUnits := 10
	if s.short() {
		minUnits = 5
	}
	d := trackingDraw{session: s, letters: 5}
	f := &filler{session: s, minUnits: minUnits, probeUnits: minUnits, extraTokens: extraTokens,
		build: d.prompt,
		finish: func(p Sample) Sample {
			question := strings.TrimPrefix(p.Input, s.Before)
			other := example // with other variable names, and another value
			all := strings.Fields(other)
			for _, name := range all[len(all)-hops-1:] {
				other = strings.ReplaceAll(other, name, d.name(len(name)))
			}
			other = strings.ReplaceAll(other, exampleValue, d.number())
			p.Input = s.Before + other + "\n" + question
			return p
		}}
	return f.start()
}

// trackingExample draws a question with its answer, without a chat template.
func trackingExample(s *session) (string, error) {
	bare := *s.Generator
	bare.Before, bare.After = "", ""
	short := *s
	short.Generator, short.length, short.newTokens = &bare, exampleLength, 0
	d := trackingDraw{session: &short, letters: 3, value: exampleValue}
	f := &filler{session: &short, minUnits: 5, probeUnits: 5, build: d.prompt}
	next, err := f.start()
	if err != nil {
		return "", err
	}
	p, err := next(0)
	return p.Prompt() + " " + strings.Join(p.Outputs, " ") + "\n", err
}

type trackingDraw struct {
	*session
	letters int    // in a name
	value   string // if empty, it is drawn
}

var alphabet = strings.Split("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "")

func (d trackingDraw) name(letters int) string {
	return strings.Join(pyrandom.Choices(d.rng, alphabet, letters), "")
}

func (d trackingDraw) number() string {
	if d.value != "" {
		return d.value
	}
	return strconv.Itoa(d.numbers.RandInt(10_000, 99_999))
}

func (d trackingDraw) prompt(_, n int) (Sample, error) {
	var names []string
	for range hops + 1 {
		names = append(names, d.name(d.letters))
	}
	value := d.number()
	if distinct(names) < len(names) {
		// In this case RULER's script draws further names and the value of a second chain before it
		// fails. The same numbers are drawn here.
		for distinct(names) < hops+1 {
			names = append(names, d.name(d.letters))
		}
		d.number()
		return Sample{}, errors.New("a variable was drawn twice, which makes RULER's script fail: " +
			"choose another seed")
	}
	chain := []string{"VAR " + names[0] + " = " + value}
	for i := range hops {
		chain = append(chain, "VAR "+names[i+1]+" = VAR "+names[i]+" ")
	}
	if n < len(chain) {
		return Sample{}, &tooFewLines{len(chain), n}
	}
	lines := slices.Repeat([]string{noiseLine}, n)
	positions := d.rng.Sample(n, len(chain))
	slices.Sort(positions)
	for i, position := range positions {
		lines = slices.Insert(lines, position+i, chain[i])
	}
	p := d.fill(trackingFrame, "{context}", strings.Join(lines, "\n"), "{query}", value,
		"{count}", strconv.Itoa(hops+1))
	p.Outputs = names
	return p, nil
}

func distinct(names []string) int {
	return len(slices.Compact(slices.Sorted(slices.Values(names))))
}

type tooFewLines struct{ needed, lines int }

func (e *tooFewLines) Error() string {
	return fmt.Sprintf("%d assignments do not fit into %d lines: choose a larger length",
		e.needed, e.lines)
}
