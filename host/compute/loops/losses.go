package loops

import (
	"fmt"
	"math"
	"sync"
)

// Logits holds rows of logits, each with its target column.
type Logits struct {
	Columns int
	Logits  []float32 // [rows, Columns]
	Targets []int32   // target column of each row
}

const taskElements = 1 << 15

// Losses writes the loss log Σ exp(logits) − logits[target] of each row. It also writes the
// gradients of the losses with respect to the logits, times factors, to gradients or, rounded to
// bfloat16, to short; the other slice is nil, and gradients may be the slice of the logits. If a
// prediction is certain, its gradient is 0.
func (l Logits) Losses(losses, gradients []float32, short []uint16, factors []float32,
	parallel Parallel) error {
	return l.each(parallel, func(i int, row []float32, scratch *[]float32) {
		exponentials := scratchOf(scratch, l.Columns)
		if gradients != nil {
			exponentials = gradients[i*l.Columns:][:l.Columns]
		}
		target := l.Targets[i]
		chosen := row[target]
		highest, sum := softmaxParts(exponentials, row, 1)
		losses[i] = float32(math.Log(float64(sum))) + highest - chosen
		BinaryS(Mul, exponentials, exponentials, factors[i]/sum)
		exponentials[target] -= factors[i]
		if gradients == nil {
			ToBFloat16(short[i*l.Columns:][:l.Columns], exponentials)
		}
	})
}

// Sums writes log Σ exp(logits) and logits[target] of each row.
func (l Logits) Sums(logTotal, chosen []float32, parallel Parallel) error {
	return l.each(parallel, func(i int, row []float32, scratch *[]float32) {
		highest, sum := softmaxParts(scratchOf(scratch, l.Columns), row, 1)
		logTotal[i], chosen[i] = float32(math.Log(float64(sum)))+highest, row[l.Targets[i]]
	})
}

// softmaxParts returns the maximum of logits·scale, writes the exponentials of the differences from
// it, and returns their sum.
func softmaxParts(exponentials, logits []float32, scale float32) (highest, sum float32) {
	var one [1]float32
	GroupFold(Max, one[:], logits, len(logits))
	highest = one[0] * scale
	ExpLin(exponentials, logits, scale, highest)
	GroupFold(Add, one[:], exponentials, len(exponentials))
	return highest, one[0]
}

// Softmax replaces x by softmax(scale·x), by NaN if an element is NaN or the largest is infinite.
func Softmax(x []float32, scale float32) {
	_, sum := softmaxParts(x, x, scale)
	BinaryS(Mul, x, x, 1/sum)
}

var scratches = sync.Pool{New: func() any { return new([]float32) }}

func scratchOf(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}

// each calls f for each row, with scratch memory, possibly concurrently. It returns an error if a
// target is not a valid column.
func (l Logits) each(parallel Parallel, f func(i int, row []float32, scratch *[]float32)) error {
	for i, target := range l.Targets {
		if target < 0 || int(target) >= l.Columns {
			return fmt.Errorf("target %d is column %d, want less than %d", i, target, l.Columns)
		}
	}
	rows := max(1, taskElements/l.Columns) // in a task
	InParts(len(l.Targets), rows, parallel, func(from, to int) {
		scratch := scratches.Get().(*[]float32)
		defer scratches.Put(scratch)
		for i := from; i < to; i++ {
			f(i, l.Logits[i*l.Columns:(i+1)*l.Columns], scratch)
		}
	})
	return nil
}
