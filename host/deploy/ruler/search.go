package ruler

import (
	"fmt"
	"math"
)

// patience is how often a prompt of the smallest size is drawn anew when it is too long.
// RULER's scripts draw for ever.
const patience = 100

// filler makes prompts of a length from units of haystack: lines, words or documents.
type filler struct {
	*session
	// build draws a prompt of n units for a sample.
	build func(index, n int) (drawnPrompt, error)
	// finish, if not nil, draws what a sample has more than a prompt of the search.
	finish func(d drawnPrompt) drawnPrompt
	// besides are tokens that prompts of the search lack.
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
func (f *filler) start() (func(index int) (drawnPrompt, error), error) {
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
	return func(index int) (drawnPrompt, error) { return f.sample(index, size) }, nil
}

// try draws a prompt for the first sample and counts its tokens.
func (f *filler) try(n int) (drawnPrompt, int, error) {
	d, err := f.build(0, n)
	if err != nil {
		return d, 0, err
	}
	tokens, err := f.count(d.text())
	return d, tokens, err
}

// sample draws a prompt of n units; while it is too long, one that is smaller by a step.
func (f *filler) sample(index, n int) (drawnPrompt, error) {
	var shortest int
	var failed error
	for stuck := 0; stuck < patience; {
		d, err := f.build(index, n)
		if err == nil {
			if f.finish != nil {
				d = f.finish(d)
			}
			if d.tokens, err = f.count(d.text()); err != nil {
				return d, err
			}
			if d.tokens += f.newTokens; d.tokens <= f.length {
				return d, nil
			}
			shortest = d.tokens
		}
		failed = err
		if n > f.least {
			n -= f.least
		} else {
			stuck++
		}
	}
	if failed != nil {
		return drawnPrompt{}, failed
	}
	return drawnPrompt{}, &tooLong{shortest}
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
