package memory_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/memory"
)

// TestReport: the parts are the whole, the largest first, and what fits is what is not refused.
func TestReport(t *testing.T) {
	with := small
	with.Teacher.Parameters = 2.2e6
	total := memory.Estimate(with).Total()
	for _, available := range []*memory.Available{nil, {Bytes: int64(total)}, {Bytes: int64(total / 2)}} {
		r := memory.NewReport(with, available)
		if want := memory.Check(with, available) == nil; r.Fits != want || r.Bytes != total || r.Available != available {
			t.Errorf("%+v, want %g bytes and fits %v", r, total, want)
		}
		sum := 0.0
		for _, p := range r.Parts {
			sum += p.Bytes
		}
		if math.Abs(sum-total) > 1e-9*total {
			t.Errorf("the parts are %g bytes, want %g", sum, total)
		}
		if !slices.IsSortedFunc(r.Parts, func(a, b memory.Part) int { return int(b.Bytes - a.Bytes) }) {
			t.Errorf("not the largest first: %v", r.Parts)
		}
		if !slices.ContainsFunc(r.Parts, func(p memory.Part) bool { return strings.Contains(p.What, "teacher") && p.Bytes == 4*2.2e6 }) {
			t.Errorf("no teacher among %v", r.Parts)
		}
	}
}
