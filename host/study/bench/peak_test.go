package bench

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// TestPeaks: there are rates of everything, and shares of what has an instruction.
func TestPeaks(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	r, err := Peaks(t.Context(), PeakOptions{Runs: 2, Time: time.Millisecond, Squares: []int{16}, Widths: []int{32, 128}, Tokens: 300})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOMAXPROCS(0) != procs {
		t.Errorf("GOMAXPROCS is %d, was %d", runtime.GOMAXPROCS(0), procs)
	}
	if len(r.Instructions) != len(matmul.Peaks()) || len(r.Products) != 4*(1+2*5) {
		t.Errorf("%d instructions, %d products", len(r.Instructions), len(r.Products))
	}
	check := func(name string, rates []Rate, share bool) {
		if len(rates) != len(r.Threads) {
			t.Errorf("%s: %d rates for %d numbers of threads", name, len(rates), len(r.Threads))
		}
		for i, rate := range rates {
			if rate.Threads != r.Threads[i] || !(rate.Best >= rate.Median && rate.Median > 0) || (rate.Share > 0) != share {
				t.Errorf("%s: %+v", name, rate)
			}
		}
	}
	peaks := map[string]bool{}
	for _, n := range r.Instructions {
		check(n.Name, n.Rates, false)
		peaks[n.Name] = true
	}
	for _, p := range r.Products {
		check(p.Name+" of "+p.Numbers, p.Rates, peaks[p.Instruction])
	}
}

// TestForms: products of package matmul are those that the forms say.
func TestForms(t *testing.T) {
	tier, err := engine.ProductTier()
	if err != nil {
		t.Fatal(err)
	}
	all := forms(PeakOptions{Squares: []int{5}, Widths: []int{96}, Tokens: 40})
	shared := newOperands(all)
	for _, f := range all {
		once, err := byMatmul(tier, matmul.Int8, f, shared, 7)
		if err != nil {
			t.Fatal(err)
		}
		if err := once(2); err != nil {
			t.Fatal(err)
		}
		left, right := shared.of(size(f.leftDims()), 7).Int8, shared.of(size(f.rightDims()), 7).Int8
		at := func(dims []int, contracted, b, cross, k int) int {
			row, column := cross, k
			if contracted == 1 {
				row, column = k, cross
			}
			return (b*dims[1]+row)*dims[2] + column
		}
		for i := range f.batch * f.m * f.n {
			b, m, n, want := i/(f.m*f.n), i/f.n%f.m, i%f.n, 0
			for k := range f.k {
				want += int(left[at(f.leftDims(), f.left, b, m, k)]) * int(right[at(f.rightDims(), f.right, b, n, k)])
			}
			if got := shared.out[i]; got != float32(want) {
				t.Fatalf("%+v: element %d is %v, want %d", f, i, got, want)
			}
		}
	}
}

// TestPeaksStops: nothing is measured after the caller has given up.
func TestPeaksStops(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Peaks(stopped, PeakOptions{Runs: 1, Tokens: 1}); err == nil {
		t.Error("measured, though the caller has given up")
	}
}

func TestCheck(t *testing.T) {
	good := PeakOptions{Runs: 1, Squares: []int{1}, Widths: []int{1 << 14}, Tokens: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*PeakOptions){
		func(o *PeakOptions) { o.Runs = 0 },
		func(o *PeakOptions) { o.Time = -1 },
		func(o *PeakOptions) { o.Tokens = 0 },
		func(o *PeakOptions) { o.Tokens = math.MaxInt },
		func(o *PeakOptions) { o.Squares = []int{0} },
		func(o *PeakOptions) { o.Widths = []int{1<<14 + 1} },
	} {
		bad := good
		change(&bad)
		if bad.Check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
