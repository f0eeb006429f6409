package matmul

import (
	"errors"
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/compute/loops"
)

// Arithmetic is the number format in which a product computes.
type Arithmetic int

// The arithmetics. BFloat16 and Float32 take operands in float32 or bfloat16; BFloat16 rounds them
// to bfloat16, and Float32 uses them unrounded. Int8 takes 8-bit integers.
const (
	BFloat16 Arithmetic = iota
	Int8
	Float32
)

func (a Arithmetic) String() string { return [...]string{"bfloat16", "int8", "float32"}[a] }

// Results is the output of a product: either Float32 or BFloat16 is set. bfloat16 results are
// rounded to nearest, ties to even; results below the smallest normal number may become zero.
type Results struct {
	Float32  []float32
	BFloat16 []uint16
	// Addend, unless nil, is added to the results of float operands before they are rounded. It may
	// be the same slice as Float32.
	Addend []float32
}

// Scales are factors of the results of integers, of every product in a batch the same. Each sum is
// multiplied by its row's factor, then by its column's. Columns is nil if columns have no factors.
// Products of floats have no Scales.
type Scales struct{ Rows, Columns []float32 }

// A Product is a planned matrix product, or a batch of products. It may be run concurrently.
type Product struct {
	format         *format
	arithmetic     Arithmetic
	left, right    view
	batch, m, n, k int
}

// New plans the product of a left and a right operand. The axes of the output are [batch …, left
// cross …, right cross …], in row-major order.
func New(t *Tier, a Arithmetic, left, right Layout) (*Product, error) {
	if t == nil || a < BFloat16 || a > Float32 {
		return nil, errors.New("want a tier and an arithmetic for the product")
	}
	if err := equalSizes("batch", left.Batch, right.Batch); err != nil {
		return nil, err
	}
	if err := equalSizes("contracted", left.Contracted, right.Contracted); err != nil {
		return nil, err
	}
	p := &Product{format: t.format(a), arithmetic: a}
	var err error
	if p.left, err = newView("left", left); err != nil {
		return nil, err
	}
	if p.right, err = newView("right", right); err != nil {
		return nil, err
	}
	p.batch, p.k = p.left.batch.size, p.left.contracted.size
	p.m, p.n = p.left.cross.size, p.right.cross.size
	if a == Int8 && p.k > MaxCodes {
		return nil, fmt.Errorf("sums of %d products of 8-bit integers may overflow: want at most %d",
			p.k, MaxCodes)
	}
	if p.m > 0 && p.n > 0 && p.batch > maxElements/p.m/p.n {
		return nil, fmt.Errorf("the output has more than %d elements", uint64(maxElements))
	}
	return p, nil
}

// MaxCodes is the largest number of products of 8-bit integers whose sum fits in an int32.
const MaxCodes = math.MaxInt32 / (math.MinInt8 * math.MinInt8)

func equalSizes(which string, left, right []Axis) error {
	if len(left) != len(right) {
		const format = "the left operand has %d %s axes, the right one %d"
		return fmt.Errorf(format, len(left), which, len(right))
	}
	for i := range left {
		if left[i].Size != right[i].Size {
			return fmt.Errorf("%s axis %d has size %d in the left operand, %d in the right one", which, i,
				left[i].Size, right[i].Size)
		}
	}
	return nil
}

// Size returns the number of elements of the output.
func (p *Product) Size() int { return p.batch * p.m * p.n }

// Run computes the product. It calls parallel, possibly several times, with a function that
// parallel must call with 0 … n−1, in any order and on any goroutines. If parallel is nil, this
// goroutine makes the calls. The operands must not overlap out.
func (p *Product) Run(out Results, left, right Elements, s Scales,
	parallel func(n int, f func(i int))) error {
	if err := p.check(out, left, right, s); err != nil {
		return err
	}
	if p.Size() == 0 {
		return nil
	}
	alone := parallel == nil || p.Size()*max(p.k, 1) < p.format.cut.alone
	if alone {
		parallel = loops.InOrder
	}
	r := runs.Get().(*run)
	r.call = call{p, out, left, right, s, parallel, alone}
	r.plan()
	r.multiply()
	// Keep no references to the caller's slices in the pool.
	r.call, r.sums = call{}, nil
	runs.Put(r)
	return nil
}

func (p *Product) check(out Results, left, right Elements, s Scales) error {
	if size := len(out.Float32) + len(out.BFloat16); size != p.Size() {
		return fmt.Errorf("the output has %d elements, want %d", size, p.Size())
	}
	if out.Float32 != nil && out.BFloat16 != nil {
		return errors.New("want output in either float32 or bfloat16, got both")
	}
	if out.Addend != nil && len(out.Addend) != p.Size() {
		return fmt.Errorf("%d elements are added to %d results", len(out.Addend), p.Size())
	}
	if err := p.checkElements("left", &p.left, left); err != nil {
		return err
	}
	if err := p.checkElements("right", &p.right, right); err != nil {
		return err
	}
	switch {
	case p.arithmetic != Int8:
		if s.Rows != nil || s.Columns != nil {
			return fmt.Errorf("a product in %v has no scales", p.arithmetic)
		}
	case out.Addend != nil:
		return errors.New("nothing can be added to a product of integers")
	case len(s.Rows) != p.m:
		return fmt.Errorf("got %d scales for %d rows", len(s.Rows), p.m)
	case s.Columns != nil && len(s.Columns) != p.n:
		return fmt.Errorf("got %d scales for %d columns", len(s.Columns), p.n)
	}
	return nil
}

func (p *Product) checkElements(which string, v *view, e Elements) error {
	slices := 0
	for _, given := range []bool{e.Float32 != nil, e.BFloat16 != nil, e.Int8 != nil} {
		if given {
			slices++
		}
	}
	// An operand without elements may be nil or an empty slice.
	if slices == 0 && v.extent == 0 {
		return nil
	}
	if slices != 1 || (e.Int8 != nil) != (p.arithmetic == Int8) {
		want := "one of Float32 and BFloat16"
		if p.arithmetic == Int8 {
			want = "Int8"
		}
		return fmt.Errorf("a product in %v needs only %s for its %s operand", p.arithmetic, want, which)
	}
	if e.Len() < v.extent {
		return fmt.Errorf("the %s operand has %d elements, but its layout spans %d", which, e.Len(),
			v.extent)
	}
	return nil
}
