package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

func shell(script string) []string { return []string{"sh", "-c", script} }

func TestCompare(t *testing.T) {
	var order []string
	c, err := Compare(t.Context(), shell(`echo noise; echo '{"seconds": 0.5}'`), shell(`echo '{"seconds": 2, "first_step_unix": 1e10}'`), 3,
		func(side string, _ Process) { order = append(order, side) })
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "ABABAB" {
		t.Errorf("order %s, want ABABAB", got)
	}
	if c.Ratio != 4 || c.Low != 4 || c.High != 4 {
		t.Errorf("ratio %v (%v to %v), want 4: B takes four times as long", c.Ratio, c.Low, c.High)
	}
	if c.A.Median.Peak <= 0 || c.Memory <= 0 || c.A.Median.FirstStep != 0 || c.B.Median.FirstStep <= 0 {
		t.Errorf("%+v", c)
	}
}

// The object may take several lines, as those of `cage bench step --json` do, behind
// anything else.
func TestCompareReadsSeveralLines(t *testing.T) {
	for _, output := range []string{"{\n  \"steps\": [\n    {\n      \"seconds\": 3\n    }\n  ],\n  \"seconds\": 2\n}\n", "{}\n\nnoise\n{\"seconds\": 2}\n\n"} {
		c, err := Compare(t.Context(), shell("printf '%s' '"+output+"'"), shell(`echo '{"seconds": 1}'`), 1, func(string, Process) {})
		if err != nil || c.Ratio != 0.5 {
			t.Errorf("%q: %+v, %v", output, c, err)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	good := shell(`echo '{"seconds": 1}'`)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"failure":     {shell("echo no data >&2; exit 3"), "no data"},
		"no JSON":     {shell("echo 12 ms"), `"12 ms"`},
		"no seconds":  {shell(`echo '{"loss": 1}'`), `"seconds"`},
		"no command":  {[]string{"/nowhere/peer"}, "/nowhere/peer"},
		"empty":       {shell("true"), `want a JSON object`},
		"zero length": {shell(`echo '{"seconds": 0}'`), `"seconds"`},
	} {
		_, err := Compare(t.Context(), good, tt.args, 1, func(string, Process) {})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}

// TestScaleFindsPlantedExponents: what grows as a power of the size is fitted exactly.
func TestScaleFindsPlantedExponents(t *testing.T) {
	g, err := Scale(t.Context(), "width", []int{64, 128, 512}, func(_ context.Context, size int) (Point, error) {
		n := float64(size)
		return Point{Seconds: 3e-9 * math.Pow(n, 1.7), FLOPs: 6 * n * n, PeakMemory: int64(size) << 20}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]float64{"time": {g.Time, 1.7}, "operations": {g.FLOPs, 2}, "memory": {g.Memory, 1}} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("exponent of %s is %v, planted was %v", name, pair[0], pair[1])
		}
	}
	if len(g.Points) != 3 || g.Points[2].Size != 512 {
		t.Errorf("points %+v", g.Points)
	}
}

func TestScaleRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		sizes []int
		want  string
	}{
		"failure":   {[]int{64, 128}, "width 64: out of memory"},
		"one size":  {[]int{64}, "width: sizes [64] show no growth"},
		"one twice": {[]int{64, 64}, "two different ones"},
		"nothing":   {[]int{0, 64}, "of 1 or more"},
	} {
		_, err := Scale(t.Context(), "width", tt.sizes, func(context.Context, int) (Point, error) { return Point{}, errors.New("out of memory") })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}
