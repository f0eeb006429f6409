package spec

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestGrid(t *testing.T) {
	odd := Grid{Format: FormatInteger, Min: -3, Max: 3, Step: 2}
	if got := odd.Codes(); !slices.Equal(got, []int32{-3, -1, 1, 3}) || odd.check() != nil {
		t.Errorf("%v, %v", got, odd.check())
	}
	floats := Grid{Format: FormatE2M1, Group: 32}
	if got := len(floats.Codes()); got != 16 || floats.check() != nil || floats.Number(13) != -3 {
		t.Errorf("%d codes, %v, %v", got, floats.Number(13), floats.check())
	}
	affine := Grid{Format: FormatAffine, Max: 3, Step: 1}
	if got := affine.Codes(); !slices.Equal(got, []int32{0, 1, 2, 3}) || affine.check() != nil ||
		affine.PerGroup() != 2 || odd.PerGroup() != 1 {
		t.Errorf("%v, %v", got, affine.check())
	}
	for code := int32(-20); code < 20; code++ {
		if odd.Holds(code) != slices.Contains(odd.Codes(), code) ||
			floats.Holds(code) != slices.Contains(floats.Codes(), code) {
			t.Errorf("the code %d", code)
		}
	}
	for _, c := range []struct {
		g    Grid
		says string
	}{
		{Grid{Format: "int4"}, "want integer, e2m1 or affine"},
		{Grid{Format: FormatE2M1, Max: 15}, "leave them 0"},
		{Grid{Format: FormatInteger, Max: 7}, "in steps of 0"},
		{Grid{Format: FormatInteger, Min: 1, Step: 1}, "codes from 1 to 0"},
		{Grid{Format: FormatInteger, Max: 7, Step: 2}, "divides their distance"},
		{Grid{Format: FormatInteger, Max: math.MaxInt32, Step: 1}, "at most 65536 codes"},
		{Grid{Format: FormatInteger, Min: math.MaxInt32, Max: math.MaxInt32 + 1, Step: 1},
			"numbers of 32 bits"},
		{Grid{Format: FormatE2M1, Group: -1}, "groups of 0 or more"},
		{Grid{Format: FormatE2M1, Span: 1}, "the format e2m1 has a span of 1"},
		{Grid{Format: FormatInteger, Max: 7, Step: 1, Span: -1}, "a span of -1"},
	} {
		if err := c.g.check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.g, err, c.says)
		}
	}
}
